#!/usr/bin/env bash
# Builds the Debian package twice and tries it on a fresh Debian 12 whose systemd runs (systemd-nspawn): installs it,
# uses it as root and as an ordinary user, has systemd stop, start and restart its units and kills the service, upgrades
# it under mounted sessions and an edited configuration, removes and purges it, and compares all names, modes and owners
# with what was there before. Takes a few minutes, most of them for the fresh system.
#
# usage: sudo deploy/try-package.sh [BUILD-DIRECTORY]     (default: builds the preset release)
cd "$(dirname "$0")/.."
source deploy/fresh-debian.sh 3g "$@"

step "Making the package, and a second version of it"
for release in 1 2; do
  quietly cpack --config "$build/CPackConfig.cmake" -B "$work/cpack" -D CPACK_DEBIAN_PACKAGE_RELEASE=$release
done
first=$(echo "$work"/cpack/escrow_*-1_*.deb)
second=$(echo "$work"/cpack/escrow_*-2_*.deb)
dpkg-deb --field "$first" Package Version Architecture Depends Installed-Size

step "A fresh Debian 12, started by its systemd"
command -v systemd-nspawn >/dev/null || fail "systemd-nspawn is not installed; deploy/setup.sh installs it"
fresh_debian
cp "$first" "$root/first.deb"
cp "$second" "$root/second.deb"
# What it needs is there before: what is compared later is its own.
quietly chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get satisfy --yes --no-install-recommends \
  "$(dpkg-deb --field "$first" Depends), git, curl, systemd-sysv"
# It brings a /proc and a /dev of its own, and notes its containers in a directory of this machine's.
umount "$root/proc" "$root/dev"
mknod --mode=666 "$work/fuse" c 10 229
mkdir -p /run/systemd
mount -t tmpfs tmpfs /run/systemd
systemd-nspawn --quiet --boot --register=no --keep-unit --console=pipe --directory "$root" \
  --bind "$work/fuse:/dev/fuse" >"$work/console" 2>&1 </dev/null &
container=$!
# inside COMMAND...: there, as process 1 sees the machine.
inside() {
  nsenter --target "$(pgrep --parent "$container")" --all env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    DEBIAN_FRONTEND=noninteractive "$@"
}
for _ in $(seq 100); do inside systemctl is-system-running >"$work/state" 2>&1 && break; sleep 0.2; done
[ "$(cat "$work/state")" = running ] || { cat "$work/console" "$work/state"; fail "its systemd does not come up"; }

# Every name with mode, owner and target, but for the notes of dpkg, apt and systemd.
files() {
  (cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./var/log -o -path ./var/cache \
    -o -path ./var/lib/apt -o -path ./var/lib/systemd -o -path './var/lib/dpkg/*' -o -path './etc/*-' \) -prune \
    -o -printf '%P %M %u %g %l\n' | sort)
}
files >"$work/before"
# is STATE UNIT...
is() {
  local state=$1
  shift
  for unit in "$@"; do
    [ "$(inside systemctl is-active "$unit")" = "$state" ] ||
      { inside journalctl --no-pager --unit "$unit" | tail -20; fail "$unit is not $state"; }
  done
}
mounted() { inside grep -q " $1 fuse.escrow " /proc/mounts; }

step "Installing"
quietly inside apt-get install --yes --no-install-recommends /first.deb
inside escrow --version
inside escrowd --config /etc/escrow/escrowd.json --check-config
inside getent group escrow
is active escrowd.socket escrowd.service
for unit in sockets.target.wants/escrowd.socket multi-user.target.wants/escrowd.service; do
  [ -L "$root/etc/systemd/system/$unit" ] || fail "$unit is not switched on"
done
quietly inside systemd-analyze verify --man=no escrowd.service escrowd.socket escrow-mount@mnt-view.service

