#!/usr/bin/env bash
# Builds the Debian package twice and tries it in a chroot with a fresh Debian 12: installs it, uses it as root and as
# an ordinary user, upgrades it under mounted sessions and an edited configuration, removes and purges it, and compares
# all names, modes and owners with what was there before. Takes a few minutes, most of them for the fresh system.
#
# usage: sudo deploy/try-package.sh [BUILD-DIRECTORY]     (default: builds the preset release)
set -euo pipefail
cd "$(dirname "$0")/.."
step() { printf '\n== %s\n' "$*"; }
fail() {
  echo "deploy/try-package.sh: $*" >&2
  exit 1
}
[ "$(id -u)" -eq 0 ] || fail "only root can make a chroot"
# Everything that is mounted or started here ends with this process.
[ -n "${ESCROW_TRY_PACKAGE:-}" ] || ESCROW_TRY_PACKAGE=inside exec unshare --mount --pid --fork --kill-child \
  --mount-proc "$0" "$@"

build=${1:-build/release}
if [ $# -eq 0 ]; then
  step "Building (preset release)"
  deploy/setup.sh
  cmake --preset release -Wno-dev -DESCROW_TESTS=OFF >/dev/null
  cmake --build --preset release --parallel "$(nproc)" --target escrow escrowd
fi
# In memory: unpacking a system waits for the disk most of its time. It goes with the mount namespace.
work=$(mktemp -d "${TMPDIR:-/tmp}/escrow-package.XXXXXX")
root=$work/root
trap 'umount -l "$work" && rmdir "$work"' EXIT
mount -t tmpfs -o size=2g,mode=755 tmpfs "$work"

step "Making the package, and a second version of it"
for release in 1 2; do
  cpack --config "$build/CPackConfig.cmake" -B "$work/cpack" -D CPACK_DEBIAN_PACKAGE_RELEASE=$release \
    >"$work/cpack.log" 2>&1 || { cat "$work/cpack.log"; fail "cpack failed"; }
done
first=$(echo "$work"/cpack/escrow_*-1_*.deb)
second=$(echo "$work"/cpack/escrow_*-2_*.deb)
dpkg-deb --field "$first" Package Version Architecture Depends Installed-Size

step "A fresh Debian 12"
deploy/fresh-debian.sh "$root"
enter=(chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive)
inside() { "${enter[@]}" "$@"; }
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "$*"; }; }
cp "$first" "$root/first.deb"
cp "$second" "$root/second.deb"
# What it needs is there before: what is compared later is its own.
quietly inside apt-get satisfy --yes --no-install-recommends "$(dpkg-deb --field "$first" Depends), git"

# Every name with mode, owner and target, but for the notes of dpkg and apt.
files() {
  (cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./var/log -o -path ./var/cache \
    -o -path ./var/lib/apt -o -path './var/lib/dpkg/*' -o -path './etc/*-' \) -prune -o -printf '%P %M %u %g %l\n' |
    sort)
}
files >"$work/before"

step "Installing"
quietly inside apt-get install --yes --no-install-recommends /first.deb
inside escrow --version
inside escrowd --config /etc/escrow/escrowd.json --check-config
inside getent group escrow
for unit in sockets.target.wants/escrowd.socket multi-user.target.wants/escrowd.service; do
  [ -L "$root/etc/systemd/system/$unit" ] || fail "$unit is not switched on"
done

step "Using it, as root, through mount(8), as an ordinary user, and through escrowd"
repository=/var/lib/escrow/repositories/data.git
inside escrow --repo $repository init
inside escrow --repo $repository run -- sh -c 'echo one > one'
inside escrow --repo $repository run -- sh -c 'rm one; exit 3' && fail "status 3 was expected"
[ "$(inside git --git-dir $repository show main:one)" = one ] || fail "what the run wrote was not committed"
inside mkdir /mnt/view
inside mount -t fuse.escrow $repository /mnt/view
echo two >"$root/mnt/view/two"
mounted=$(inside escrow --repo $repository sessions | awk '/mnt/ {print $1}')
inside useradd --create-home somebody
inside su somebody -c 'escrow --repo ~/own.git init && escrow --repo ~/own.git run -- sh -c "id -un > who"'
[ "$(inside su somebody -c 'git --git-dir ~/own.git show main:who')" = somebody ] || fail "somebody's run is not there"

mkdir "$root/run/escrowd"
serve() {
  "${enter[@]}" escrowd --config /etc/escrow/escrowd.json &
  server=$!
  for _ in $(seq 100); do ask GET health >/dev/null 2>&1 && return 0; sleep 0.1; done
  fail "escrowd does not answer"
}
# ask METHOD ROUTE [JSON]
ask() {
  curl --silent --show-error --fail-with-body --unix-socket "$root/run/escrowd/escrowd.sock" -X "$1" \
    "http://escrowd/v1/$2" ${3:+-H 'Content-Type: application/json' -d "$3"}
}
serve
[ "$(inside stat --format '%a %G' /run/escrowd/escrowd.sock)" = "660 escrow" ] || fail "the socket is not the group's"
ask POST repositories "{\"name\": \"data\", \"path\": \"$repository\"}" >/dev/null
ask POST sessions '{"repository": "data", "mountpoint": "/var/lib/escrow/sessions/job"}' >"$work/session"
session=$(sed 's/.*"session":"\([^"]*\)".*/\1/' "$work/session")
echo three >"$root/var/lib/escrow/sessions/job/three"

step "Upgrading, with a session mounted, one in the service, and a configuration that was edited"
sed -i 's/^{$/{\n  "verbose": true,/' "$root/etc/escrow/escrowd.json"
quietly inside apt-get install --yes --no-install-recommends /second.deb
inside dpkg-query --show escrow
grep -q verbose "$root/etc/escrow/escrowd.json" || fail "the edited configuration is gone"
# What a service manager does then.
kill "$server"
wait "$server"
serve
[ "$(cat "$root/var/lib/escrow/sessions/job/three")" = three ] || fail "the service's session is not what it was"
ask POST "sessions/$session/finish" '{"exit_code": 0}' >/dev/null
inside escrow --repo $repository commit "$mounted" -m "mounted before the upgrade"
[ "$(inside git --git-dir $repository show main:two main:three)" = "two
three" ] || fail "what was written before the upgrade is not there"
inside escrow --repo $repository verify
kill "$server"
wait "$server"
! grep "$root" /proc/mounts | grep fuse || fail "a mount is left"

step "Removing: configuration and repositories stay"
quietly inside apt-get remove --yes escrow
[ ! -e "$root/usr/bin/escrow" ] && [ -e "$root/etc/escrow/escrowd.json" ] && [ -d "$root$repository" ] ||
  fail "a removal takes the programs, and only them"

step "Installing again and purging: only repositories stay"
quietly inside apt-get install --yes --no-install-recommends /second.deb
grep -q verbose "$root/etc/escrow/escrowd.json" || fail "the edited configuration is gone"
quietly inside apt-get purge --yes escrow
grep '^escrow:' "$work/log" || fail "the purge does not say what it leaves"
! inside getent group escrow || fail "the group is left"
inside git --git-dir $repository fsck --strict
rm -r "${root:?}$repository"
rmdir "$root/var/lib/escrow/repositories" "$root/var/lib/escrow" "$root/mnt/view"
quietly inside userdel --remove somebody
files >"$work/after"
diff "$work/before" "$work/after" || fail "the purge left what is above (> is left, < is missing)"
echo "nothing is left"
