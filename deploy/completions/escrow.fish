# fish completion for escrow(1). Commands and options are read from `escrow --help`, so they are never out of date.

function __escrow_commands
    escrow --help 2>/dev/null | sed -n '/^Subcommands:/,/^[^ S]/s/^  \([a-z][a-z-]*\) *\(.*\)/\1\t\2/p'
end

function __escrow_options
    set -l words (commandline -opc)
    set -l names (__escrow_commands | string split -f1 \t)
    for word in $words
        if contains -- $word $names
            escrow $word --help 2>/dev/null | sed -n '/^ *-/p' | grep -oE -- '--[a-z][a-z-]*'
            return
        end
    end
end

function __escrow_sessions
    escrow sessions --json 2>/dev/null | grep -oE '"(id|session)": *"[0-9a-f]+"' | grep -oE '[0-9a-f]{8,}'
end

complete -c escrow -n __fish_use_subcommand -f -a '(__escrow_commands)'
complete -c escrow -l repo -r -d 'The repository: bare, a work tree or a .git directory'
complete -c escrow -l host -r -f -d 'An escrowd to ask: unix:///PATH or https://NAME[:PORT]'
complete -c escrow -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -f -a '(__escrow_options)'
complete -c escrow -n '__fish_seen_subcommand_from status diff commit rollback approve reject discard update resume export resolve fork adopt' -f -a '(__escrow_sessions)'
complete -c escrow -n '__fish_seen_subcommand_from cache' -a 'list drop'
complete -c escrow -n '__fish_seen_subcommand_from policy' -a 'test explain'
complete -c escrow -n '__fish_seen_subcommand_from savepoint' -f -a 'create list diff restore drop (__escrow_sessions)'
complete -c escrow -n '__fish_seen_subcommand_from mounts' -f -a 'list add replace remove (__escrow_sessions)'
complete -c escrow -n '__fish_seen_subcommand_from token' -f -a 'create list revoke'