step "Using it, as root, through mount(8), as an ordinary user, and through escrowd"
repository=/var/lib/escrow/repositories/data.git
inside escrow --repo $repository init
inside escrow --repo $repository run -- sh -c 'echo one > one'
inside escrow --repo $repository run -- sh -c 'rm one; exit 3' && fail "status 3 was expected"
[ "$(inside git --git-dir $repository show main:one)" = one ] || fail "what the run wrote was not committed"
inside mkdir /mnt/view
inside mount -t fuse.escrow $repository /mnt/view
inside sh -c 'echo two > /mnt/view/two'
mounted=$(inside escrow --repo $repository sessions | awk '/mnt/ {print $1}')
inside useradd --create-home somebody
inside su somebody -c 'escrow --repo ~/own.git init && escrow --repo ~/own.git run -- sh -c "id -un > who"'
[ "$(inside su somebody -c 'git --git-dir ~/own.git show main:who')" = somebody ] || fail "somebody's run is not there"

socket=/run/escrowd/escrowd.sock
job=/var/lib/escrow/sessions/job
[ "$(inside stat --format '%a %G' $socket)" = "660 escrow" ] || fail "the socket is not the group's"
# ask METHOD ROUTE [JSON]
ask() {
  inside curl --silent --show-error --fail-with-body --unix-socket $socket -X "$1" "http://escrowd/v1/$2" \
    ${3:+-H 'Content-Type: application/json' -d "$3"}
}
ask POST repositories "{\"name\": \"data\", \"path\": \"$repository\"}" >/dev/null
inside su somebody -c "curl --silent --unix-socket $socket http://escrowd/v1/sessions" && fail "anybody may ask"
inside usermod --append --groups escrow somebody
inside su somebody -c "curl --silent --fail --unix-socket $socket http://escrowd/v1/sessions" >/dev/null ||
  fail "a member of the group may not ask"
ask POST sessions "{\"repository\": \"data\", \"mountpoint\": \"$job\"}" >"$work/session"
session=$(sed 's/.*"session":"\([^"]*\)".*/\1/' "$work/session")
inside sh -c "echo three > $job/three"  # it is seen outside of the service

step "systemd stops, starts, kills and restarts it"
inside systemctl stop escrowd.service 2>/dev/null
is active escrowd.socket
mounted $job || fail "a session ended with the service"
[ "$(inside cat $job/three)" = three ] || fail "the session does not go on while the service is stopped"
ask GET health >/dev/null  # by which the socket starts it
is active escrowd.service
[ "$(inside cat $job/three)" = three ] || fail "the session is not what it was before the stop"
before=$(inside systemctl show --property MainPID --value escrowd.service)
inside systemctl kill --kill-whom main --signal KILL escrowd.service
for _ in $(seq 50); do inside cat $job/three >"$work/three" 2>&1 && break; sleep 0.2; done
[ "$(cat "$work/three")" = three ] || fail "the session is not what it was before the kill"
[ "$(inside systemctl show --property MainPID --value escrowd.service)" != "$before" ] || fail "it was not killed"
# What is under way when it is to stop is answered, nobody is refused meanwhile, and a run goes on.
ask POST runs '{"repository": "data", "confined": false, "network": "host",
  "command": ["sh", "-c", "sleep 3; echo run > run"]}' >"$work/run" ||
  { cat "$work/run"; fail "no run could be started"; }
run=$(sed 's/.*"run":"\([^"]*\)".*/\1/' "$work/run")
ask POST sessions "{\"repository\": \"data\", \"mountpoint\": \"${job}2\"}" >"$work/large"
inside sh -c "cd ${job}2 && for n in \$(seq 3000); do echo \$n > large-\$n; done"
large=$(sed 's/.*"session":"\([^"]*\)".*/\1/' "$work/large")
ask POST "sessions/$large/finish" '{"exit_code": 0}' >"$work/finished" &
finishing=$!
(for _ in $(seq 40); do ask GET health >/dev/null || exit 1; done) &
asking=$!
for _ in 1 2 3; do
  inside systemctl reset-failed escrowd.service  # it has been started more often than systemd expects
  inside systemctl restart escrowd.service
