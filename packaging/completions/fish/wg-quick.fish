# Completion of wg-quick for fish.

# Usually only root may list the directory; others get no names.
function __wg_quick_files
    for file in /etc/wireguard/*.conf
        basename $file .conf
    end
end

complete -c wg-quick -f
complete -c wg-quick -n __fish_use_subcommand -a up -d 'Bring a tunnel up'
complete -c wg-quick -n __fish_use_subcommand -a down -d 'Take a tunnel down'
complete -c wg-quick -n __fish_use_subcommand -a save -d 'Save the running state to the file'
complete -c wg-quick -n __fish_use_subcommand -a strip -d 'Print the file without the settings of wg-quick'
complete -c wg-quick -n __fish_use_subcommand -a help -d 'Print help'
complete -c wg-quick -n '__fish_seen_subcommand_from up strip' -a '(__wg_quick_files)'
complete -c wg-quick -n '__fish_seen_subcommand_from down save' -a '(wg show interfaces 2>/dev/null | string split " ")'
complete -c wg-quick -n '__fish_seen_subcommand_from up strip down save' -k -a '(__fish_complete_suffix .conf)'
