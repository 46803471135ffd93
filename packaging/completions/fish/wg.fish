# Completion of wg for fish.

# The words between the command and the one that is written.
function __wg_words
    set -l words (commandline -opc)
    echo $words[2..-1] | string split ' '
end

# Whether so many words are there, the first being one of these.
function __wg_at
    set -l words (__wg_words)
    test (count $words) -eq $argv[1]; and contains -- "$words[1]" $argv[2..-1]
end

function __wg_interfaces
    wg show interfaces 2>/dev/null | string split ' '
end

# What may come next in `wg set IFACE`: words of the interface come before the first peer.
function __wg_set
    set -l words (__wg_words)
    test (count $words) -ge 2; and test "$words[1]" = set; or return
    switch $words[-1]
        case private-key preshared-key
            __fish_complete_path (commandline -ct)
        case peer
            wg show $words[2] peers 2>/dev/null
        case persistent-keepalive fwmark
            echo off
        case listen-port endpoint allowed-ips
        case '*'
            if contains -- peer $words
                printf '%s\n' peer remove preshared-key endpoint persistent-keepalive allowed-ips
            else
                printf '%s\n' listen-port fwmark private-key peer
            end
    end
end

complete -c wg -f
complete -c wg -n __fish_use_subcommand -a show -d 'Tunnels, and how they are'
complete -c wg -n __fish_use_subcommand -a showconf -d 'A tunnel as a file'
complete -c wg -n __fish_use_subcommand -a set -d 'Change a tunnel'
complete -c wg -n __fish_use_subcommand -a setconf -d 'Make a tunnel as a file says'
complete -c wg -n __fish_use_subcommand -a addconf -d 'Add what a file says'
complete -c wg -n __fish_use_subcommand -a syncconf -d 'Make a tunnel as a file says, without a pause'
complete -c wg -n __fish_use_subcommand -a genkey -d 'Make a private key'
complete -c wg -n __fish_use_subcommand -a genpsk -d 'Make a preshared key'
complete -c wg -n __fish_use_subcommand -a pubkey -d 'The public key of a private key on stdin'
complete -c wg -n __fish_use_subcommand -a help -d 'Print how to use it'
complete -c wg -n __fish_use_subcommand -a version -d 'Print the version'
complete -c wg -n '__wg_at 1 show' -a '(__wg_interfaces) all interfaces --json'
complete -c wg -n '__wg_at 2 show' -a 'public-key private-key listen-port fwmark peers preshared-keys endpoints allowed-ips latest-handshakes transfer persistent-keepalive dump --json'
complete -c wg -n '__wg_at 1 set showconf setconf addconf syncconf' -a '(__wg_interfaces)'
complete -c wg -n '__wg_at 2 setconf addconf syncconf' -F
complete -c wg -a '(__wg_set)'
