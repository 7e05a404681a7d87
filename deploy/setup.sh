#!/usr/bin/env bash
# Installs with apt what a bare Debian 12 (or later) machine needs to build, run and test Escrow.
# Idempotent: when every package is there already, apt is not called and no right is needed. To build also means a
# libfuse that can use io_uring (deploy/libfuse.sh).
#
# usage: deploy/setup.sh [build] [run] [test]     (default: all three)
set -euo pipefail
here=$(dirname "$0")

build=(g++ cmake ninja-build pkg-config libfuse3-dev libgit2-dev libsqlite3-dev nlohmann-json3-dev libcli11-dev
  libspdlog-dev libboost-dev libarchive-dev prometheus-cpp-dev libssl-dev zlib1g-dev libseccomp-dev libsystemd-dev
  libcurl4-openssl-dev libpugixml-dev libdeflate-dev
  # deploy/libfuse.sh
  dpkg-dev meson liburing-dev libnuma-dev)
run=(fuse3 git bubblewrap)
# The tools that run inside mounts, the file systems compared with, container runtimes, a fresh Debian for the package.
test=(
  # escrow-csi, which is built where these are
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler
  libgtest-dev librapidcheck-dev ccache lld clang libclang-rt-dev sqlite3 rsync attr python3 python3-yaml
  python3-jsonschema python3-setuptools python3-wheel mypy python3-grpcio python3-protobuf
  fuse-overlayfs e2fsprogs xfsprogs btrfs-progs man-db procps util-linux tar
  libarchive-tools strace curl openssl git-lfs
  docker.io docker-compose podman runc busybox-static debootstrap systemd-container)

packages=()
wants_build=false
[ $# -gt 0 ] || set -- build run test
for part in "$@"; do
  case $part in
    build) packages+=("${build[@]}") wants_build=true ;;
    run) packages+=("${run[@]}") ;;
    test) packages+=("${test[@]}") ;;
    *) echo "deploy/setup.sh: '$part' is not build, run or test" >&2; exit 2 ;;
  esac
done
libfuse() { ! $wants_build || "$here/libfuse.sh"; }

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2>/dev/null || true)
  [[ $state == ii* ]] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then libfuse; exit; fi

if ! command -v apt-get >/dev/null; then
  echo "deploy/setup.sh: this machine has no apt-get; install by other means what Debian calls: ${missing[*]}" >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "deploy/setup.sh: only root can install packages; run 'sudo deploy/setup.sh' once to add: ${missing[*]}" >&2
  exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
echo "Installing ${missing[*]}"
if ! { apt-get update --quiet=2 && apt-get install --quiet=2 --yes --no-install-recommends "${missing[@]}"; } \
    >"$log" 2>&1; then
  cat "$log" >&2
  echo "deploy/setup.sh: apt could not install the packages; its own words are above" >&2
  exit 1
fi
libfuse
