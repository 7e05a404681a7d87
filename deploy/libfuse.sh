#!/usr/bin/env bash
# Gives the build a libfuse that can use FUSE over io_uring (3.18 or later) where the installed one is older: builds the
# newer source package of the distribution's own archive into build/libfuse/ of this checkout, where CMake finds it.
# Nothing of the system changes, and no right is needed: apt works on private lists and a private cache, with the
# machine's own mirror, key and proxy. Idempotent, and at once when there is nothing to do.
#
# It always succeeds. Where it cannot be done (no network, another distribution) it says why in one line, and the
# installed libfuse is used. ESCROW_LIBFUSE=system asks for that.
set -euo pipefail
cd "$(dirname "$0")/.."
result=$PWD/build/libfuse
wanted=3.18
archive_suite=sid

[ "${ESCROW_LIBFUSE:-auto}" = system ] && exit 0
[ -e "$result/lib/pkgconfig/fuse3.pc" ] && exit 0
pkg-config --atleast-version="$wanted" fuse3 && exit 0

give_up() {
  echo "deploy/libfuse.sh: no libfuse >= $wanted, so no FUSE over io_uring: $*; the installed libfuse is used"
  exit 0
}

for program in apt-get dpkg-source meson ninja cc pkg-config; do
  command -v "$program" >/dev/null || give_up "the program $program is not installed"
done
pkg-config --exists liburing numa || give_up "the packages liburing-dev and libnuma-dev are not installed"
distribution=$(. /etc/os-release && echo "${ID:-}") codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ "$distribution" = debian ] || give_up "newer source packages are looked for in Debian's archive only"

# The mirror and key of this machine, as apt has them from its sources.
IFS='|' read -r mirror entry < <(apt-get indextargets --format '$(REPO_URI)|$(SOURCESENTRY)' 'Created-By: Packages' \
  "Release: $codename" 'Component: main' 2>/dev/null) || give_up "apt has no source of $codename/main"
key=$(sed -nE 's/^Signed-By: *(\/.*)$/\1/pI; s/^deb .*\[.*signed-by=([^] ]+).*$/\1/p' "${entry%:*}" 2>/dev/null |
  head -1) || key=""

mkdir -p build
work=$(mktemp -d "$PWD/build/libfuse.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/source"
echo "deb-src ${key:+[signed-by=$key]} $mirror $archive_suite main" >"$work/sources.list"
# Of the machine's configuration only how it reaches the network: no hooks, no other directories.
{
  apt-config dump | grep '^Acquire::' || true
  cat <<CONFIGURATION
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
APT::Sandbox::User "$(id -un)";
Dir::Etc::Main "/dev/null";
Dir::Etc::Parts "/dev/null";
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$work/lists";
Dir::Cache "$work/cache";
CONFIGURATION
} >"$work/apt.conf"
export APT_CONFIG=$work/apt.conf

quietly() { "$@" >>"$work/log" 2>&1; }
why() { grep -E '^(E|W|ERROR|error|.*[Ee]rror):' "$work/log" | head -1 | cut -c1-160; }

echo "Building libfuse >= $wanted from the distribution's source package"
quietly apt-get update --error-on=any || give_up "the list of source packages could not be had ($(why))"
(cd "$work/source" && quietly apt-get source --download-only "fuse3/$archive_suite") ||
  give_up "the source package fuse3 could not be had ($(why))"
quietly dpkg-source -x "$work"/source/fuse3_*.dsc "$work/fuse3" || give_up "the source package could not be unpacked"
quietly meson setup "$work/objects" "$work/fuse3" --prefix="$result" --libdir=lib --default-library=static \
  --buildtype=release -Dpkgconfig.relocatable=true -Dexamples=false -Dtests=false -Dutils=false -Duseroot=false \
  -Denable-io-uring=true || give_up "meson could not configure it ($(why))"
quietly env DESTDIR="$work/installed" meson install -C "$work/objects" || give_up "it could not be built ($(why))"
built=$work/installed$result
PKG_CONFIG_PATH=$built/lib/pkgconfig pkg-config --atleast-version="$wanted" fuse3 ||
  give_up "$archive_suite has only libfuse $(PKG_CONFIG_PATH=$built/lib/pkgconfig pkg-config --modversion fuse3)"
# Another run may have been faster.
mv -T "$built" "$result" 2>/dev/null || [ -e "$result/lib/pkgconfig/fuse3.pc" ]
