#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Build a kernel module with the compiler and headers of another Debian release,
# inside a root of that release unpacked under build/. The host's own apt sources
# are never mixed with another release's.
set -eu

usage()
{
	cat <<'USAGE'
usage: build-in-suite.sh [--build DIR] [--output DIR] SUITE MODULE_DIR [MAKE_ARGUMENT...]
       build-in-suite.sh [--build DIR] SUITE
       build-in-suite.sh [--build DIR] --print WHAT SUITE

Builds the module in MODULE_DIR (a folder with a Kbuild; symbolic links in it are
followed) for the kernel that linux-headers-amd64 of Debian SUITE stands for, for
example trixie. The .ko files are put into --output, by default
DIR/suite/SUITE/out. Without MODULE_DIR only the root is made. DIR is build. Needs
root, for chroot.

The root is unpacked once, to DIR/suite/SUITE/root (1.2 GB, with the kernel's
modules); remove DIR/suite/SUITE to renew it.

--print names a thing and makes nothing: release (of the kernel), kernel (to boot),
modules (directory that holds lib/modules/RELEASE)
USAGE
}

say() { printf 'build-in-suite: %s\n' "$*"; }
die() { printf 'build-in-suite: %s\n' "$*" >&2; exit 1; }

PATH=$PATH:/usr/sbin:/sbin
export PATH LC_ALL=C

top=$(cd "$(dirname "$0")/../.." && pwd)
build=$top/build
output=
print=
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage; exit 0 ;;
	--build) [ $# -gt 1 ] || die "$1 needs a value"; build=$2; shift 2 ;;
	--output) [ $# -gt 1 ] || die "$1 needs a value"; output=$2; shift 2 ;;
	--print) [ $# -gt 1 ] || die "$1 needs a value"; print=$2; shift 2 ;;
	-*) usage >&2; die "unknown argument: $1" ;;
	*) break ;;
	esac
done
[ $# -ge 1 ] || { usage >&2; exit 1; }
suite=$1
src=${2-}
shift
[ $# = 0 ] || shift
case $suite in
*[!a-z0-9-]* | '') die "not the name of a Debian release: $suite" ;;
esac
if [ -n "$print" ]; then
	dir=$build/suite/$suite
	release=$(cat "$dir/release" 2>/dev/null || :)
	case $print in
	release) echo "$release" ;;
	kernel) echo "$dir/vmlinuz" ;;
	modules) echo "$dir/modules" ;;
	*) die "nothing to print by that name: $print" ;;
	esac
	exit 0
fi
if [ -n "$src" ]; then
	[ -f "$src/Kbuild" ] || [ -f "$src/Makefile" ] || die "no Kbuild in $src"
	src=$(cd "$src" && pwd)
fi
if [ -n "$output" ]; then
	mkdir -p "$output"
	output=$(cd "$output" && pwd)
fi
[ "$(id -u)" = 0 ] || die 'needs root: the compiler of the other release runs in a chroot'

mkdir -p "$build/suite/$suite"
dir=$(cd "$build/suite/$suite" && pwd)
root=$dir/root
exec 9>"$dir/.lock"
flock 9

make_root()
{
	command -v mmdebstrap >/dev/null 2>&1 ||
		die 'mmdebstrap is missing; run tools/dist/setup.sh suite'
	# The mirror is the one that this machine's apt has for its own release.
	# shellcheck disable=SC1091
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
	# shellcheck disable=SC2016 # apt expands it
	mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' |
		sed -n "s/^\([^ ]*\) $codename main\$/\1/p" | head -n 1)
	[ -n "$mirror" ] || die "this machine's apt has no source for Debian $codename, so no mirror is known"
	rm -rf "$root" "$dir/.ready"
	say "unpacking Debian $suite"
	# A proxy that the host's apt uses is needed here too.
	apt-config dump | grep -i '^Acquire::[a-z:]*Proxy[^ ]* "..*"' >"$dir/apt.conf" || :
	# "extract" runs no package script and needs no mounts, which containers refuse.
	# Mirrors that are snapshots have an expired Release file.
	n=1
	while ! mmdebstrap --quiet --mode=root --variant=extract \
		--aptopt="$dir/apt.conf" --aptopt='Acquire::Check-Valid-Until "false"' \
		--aptopt='Acquire::Retries "3"' \
		--include=gcc,make,libc6-dev,bash,dash,coreutils,findutils,sed,grep,mawk,perl,linux-headers-amd64,linux-image-amd64 \
		"$suite" "$root" "deb $mirror $suite main" >"$dir/mmdebstrap.log" 2>&1; do
		tail -n 20 "$dir/mmdebstrap.log" >&2
		[ $n -lt 3 ] || die "could not unpack Debian $suite"
		say "failed (try $n of 3), trying again"
		rm -rf "$root"
		n=$((n + 1))
	done
	# links that package scripts would have made
	[ -e "$root/usr/bin/awk" ] || ln -s mawk "$root/usr/bin/awk"
	[ -e "$root/bin/sh" ] || ln -s dash "$root/bin/sh"
	if [ ! -c "$root/dev/null" ]; then
		rm -f "$root/dev/null"
		mknod -m 666 "$root/dev/null" c 1 3 ||
			die 'cannot make a device node, which the build needs for /dev/null'
	fi
	basename "$(ls -d "$root"/usr/src/linux-headers-*-amd64)" | sed 's/^linux-headers-//' >"$dir/release"
	release=$(cat "$dir/release")
	# The kernel is in /boot, or with its modules, which are in /lib or /usr/lib.
	rm -rf "$dir/modules" "$dir/vmlinuz"
	mkdir -p "$dir/modules/lib"
	for f in lib usr/lib; do
		[ ! -d "$root/$f/modules/$release/kernel" ] ||
			ln -sfn "../../root/$f/modules" "$dir/modules/lib/modules"
	done
	for f in "$root/boot/vmlinuz-$release" "$dir/modules/lib/modules/$release/vmlinuz"; do
		[ ! -e "$f" ] || cp "$f" "$dir/vmlinuz"
	done
	[ -e "$dir/vmlinuz" ] || die "no kernel image of $suite"
	# made where a package is configured, which is not done here
	depmod -b "$dir/modules" "$release" || die 'depmod failed'
	: >"$dir/.ready"
}

[ -e "$dir/.ready" ] || make_root
release=$(cat "$dir/release")

[ -n "$src" ] || exit 0

# A copy, for the chroot can't see the sources; objects of another kernel stay out.
output=${output:-$dir/out}
rm -rf "$root/src"
mkdir -p "$output"
cp -RL "$src" "$root/src"
find "$root/src" \( -name '*.o' -o -name '*.ko' -o -name '*.mod' -o -name '*.mod.c' \
	-o -name '.*.cmd' -o -name Module.symvers -o -name modules.order \
	-o -name compat_config.h \) -delete

# objtool looks where its stack is, and gives up where there is no /proc.
mkdir -p "$root/proc/self"
[ -e "$root/proc/self/maps" ] || cat /proc/self/maps >"$root/proc/self/maps"

say "building for $release"
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C \
	chroot "$root" make -C "/usr/src/linux-headers-$release" M=/src "$@" modules
rm -f "$output"/*.ko
find "$root/src" -name '*.ko' ! -path '*/probe/*' -exec cp {} "$output/" \;
ls "$output"/*.ko >/dev/null 2>&1 || die 'the build made no .ko file'
