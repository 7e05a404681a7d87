#!/usr/bin/env bash
# Gives the build a libfuse that can use FUSE over io_uring (3.18 or later) where the installed one is older: builds the
# newer source package of the distribution's own archive. The result is kept for every checkout, in
# ${XDG_CACHE_HOME:-~/.cache}/escrow; CMake finds it by the link build/libfuse. Nothing of the system changes, and no
# right is needed: apt works on private lists and a private cache, with the machine's own mirror, key and proxy.
# Idempotent, and at once when there is nothing to do.
#
# Where it cannot be done (no network, another distribution) it says why in one line and succeeds, and the installed
# libfuse is used. ESCROW_LIBFUSE=system asks for that. A kept libfuse of an older version is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
link=$PWD/build/libfuse
wanted=3.18
archive_suite=sid

[ "${ESCROW_LIBFUSE:-auto}" = system ] && exit 0
pkg-config --atleast-version="$wanted" fuse3 && exit 0

give_up() {
  echo "deploy/libfuse.sh: no libfuse >= $wanted, so no FUSE over io_uring: $*; the installed libfuse is used"
  exit 0
}

distribution=$(. /etc/os-release && echo "${ID:-}") codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
cache=$(realpath --canonicalize-missing "${XDG_CACHE_HOME:-${HOME:-$PWD/build}/.cache}")/escrow
kept=$cache/libfuse-$wanted-$distribution-$codename-$(uname -m)
version_in() { pkg-config --modversion "$1/lib/pkgconfig/fuse3.pc" 2>/dev/null || true; }
new_enough() { pkg-config --atleast-version="$wanted" "$1/lib/pkgconfig/fuse3.pc"; }
# Points build/libfuse at what is kept, in one step: another run may do the same.
use_kept() {
  if ! new_enough "$kept"; then
    echo "deploy/libfuse.sh: $kept has libfuse '$(version_in "$kept")', and $wanted is asked for: remove it" >&2
    exit 1
  fi
  mkdir -p build
  [ -L "$link" ] || rm -rf "$link"
  ln -s "$kept" "$link.$$" && mv -T "$link.$$" "$link"
  exit 0
}
[ -e "$kept" ] && use_kept

for program in apt-get dpkg-source meson ninja cc pkg-config; do
  command -v "$program" >/dev/null || give_up "the program $program is not installed"
done
pkg-config --exists liburing numa || give_up "the packages liburing-dev and libnuma-dev are not installed"
[ "$distribution" = debian ] || give_up "newer source packages are looked for in Debian's archive only"

# The mirror and key of this machine, as apt has them from its sources.
IFS='|' read -r mirror entry < <(apt-get indextargets --format '$(REPO_URI)|$(SOURCESENTRY)' 'Created-By: Packages' \
  "Release: $codename" 'Component: main' 2>/dev/null) || give_up "apt has no source of $codename/main"
key=$(sed -nE 's/^Signed-By: *(\/.*)$/\1/pI; s/^deb .*\[.*signed-by=([^] ]+).*$/\1/p' "${entry%:*}" 2>/dev/null |
  head -1) || key=""

mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] || give_up "$cache cannot be written"
work=$(mktemp --directory --tmpdir="$cache")
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
quietly meson setup "$work/objects" "$work/fuse3" --prefix=/usr --libdir=lib --default-library=static \
  --buildtype=release -Dpkgconfig.relocatable=true -Dexamples=false -Dtests=false -Dutils=false -Duseroot=false \
  -Denable-io-uring=true || give_up "meson could not configure it ($(why))"
quietly env DESTDIR="$work/installed" meson install -C "$work/objects" || give_up "it could not be built ($(why))"
built=$work/installed/usr
new_enough "$built" || give_up "$archive_suite has only libfuse $(version_in "$built")"
find "$built" -type f -exec sync {} +
# Another run may have been faster.
mv -T "$built" "$kept" 2>/dev/null || [ -e "$kept" ]
use_kept
