# Completion of wg-quick for fish.

# Nobody but root may look into the folder, as a rule; then there are no names to offer.
function __wg_quick_files
    for file in /etc/wireguard/*.conf
        basename $file .conf
    end
end

complete -c wg-quick -f
complete -c wg-quick -n __fish_use_subcommand -a up -d 'Bring a tunnel up'
complete -c wg-quick -n __fish_use_subcommand -a down -d 'Take a tunnel down'
complete -c wg-quick -n __fish_use_subcommand -a save -d 'Write a tunnel to its file'
complete -c wg-quick -n __fish_use_subcommand -a strip -d 'The file without what is for wg-quick alone'
complete -c wg-quick -n __fish_use_subcommand -a help -d 'Print how to use it'
complete -c wg-quick -n '__fish_seen_subcommand_from up strip' -a '(__wg_quick_files)'
complete -c wg-quick -n '__fish_seen_subcommand_from down save' -a '(wg show interfaces 2>/dev/null | string split " ")'
complete -c wg-quick -n '__fish_seen_subcommand_from up strip down save' -k -a '(__fish_complete_suffix .conf)'
