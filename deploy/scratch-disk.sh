#!/usr/bin/env bash
# Runs a command with $TMPDIR on a disk of its own: an ext4 with a journal, as most users have, in a file in memory. Its
# syncs take no time, and it is gone with the command. An ext4 without a journal, which some machines have as /, looks
# at each inode that was removed in the last minutes before it gives one out (ext4's recently_deleted()).
#
# Without root, loop devices or 8 GiB of free memory it says so, and the command has the $TMPDIR that is there.
#
# usage: deploy/scratch-disk.sh COMMAND [ARGUMENT...]
set -uo pipefail
[ $# -gt 0 ] || { echo "usage: deploy/scratch-disk.sh COMMAND [ARGUMENT...]" >&2; exit 2; }

# Short: the path of a socket in it has at most 107 bytes.
disk=$(mktemp -d "${TMPDIR:-/tmp}/esc.XXXX") || exit 1
# Lazily, with what is mounted below: a test that was killed may have left something.
remove() {
  while umount --lazy --recursive --quiet "$disk" 2>/dev/null; do :; done
  rmdir "$disk"
}
trap remove EXIT
trap 'exit 130' INT TERM

free_kib=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
size_kib=$((free_kib / 2))
if [ "$size_kib" -ge $((4 << 20)) ] &&
    mount -t tmpfs -o "size=${size_kib}k" escrow-tests "$disk" &&
    truncate --size "${size_kib}K" "$disk/image" &&
    mkfs.ext4 -q -E nodiscard "$disk/image" &&
    mount -o loop,discard,noinit_itable "$disk/image" "$disk"; then
  chmod 1777 "$disk"
  export TMPDIR=$disk
else
  echo "deploy/scratch-disk.sh: no disk in memory could be made; the command works in ${TMPDIR:-/tmp}" >&2
fi
"$@"
