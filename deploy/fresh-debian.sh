#!/usr/bin/env bash
# A fresh, minimal Debian 12 below ROOT, from the mirror that this machine's apt uses, with a /proc and a /dev: for
# deploy/try-package.sh and deploy/try-containers.sh, which call it in a mount namespace of their own. Needs root.
#
# usage: deploy/fresh-debian.sh ROOT
set -euo pipefail
root=$1
fail() {
  echo "deploy/fresh-debian.sh: $*" >&2
  exit 1
}
command -v debootstrap >/dev/null || fail "debootstrap is not installed; deploy/setup.sh installs it"
IFS='|' read -r mirror entry < <(apt-get indextargets --format '$(REPO_URI)|$(SOURCESENTRY)' 'Created-By: Packages' \
  'Release: bookworm' 'Component: main' 2>/dev/null) || fail "this machine's apt has no source of bookworm/main"
key=$(sed -nE 's/^Signed-By: *(\/.*)$/\1/pI; s/^deb .*\[.*signed-by=([^] ]+).*$/\1/p' "${entry%:*}" | head -1)

log=$(mktemp)
trap 'rm -f "$log"' EXIT
debootstrap --variant=minbase ${key:+--keyring="$key"} bookworm "$root" "$mirror" >"$log" 2>&1 ||
  { tail -20 "$log" >&2; fail "debootstrap failed; its own words are above"; }
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
chroot "$root" apt-get update --quiet=2 >"$log" 2>&1 || { cat "$log" >&2; fail "its apt could not be set up"; }
