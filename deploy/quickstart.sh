#!/usr/bin/env bash
# Installs what is needed, builds Escrow, and shows its main job on a real tree: a repository is created, a directory
# imported, one command succeeds and is committed, one fails and leaves nothing, and the result is cloned by plain git.
#
# usage: deploy/quickstart.sh [DIRECTORY-TO-IMPORT]     (default: the kernel's headers, else this project's sources)
set -euo pipefail
cd "$(dirname "$0")/.."
step() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
show() { printf '\033[36m$ %s\033[0m\n' "$*"; "$@"; }

tree=${1:-/usr/include/linux}
[ -d "$tree" ] || tree=$PWD/session

step "Installing what is needed and building (preset release)"
ESCROW_LIBFUSE=system deploy/setup.sh build run
build() { cmake --preset release -Wno-dev -DESCROW_TESTS=OFF >/dev/null &&
  cmake --build --preset release --parallel "$(nproc)" --target "$@"; }
# Libraries that do not use libfuse are compiled while the newer libfuse is fetched and built.
deploy/libfuse.sh &
build escrow_storage_repository escrow_api
wait $!
build escrow
PATH=$PWD/build/release/daemon:$PATH

demo=$(mktemp -d "${TMPDIR:-/tmp}/escrow-demo.XXXXXX")
trap 'rm -rf "$demo"' EXIT
export ESCROW_REPO=$demo/data.git
unset GIT_DIR GIT_WORK_TREE

step "A repository, with $tree in it"
show escrow init
show escrow import "$tree" --message "first import"

step "A command that succeeds is committed, whole"
show escrow run --message "count lines" -- sh -c '
  echo "working in $PWD, $(find . -type f | wc -l) files here"
  find . -name "*.h" -exec wc -l {} + | sort -n | tail -3 > longest.txt
  rm -rf "$(ls -d */ | head -1)"
  cat longest.txt'

step "A command that fails leaves nothing behind"
status=0
show escrow run -- sh -c 'rm -rf ./*; echo "everything is gone here: $(ls | wc -l) entries"; exit 3' || status=$?
echo "escrow run ended with status $status; 3 was expected"
[ "$status" -eq 3 ]

step "What happened"
show escrow sessions
show escrow log

step "The result is an ordinary git repository"
show git clone --quiet "$ESCROW_REPO" "$demo/clone"
show git -C "$demo/clone" log --stat --stat-count=4 --max-count=1
show git -C "$ESCROW_REPO" fsck --strict
show escrow verify
