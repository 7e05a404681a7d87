# bash completion for escrow(1). Commands and options are read from `escrow --help`, so they are never out of date.

_escrow_help_words() {  # --help of `escrow "$@"`: its long and short options, one a line
  escrow "$@" --help 2>/dev/null | sed -n '/^ *-/p' | grep -oE '(^|[ ,])--?[a-zA-Z][a-zA-Z-]*' | tr -d ' ,' | sort -u
}

_escrow_commands() {
  escrow --help 2>/dev/null | sed -n '/^Subcommands:/,/^[^ S]/s/^  \([a-z][a-z-]*\).*/\1/p'
}

_escrow_repository() {  # the --repo and --host options and their values as typed so far, if any
  local i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --repo | --host) printf -- '%s\n%s\n' "${COMP_WORDS[i]}" "${COMP_WORDS[i + 1]}" ;;
      --) return ;;
    esac
  done
}

_escrow_sessions() {
  local repository
  mapfile -t repository < <(_escrow_repository)
  escrow "${repository[@]}" sessions --json 2>/dev/null | grep -oE '"(id|session)": *"[0-9a-f]+"' | grep -oE '[0-9a-f]{8,}'
}

_escrow_branches() {
  local i repository=${ESCROW_REPO:-.}
  for ((i = 1; i < COMP_CWORD; i++)); do
    [ "${COMP_WORDS[i]}" != --repo ] || repository=${COMP_WORDS[i + 1]}
  done
  git -C "$repository" for-each-ref --format='%(refname:short)' refs/heads 2>/dev/null
}

_escrow() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --)  # from here on it is another command's line
        if declare -F _command_offset >/dev/null; then _command_offset $((i + 1)); else compopt -o default; fi
        return ;;
      --repo | --host) ((i++)) ;;
      -*) ;;
      *) [ -n "$command" ] || command=${COMP_WORDS[i]} ;;
    esac
  done
  case $previous in
    --repo | --mountpoint) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
    --result | --policy | --trace) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    --branch) mapfile -t COMPREPLY < <(compgen -W "$(_escrow_branches)" -- "$current"); return ;;
    --session) mapfile -t COMPREPLY < <(compgen -W "$(_escrow_sessions)" -- "$current"); return ;;
  esac
  if [ -z "$command" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_escrow_commands) $(_escrow_help_words)" -- "$current")
  elif [[ $current == -* ]]; then
    [ "$command" != policy ] || command='policy test'
    [ "$command" != savepoint ] || command='savepoint diff'
    [ "$command" != mounts ] || command='mounts add'
    [ "$command" != cache ] || command='cache list'
    [ "$command" != token ] || command='token create'
    # shellcheck disable=SC2086  # two words
    mapfile -t COMPREPLY < <(compgen -W "$(_escrow_help_words $command)" -- "$current")
  else
    case $command in
      status | diff | commit | rollback | approve | reject | discard | update | resume | export | resolve | fork | adopt)
        mapfile -t COMPREPLY < <(compgen -W "$(_escrow_sessions)" -- "$current") ;;
      savepoint) mapfile -t COMPREPLY < <(compgen -W "create list diff restore drop $(_escrow_sessions)" -- "$current") ;;
      mounts) mapfile -t COMPREPLY < <(compgen -W "list add replace remove $(_escrow_sessions)" -- "$current") ;;
      cache) mapfile -t COMPREPLY < <(compgen -W 'list drop' -- "$current") ;;
      policy) mapfile -t COMPREPLY < <(compgen -W 'test explain' -- "$current"; compgen -f -- "$current") ;;
      token) mapfile -t COMPREPLY < <(compgen -W 'create list revoke' -- "$current") ;;
      import | mount | unmount) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    esac
  fi
}

complete -o filenames -F _escrow escrow
