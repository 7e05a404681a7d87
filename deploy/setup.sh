#!/usr/bin/env bash
# Installs with apt what a bare Debian 12 (or later) machine needs to build, run and test Escrow.
# Idempotent: when every package is there already, apt is not called and no right is needed. deploy/libfuse.sh then sees
# to a libfuse that can use io_uring.
set -euo pipefail
here=$(dirname "$0")

packages=(
  # build
  g++ cmake ninja-build pkg-config ccache libfuse3-dev libgit2-dev libsqlite3-dev nlohmann-json3-dev libcli11-dev
  libspdlog-dev libboost-dev libarchive-dev prometheus-cpp-dev libssl-dev zlib1g-dev libgtest-dev librapidcheck-dev
  # build libfuse (deploy/libfuse.sh)
  dpkg-dev meson liburing-dev libnuma-dev
  # run
  fuse3 git bubblewrap
  # test and measure: the tools that run inside mounts, and the file systems compared with
  sqlite3 rsync attr python3 fuse-overlayfs man-db procps util-linux tar libarchive-tools strace curl python3-yaml
  python3-jsonschema openssl clang libclang-rt-dev docker.io docker-compose podman runc busybox-static
  # try the package (deploy/try-package.sh)
  debootstrap systemd-container
)

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2>/dev/null || true)
  [[ $state == ii* ]] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exec "$here/libfuse.sh"

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
"$here/libfuse.sh"