done
wait "$finishing" || { cat "$work/finished"; fail "a commit under way was not answered"; }
wait "$asking" || fail "somebody was refused while the service restarted"
grep -q '"state":"committed"' "$work/finished" || fail "a commit under way was not made"
ask GET "runs/$run/wait" >/dev/null
[ "$(inside git --git-dir $repository show main:run)" = run ] || fail "a run did not go on over restarts"
printf 'ESCROW_REPO=%s\nESCROW_MOUNT_OPTIONS=--session %s\n' $repository "$session" >"$root/etc/escrow/mnt-unit.conf"
inside mkdir /mnt/unit
ask POST "sessions/$session/unmount" >/dev/null
inside systemctl start escrow-mount@mnt-unit
[ "$(inside cat /mnt/unit/three)" = three ] || fail "escrow-mount@ does not show the session"
inside systemctl stop escrow-mount@mnt-unit
mounted /mnt/unit && fail "escrow-mount@ has left its mount"
is inactive escrow-mount@mnt-unit
inside systemctl reset-failed
rm "$root/etc/escrow/mnt-unit.conf"
inside rmdir /mnt/unit
ask POST "sessions/$session/mount" "{\"mountpoint\": \"$job\"}" >/dev/null

step "Upgrading, with a session mounted, one in the service, and a configuration that was edited"
sed -i 's/^{$/{\n  "verbose": true,/' "$root/etc/escrow/escrowd.json"
before=$(inside systemctl show --property MainPID --value escrowd.service)
quietly inside apt-get install --yes --no-install-recommends /second.deb
inside dpkg-query --show escrow
grep -q verbose "$root/etc/escrow/escrowd.json" || fail "the edited configuration is gone"
is active escrowd.socket escrowd.service
[ "$(inside systemctl show --property MainPID --value escrowd.service)" != "$before" ] || fail "it was not restarted"
[ "$(inside cat $job/three)" = three ] || fail "the service's session is not what it was"
ask POST "sessions/$session/finish" '{"exit_code": 0}' >/dev/null
inside escrow --repo $repository commit "$mounted" -m "mounted before the upgrade"
[ "$(inside git --git-dir $repository show main:two main:three)" = "two
three" ] || fail "what was written before the upgrade is not there"
inside escrow --repo $repository verify

# As long as it has members, a purge leaves the group.
quietly inside gpasswd --delete somebody escrow

step "Removing: configuration and repositories stay"
quietly inside apt-get remove --yes escrow
[ ! -e "$root/usr/bin/escrow" ] && [ -e "$root/etc/escrow/escrowd.json" ] && [ -d "$root$repository" ] ||
  fail "a removal takes the programs, and only them"
is inactive escrowd.socket escrowd.service
! inside grep fuse.escrow /proc/mounts || fail "a mount is left"

step "Installing again and purging: only repositories stay"
quietly inside apt-get install --yes --no-install-recommends /second.deb
grep -q verbose "$root/etc/escrow/escrowd.json" || fail "the edited configuration is gone"
is active escrowd.socket escrowd.service
quietly inside apt-get purge --yes escrow
grep '^escrow:' "$work/log" || fail "the purge does not say what it leaves"
! inside getent group escrow || fail "the group is left"
! inside test -e /run/escrowd || fail "the socket's directory is left"
[ -z "$(inside systemctl --failed --no-legend)" ] || { inside systemctl --failed; fail "a unit has failed"; }
inside git --git-dir $repository fsck --strict
rm -r "${root:?}$repository"
rmdir "$root/var/lib/escrow/repositories" "$root/var/lib/escrow" "$root/mnt/view"
quietly inside userdel --remove somebody
quietly inside systemctl poweroff
wait "$container" || fail "its systemd does not end"
cgroup=$(sed -n 's/^0:://p' /proc/self/cgroup)
for place in "/sys/fs/cgroup$cgroup" "/sys/fs/cgroup/unified$cgroup"; do
  find "$place/payload" "$place/supervisor" -depth -type d -exec rmdir {} + 2>/dev/null || true
done
files >"$work/after"
diff "$work/before" "$work/after" || fail "the purge left what is above (> is left, < is missing)"
echo "nothing is left"
