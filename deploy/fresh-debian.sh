# shellcheck shell=bash
# What deploy/try-package.sh and deploy/try-containers.sh begin with; they source it with SIZE, how much they may keep
# in memory, and their own arguments. As root, in a mount and process namespace of its own: all that is mounted or
# started there ends with the script. Gives $build, where the programs are, and $work and $root, in memory.
#
# usage: source deploy/fresh-debian.sh SIZE [BUILD-DIRECTORY]     (default: builds the preset release)
set -euo pipefail
script=deploy/${0##*/}
step() { printf '\n== %s\n' "$*"; }
fail() {
  echo "$script: $*" >&2
  exit 1
}
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "$*"; }; }

# fresh_debian: a minimal Debian 12 below $root, from the mirror that this machine's apt uses, with a /proc and a /dev.
fresh_debian() {
  local mirror entry key file device name major minor
  command -v debootstrap >/dev/null || fail "debootstrap is not installed; deploy/setup.sh installs it"
  IFS='|' read -r mirror entry < <(apt-get indextargets --format '$(REPO_URI)|$(SOURCESENTRY)' 'Created-By: Packages' \
    'Release: bookworm' 'Component: main' 2>/dev/null) || fail "this machine's apt has no source of bookworm/main"
  key=$(sed -nE 's/^Signed-By: *(\/.*)$/\1/pI; s/^deb .*\[.*signed-by=([^] ]+).*$/\1/p' "${entry%:*}" | head -1)
  quietly debootstrap --variant=minbase ${key:+--keyring="$key"} bookworm "$root" "$mirror"
  # How the network is reached is this machine's affair.
  apt-config dump | grep -E '^Acquire::(http|https|Check-)' >"$root/etc/apt/apt.conf.d/90machine" || true
  for file in /etc/resolv.conf /etc/hosts; do [ ! -e "$file" ] || cat "$file" >"$root$file"; done
  mount -t proc proc "$root/proc"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  for device in null:1:3 zero:1:5 random:1:8 urandom:1:9 tty:5:0 fuse:10:229; do
    IFS=: read -r name major minor <<<"$device"
    mknod --mode=666 "$root/dev/$name" c "$major" "$minor"
  done
  ln -s ../proc/self/mounts "$root/etc/mtab"
  mkdir "$root/dev/shm" "$root/dev/pts"
  quietly chroot "$root" apt-get update --quiet=2
}

[ "$(id -u)" -eq 0 ] || fail "only root can make a chroot"
size=$1
shift
[ -n "${ESCROW_TRY:-}" ] || ESCROW_TRY=inside exec unshare --mount --pid --fork --kill-child --mount-proc "$script" "$@"

build=${1:-build/release}
if [ $# -eq 0 ]; then
  step "Building (preset release)"
  deploy/setup.sh
  cmake --preset release -Wno-dev -DESCROW_TESTS=OFF >/dev/null
  cmake --build --preset release --parallel "$(nproc)" --target installed
fi
# In memory: unpacking a system waits for the disk most of its time. It goes with the mount namespace.
work=$(mktemp -d "${TMPDIR:-/tmp}/escrow-try.XXXXXX")
root=$work/root
trap 'umount -l "$work" && rmdir "$work"' EXIT
mount -t tmpfs -o "size=$size,mode=755" tmpfs "$work"
