#!/usr/bin/env bash
# The container parts on a fresh Debian 12 (a chroot) with docker from apt: the container quick start of
# deploy/README.md, then deploy/docker: the image is built and compose.yaml's own instructions are followed. All of it
# as written; the base image is made of the fresh system itself, so no registry is asked. Takes several minutes.
#
# usage: sudo deploy/try-containers.sh [BUILD-DIRECTORY]     (default: builds the preset release)
cd "$(dirname "$0")/.."
source deploy/fresh-debian.sh 4g "$@"
quietly cpack --config "$build/CPackConfig.cmake" -B "$work/cpack"

step "A fresh Debian 12"
mkdir "$root"
# runc wants the root of its world to be a mount.
mount --bind "$root" "$root"
fresh_debian
tar --one-file-system --exclude=./var/cache/apt --directory "$root" --create --file "$work/debian.tar" .
mount --rbind /sys "$root/sys"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
enter=(chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
  DEBIAN_FRONTEND=noninteractive)
# No service manager is here to start anything, and what is only recommended takes minutes.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
echo 'APT::Install-Recommends "false";' >"$root/etc/apt/apt.conf.d/91short"
quietly "${enter[@]}" apt-get install --yes sudo curl git docker-compose ca-certificates

# run DIRECTORY: each command of standard input in one shell there; the status that it shall have is that of its `exit`.
run() {
  local lines=() line expected script=
  mapfile -t lines
  for line in "${lines[@]}"; do
    expected=$(sed -nE "s/.*exit ([0-9]+)'.*/\1/p" <<<"$line")
    script+="printf '\$ %s\n' $(printf %q "$line")
$line
status=\$?; [ \$status -eq ${expected:-0} ] || { echo \"status \$status, expected ${expected:-0}\" >&2; exit 99; }
"
  done
  "${enter[@]}" bash -c "cd $1
$script"
}

step "deploy/README.md: the container quick start"
quick=$work/quick
# Its first block: the volumes of the next need an escrowd.
sed -n '/^## In a container/,/^```$/p' deploy/README.md | sed -n '/^```sh$/,/^```$/p' | sed '/^```/d' >"$quick"
cp "$work"/cpack/escrow_*.deb "$root/root"
head -n 1 "$quick" | run /root >"$work/log" 2>&1 || { cat "$work/log"; fail "its first line"; }
# As the package's unit would, but for what would change the network of this machine.
"${enter[@]}" dockerd --iptables=false --ip6tables=false --bridge=none --exec-opt native.cgroupdriver=cgroupfs \
  --default-ulimit nofile=4096:4096 --default-ulimit nproc=4096:4096 >"$work/dockerd.log" 2>&1 &
dockerd=$!
for _ in $(seq 100); do [ -S "$root/run/docker.sock" ] && break; sleep 0.1; done
[ -S "$root/run/docker.sock" ] || { tail -5 "$work/dockerd.log"; fail "dockerd does not start"; }
for image in debian:12 debian:12-slim; do
  quietly "${enter[@]}" docker import - "$image" <"$work/debian.tar"
done
tail -n +2 "$quick" | run /root || { tail -20 "$work/dockerd.log"; fail "the quick start"; }

step "deploy/docker: the image"
cp -r deploy/docker "$root/root/docker"
cp "$work"/cpack/escrow_*.deb "$root/root/docker"
quietly "${enter[@]}" docker build --network host --tag escrowd /root/docker
step "deploy/docker/compose.yaml's instructions"
sed -n 's/^#   //p' deploy/docker/compose.yaml | sed -e ':join' -e '/\\$/{N;s/\\\n *//;b join}' | run /root/docker ||
  { "${enter[@]}" docker logs docker_escrowd_1; fail "the compose file"; }
[ "$("${enter[@]}" git --git-dir /srv/escrow/repositories/data.git ls-tree --name-only main)" = built ] ||
  fail "the job has committed nothing"
quietly "${enter[@]}" bash -c 'cd /root/docker && docker-compose down'
kill "$dockerd"
wait "$dockerd" || true
echo "everything worked as written"
