#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Fetch llama.cpp's library, from a Debian release that has it, for building and
# testing tools/llama: the packages are downloaded with apt into lists and a
# folder of their own and unpacked under build/, never installed. The host's own
# apt sources and packages are not touched, and no root is needed.
set -eu

usage()
{
	cat <<'USAGE'
usage: fetch-llama.sh [--suite SUITE] [--build DIR] [--update]
       fetch-llama.sh [--build DIR] --print

Unpacks libllama-dev of Debian SUITE (forky), and all that it and libkvmm need,
into DIR/llama-root, if it is not there yet: 20 MB to download, 60 MB unpacked.
DIR is build. It is a root to compile against (--sysroot) and to run from: with
its own C library and loader, which are newer than the host's.

  --update  fetch it again, for the newest version
  --print   print the root's path and fetch nothing; exit 1 if it is not there

The packed root is kept in $KVMM_CACHE, by default ~/.cache/kvmm, so that another
clone need not repeat it; set it to the empty string to keep nothing. It may be
deleted at any time.
USAGE
}

say() { printf 'fetch-llama: %s\n' "$*"; }
die() { printf 'fetch-llama: %s\n' "$*" >&2; exit 1; }

PATH=$PATH:/usr/sbin:/sbin
export PATH LC_ALL=C

suite=forky
build=
print=
update=
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage; exit 0 ;;
	--suite) [ $# -gt 1 ] || die "$1 needs a value"; suite=$2; shift ;;
	--build) [ $# -gt 1 ] || die "$1 needs a value"; build=$2; shift ;;
	--print) print=1 ;;
	--update) update=1 ;;
	*) usage >&2; die "unknown argument: $1" ;;
	esac
	shift
done
case $suite in
*[!a-z0-9-]* | '') die "not the name of a Debian release: $suite" ;;
esac
[ -n "$build" ] || build=$(cd "$(dirname "$0")/../.." && pwd)/build
case $build in
/*) ;;
*) build=$PWD/$build ;;
esac
root=$build/llama-root
# what libkvmm and the program are compiled with, beside libllama itself
packages='libllama-dev libc6-dev liburing-dev libisal-dev libssl-dev libjansson-dev libdrm-dev'
sum=$(printf '%s' "$packages" | cksum | cut -d' ' -f1)
ready=$root/.ready-$sum

if [ -n "$print" ]; then
	[ -e "$ready" ] || exit 1
	echo "$root"
	exit 0
fi
[ ! -e "$ready" ] || [ -n "$update" ] || exit 0

mkdir -p "$build"
if [ "${KVMM_FETCH_LOCKED-}" != "$root" ]; then
	export KVMM_FETCH_LOCKED="$root"
	# shellcheck disable=SC2086 # a word or none
	exec flock "$build/.llama.lock" "$0" --suite "$suite" --build "$build" ${update:+--update}
fi

[ "$(uname -m)" = x86_64 ] || die 'only for x86_64'
# what to do where it can't be fetched
instead='give a llama.cpp of your own (LLAMA_ROOT=its folder); make demo works without any'
for t in apt-get dpkg-deb; do
	command -v $t >/dev/null 2>&1 || die "no $t here; $instead"
done

cache=${KVMM_CACHE-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/kvmm}
if [ -n "$cache" ] && ! mkdir -p "$cache" 2>/dev/null; then
	cache=
fi
pack=$cache/llama-$suite-$sum.tar.gz

tmp=$(mktemp -d "$build/llama.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# install TREE: put it where it belongs
finish()
{
	[ -e "$1/usr/include/llama.h" ] || return 1
	: >"$1/.ready-$sum"
	rm -rf "$root"
	mv "$1" "$root"
	say "ready: libllama $(cat "$root/.version") in $root"
}

if [ -z "$update" ] && [ -n "$cache" ] && [ -e "$pack" ]; then
	mkdir "$tmp/root"
	if tar -xzf "$pack" -C "$tmp/root" 2>/dev/null && finish "$tmp/root"; then
		exit 0
	fi
	rm -rf "$pack" "$tmp/root"
fi

# The mirror is the one that this machine's apt has for its own release.
# shellcheck disable=SC1091
codename=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
# shellcheck disable=SC2016 # apt expands it
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' |
	sed -n "s/^\([^ ]*\) $codename main\$/\1/p" | head -n 1)
[ -n "$mirror" ] || die "this machine's apt has no source for Debian $codename, so no mirror is known; $instead"

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial"
if [ -e "$keyring" ]; then
	echo "deb [signed-by=$keyring] $mirror $suite main" >"$tmp/sources.list"
else
	echo "deb $mirror $suite main" >"$tmp/sources.list"
fi
: >"$tmp/status"		# nothing is installed: all dependencies are wanted

# Mirrors that are snapshots have an expired Release file.
apt()
{
	apt-get -q -o "Dir::State::Lists=$tmp/lists" -o "Dir::Cache=$tmp/cache" \
		-o "Dir::Etc::SourceList=$tmp/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
		-o "Dir::State::status=$tmp/status" -o APT::Sandbox::User=root \
		-o Acquire::Check-Valid-Until=false -o Acquire::Retries=1 -o Acquire::http::Timeout=20 \
		-o Acquire::Languages=none -o APT::Architecture=amd64 \
		-o APT::Install-Recommends=false -o APT::Update::Error-Mode=any \
		-o Debug::NoLocking=1 "$@"
}

# try WHAT COMMAND...: mirrors fail now and then for reasons that pass
try()
{
	what=$1
	shift
	n=1
	while ! "$@" >"$tmp/log" 2>&1 </dev/null; do
		why=$(sed -n 's/^ *E: //p' "$tmp/log" | head -n 1)
		say "$what failed: ${why:-$(tail -n 1 "$tmp/log")}"
		[ $n != 3 ] || die "libllama of Debian $suite can't be had from $mirror: $what failed $n times; $instead"
		say "trying again in $((n * 3)) s"
		sleep $((n * 3))
		n=$((n + 1))
	done
}

say "downloading libllama of Debian $suite, 20 MB with what it needs, from $mirror"
try 'reading the package lists' apt update
# shellcheck disable=SC2086 # a list of words
try 'downloading the packages' apt -y --download-only install $packages

# The links that a merged /usr has: the C library's own files name them.
mkdir -p "$tmp/root/usr/lib" "$tmp/root/usr/lib64"
ln -s usr/lib "$tmp/root/lib"
ln -s usr/lib64 "$tmp/root/lib64"
for deb in "$tmp"/cache/archives/*.deb; do
	# from a pipe of our own: the links must not be replaced by folders
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$tmp/root" --keep-directory-symlink \
		--exclude='./usr/share/*' --exclude='./usr/libexec/*' --exclude='*/gconv/*' \
		--exclude='*/cmake/*' ||
		die "could not unpack $(basename "$deb")"
	case ${deb##*/} in
	libllama-dev_*) dpkg-deb -f "$deb" Version >"$tmp/root/.version" ;;
	esac
done
# Static libraries are most of it; the C library's few stubs are needed.
find "$tmp/root/usr/lib" -name 'lib*.a' -size +100k -delete
if [ -n "$cache" ]; then
	# by rename, for other clones look at the cache too
	if tar -czf "$pack.$$" -C "$tmp/root" . 2>/dev/null; then
		mv "$pack.$$" "$pack"
	else
		rm -f "$pack.$$"
	fi
fi
finish "$tmp/root" || die 'the packages have no llama.h'
