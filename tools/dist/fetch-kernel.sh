#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Fetch Debian's stock kernel for building kvmm.ko and for the test VM: the
# packages are downloaded with apt and unpacked under build/, never installed.
set -eu

usage()
{
	cat <<'USAGE'
usage: fetch-kernel.sh [--kernel SERIES] [--build DIR] [PART...]
       fetch-kernel.sh [--kernel SERIES] [--build DIR] --print WHAT

Fetches and unpacks under DIR/kernel/ what is not there yet:
  headers     what a module is built with           DIR/kernel/SERIES/headers
  image       kernel and modules, for the VM        DIR/kernel/SERIES/image
  kselftest   kselftest.h, kselftest_harness.h      DIR/kernel/kselftest
              and checkpatch.pl, kernel-doc,        DIR/kernel/scripts
              the semantic patches of coccicheck
  source      all of linux-source-6.1, 1.4 GB;      DIR/kernel/source-6.1
              never kept in the cache
Default: the first three. SERIES is 6.1 (default) or another one for which this
machine's apt knows a Debian kernel, such as 6.12. DIR is build.

--print names a thing and fetches nothing:
  kdir        directory for make -C ... M=...
  kernel      bootable image: vmlinux where it could be unpacked, else vmlinuz
  modules     directory that holds lib/modules/RELEASE
  release     the kernel's release (empty until fetched)
  kselftest   directory of kselftest.h
  scripts     directory of checkpatch.pl
  source      root of the source tree
  source-version  version of the source package that apt knows

Downloads are kept in $KVMM_CACHE, by default ~/.cache/kvmm, so that another
clone need not repeat them; set it to the empty string to keep nothing. It may
be deleted at any time.
USAGE
}

say() { printf 'fetch-kernel: %s\n' "$*"; }
die() { printf 'fetch-kernel: %s\n' "$*" >&2; exit 1; }

PATH=$PATH:/usr/sbin:/sbin
export PATH LC_ALL=C

series=6.1
build=
print=
parts=
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage; exit 0 ;;
	--kernel) [ $# -gt 1 ] || die "$1 needs a value"; series=$2; shift ;;
	--build) [ $# -gt 1 ] || die "$1 needs a value"; build=$2; shift ;;
	--print) [ $# -gt 1 ] || die "$1 needs a value"; print=$2; shift ;;
	headers | image | kselftest | source) parts="$parts $1" ;;
	*) usage >&2; die "unknown argument: $1" ;;
	esac
	shift
done
[ -n "$parts" ] || parts='headers image kselftest'
case $series in
*[!0-9.]* | '') die "not a kernel series: $series" ;;
esac

if [ -z "$build" ]; then
	top=$(cd "$(dirname "$0")/../.." && pwd)
	build=$top/build
else
	case $build in
	/*) ;;
	*) build=$PWD/$build ;;
	esac
fi
base=$build/kernel
dir=$base/$series

if [ -n "$print" ]; then
	case $print in
	kdir) echo "$dir/kdir" ;;
	kernel)
		if [ -e "$dir/image/vmlinux" ]; then
			echo "$dir/image/vmlinux"
		else
			echo "$dir/image/vmlinuz"
		fi ;;
	modules) echo "$dir/image/root" ;;
	release) cat "$dir/release" 2>/dev/null || : ;;
	kselftest | scripts) echo "$base/$print" ;;
	source) echo "$base/source-6.1" ;;
	source-version)
		apt-cache show --no-all-versions linux-source-6.1 2>/dev/null |
			sed -n 's/^Version: //p' ;;
	*) die "nothing to print by that name: $print" ;;
	esac
	exit 0
fi

stamp()
{
	case $1 in
	kselftest | source) echo "$base/.$1" ;;
	*) echo "$dir/.$1" ;;
	esac
}

todo=
for part in $parts; do
	[ -e "$(stamp "$part")" ] || todo="$todo $part"
done
[ -n "$todo" ] || exit 0

# One at a time: parallel make may ask for the same part from several rules.
mkdir -p "$base"
if [ "${KVMM_FETCH_LOCKED-}" != "$base" ]; then
	export KVMM_FETCH_LOCKED="$base"
	# shellcheck disable=SC2086 # a list of words
	exec flock "$base/.lock" "$0" --kernel "$series" --build "$build" $todo
fi
mkdir -p "$dir"

command -v apt-get >/dev/null 2>&1 ||
	die 'no apt here; the stock kernel comes from a Debian mirror'
need()
{
	command -v "$1" >/dev/null 2>&1 || die "$1 is missing; run tools/dist/setup.sh vm"
}

cache=${KVMM_CACHE-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/kvmm}
if [ -n "$cache" ] && ! mkdir -p "$cache" 2>/dev/null; then
	cache=
fi

tmp=$(mktemp -d "$base/tmp.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# The host's package lists are used as they are. Where they don't know a package,
# or name a version that the mirror no longer has, a private copy of the lists is
# updated instead: that needs no root, and leaves the host alone.
private=
apt()
{
	tool=$1
	shift
	# The download folder is ours, so apt's own user could not write to it.
	set -- -q -o APT::Sandbox::User=root -o Acquire::Retries=3 "$@"
	if [ -n "$private" ]; then
		set -- -o "Dir::State::Lists=$base/apt/lists" -o "Dir::Cache=$base/apt/cache" "$@"
	fi
	"$tool" "$@"
}

use_private_lists()
{
	[ -z "$private" ] || return 1
	private=yes
	mkdir -p "$base/apt/lists/partial" "$base/apt/cache/archives/partial"
	say 'updating a private copy of the package lists'
	# Third-party sources may fail; what counts is whether the packages are there.
	apt apt-get update >"$tmp/update.log" 2>&1 || :
}

# sets $release: the kernel that Debian's metapackage of this series stands for
resolve()
{
	for meta in linux-image-amd64 "linux-image-$series-amd64"; do
		release=$(apt apt-cache depends --important "$meta" 2>/dev/null |
			sed -n "s/^ *Depends: linux-image-\($series\.[^ ]*-amd64\)\$/\1/p" |
			head -n 1)
		[ -z "$release" ] || return 0
	done
	return 1
}

need_release()
{
	release=$(cat "$dir/release" 2>/dev/null || :)
	[ -z "$release" ] || return 0
	resolve || { use_private_lists && resolve; } || {
		rmdir "$dir" 2>/dev/null || :
		die "this machine's apt sources have no Debian kernel $series for amd64;" \
		    "see tools/dist/build-in-suite.sh for another Debian release"
	}
	echo "$release" >"$dir/release"
}

# get PACKAGE: sets $deb to its verified file
get()
{
	pkg=$1
	tries=0
	while :; do
		meta=$(apt apt-cache show --no-all-versions "$pkg" 2>/dev/null || :)
		ver=$(printf '%s\n' "$meta" | sed -n 's/^Version: //p' | head -n 1)
		sum=$(printf '%s\n' "$meta" | sed -n 's/^SHA256: //p' | head -n 1)
		name=${pkg}_$(printf '%s' "$ver" | tr : _).deb
		if [ -n "$ver" ] && [ -n "$cache" ] && [ -e "$cache/$name" ]; then
			deb=$cache/$name
			if check_deb; then
				return 0
			fi
			rm -f "$deb"
		fi
		if [ -n "$ver" ]; then
			say "downloading $pkg $ver"
			rm -rf "$tmp/dl"
			mkdir "$tmp/dl"
			if (cd "$tmp/dl" && apt apt-get download "$pkg=$ver") >"$tmp/dl.log" 2>&1; then
				deb=$(echo "$tmp/dl"/*.deb)
				if check_deb; then
					if [ -n "$cache" ]; then
						# by rename, for other clones look at the cache too
						cp "$deb" "$cache/.$name.$$"
						mv "$cache/.$name.$$" "$cache/$name"
						deb=$cache/$name
					fi
					return 0
				fi
			fi
		fi
		tries=$((tries + 1))
		if [ -n "$private" ] && { [ $tries -ge 3 ] || [ -z "$ver" ]; }; then
			cat "$tmp/dl.log" >&2 2>/dev/null || :
			return 1
		fi
		use_private_lists || sleep 3
	done
}

check_deb()
{
	[ -z "$sum" ] || echo "$sum  $deb" | sha256sum -c --status || return 1
	dpkg-deb --info "$deb" >/dev/null 2>&1
}

fetch_headers()
{
	out=$dir/headers
	rm -rf "$out"
	mkdir -p "$out"
	get "linux-headers-$release" || return 1
	dpkg-deb -x "$deb" "$out"
	# What it needs beside itself: the common headers, and kbuild's programs.
	deps=$(dpkg-deb -f "$deb" Depends | tr ',|' '\n' | sed 's/^ *//; s/ .*//' |
		grep -E '^linux-(headers|kbuild)-') || return 1
	for p in $deps; do
		get "$p" || return 1
		dpkg-deb -x "$deb" "$out"
	done
	k=$out/usr/src/linux-headers-$release
	# The packages refer to each other by the place they install to. Make that
	# relative, so that the tree works here, and where it is moved to.
	# shellcheck disable=SC2016 # the expressions are make's
	sed -i 's,^include /usr/src/\(.*\)$,include $(realpath $(dir $(realpath $(lastword $(MAKEFILE_LIST))))../\1),' \
		"$k/Makefile"
	find "$out/usr" -type l -lname '/usr/*' | while read -r l; do
		ln -sfn "$out$(readlink "$l")" "$l"
	done
	ln -sfn "headers/usr/src/linux-headers-$release" "$dir/kdir"
	[ -f "$dir/kdir/Module.symvers" ] && [ -x "$dir/kdir/scripts/mod/modpost" ]
}

# field FILE OFFSET SIZE: a little-endian number
field() { od -An -t "u$3" -j "$(($2))" -N "$3" "$1" | tr -d ' '; }

# The bzImage unpacks itself at every boot, which takes seconds in an emulator.
# QEMU can start the vmlinux inside it as it is (PVH), so unpack it here, once.
# Offsets: Documentation/arch/x86/boot.rst, "The real-mode kernel header".
unpack_vmlinux()
{
	f=$1
	off=$(( ($(field "$f" 0x1f1 1) + 1) * 512 + $(field "$f" 0x248 4) ))
	len=$(field "$f" 0x24c 4)
	case $(od -An -t x1 -j "$off" -N 4 "$f" | tr -d ' ') in
	fd377a58) unpack='xz -dc --single-stream' ;;
	28b52ffd) unpack='zstd -dcq' ;;
	1f8b*) unpack='gzip -dc' ;;
	*) return 1 ;;
	esac
	# the last 4 bytes are the unpacked size, not part of the stream
	tail -c "+$((off + 1))" "$f" | head -c "$((len - 4))" >"$tmp/payload"
	$unpack <"$tmp/payload" >"$2.tmp" 2>/dev/null || return 1
	[ "$(od -An -t x1 -N 4 "$2.tmp" | tr -d ' ')" = 7f454c46 ] || return 1
	[ "$(od -An -t u4 -j "$((off + len - 4))" -N 4 "$f" | tr -d ' ')" = "$(wc -c <"$2.tmp")" ] || return 1
	grep -q '^CONFIG_PVH=y' "$3" || return 1
	mv "$2.tmp" "$2"
}

fetch_image()
{
	for t in xz zstd depmod; do
		need "$t"
	done
	out=$dir/image
	rm -rf "$out"
	mkdir -p "$out/root"
	get "linux-image-$release" || return 1
	# Hardware drivers that no VM here has are most of the package.
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$out/root" \
		--exclude='*/kernel/sound' --exclude='*/kernel/drivers/media' \
		--exclude='*/kernel/drivers/net' --exclude='*/kernel/drivers/staging' \
		--exclude='*/kernel/drivers/iio' --exclude='*/kernel/drivers/usb' \
		--exclude='*/kernel/drivers/infiniband' --exclude='*/kernel/drivers/hwmon' \
		--exclude='*/kernel/drivers/gpu/drm/amd' --exclude='*/kernel/drivers/gpu/drm/i915' \
		--exclude='*/kernel/drivers/gpu/drm/nouveau' --exclude='*/kernel/drivers/gpu/drm/radeon' \
		--exclude='*/kernel/drivers/gpu/drm/xe' --exclude='*/kernel/drivers/scsi' \
		--exclude='*/usr/share'
	if [ ! -d "$out/root/lib/modules" ]; then
		mkdir -p "$out/root/lib"
		ln -sfn ../usr/lib/modules "$out/root/lib/modules"
	fi
	[ -d "$out/root/lib/modules/$release/kernel" ] || return 1
	depmod -b "$out/root" "$release" 2>"$tmp/depmod.log" || { cat "$tmp/depmod.log" >&2; return 1; }
	ln -sfn "root/boot/vmlinuz-$release" "$out/vmlinuz"
	unpack_vmlinux "$out/vmlinuz" "$out/vmlinux" "$out/root/boot/config-$release" ||
		rm -f "$out/vmlinux" "$out/vmlinux.tmp"
	[ -f "$out/vmlinuz" ]
}

sources='tools/testing/selftests/kselftest.h
tools/testing/selftests/kselftest_harness.h
scripts/checkpatch.pl
scripts/spelling.txt
scripts/const_structs.checkpatch
scripts/kernel-doc
scripts/coccinelle'

fetch_kselftest()
{
	need xz
	tarname=kselftest-6.1-2.tar
	tarball=
	if [ -n "$cache" ] && tar -tf "$cache/$tarname" >/dev/null 2>&1; then
		tarball=$cache/$tarname
	fi
	rm -rf "$tmp/src"
	mkdir "$tmp/src"
	if [ -n "$tarball" ]; then
		tar -xf "$tarball" -C "$tmp/src"
	else
		# 140 MB for some files: keep those instead of the package.
		keep=$cache
		cache=
		ok=0
		get linux-source-6.1 || ok=1
		cache=$keep
		[ $ok = 0 ] || return 1
		say 'unpacking some files of linux-source-6.1'
		echo "$sources" | sed 's,^,linux-source-6.1/,' >"$tmp/names"
		dpkg-deb --fsys-tarfile "$deb" | tar -xO ./usr/src/linux-source-6.1.tar.xz |
			tar -xJ -C "$tmp/src" --strip-components=1 -T "$tmp/names" || return 1
		rm -f "$deb"
		if [ -n "$cache" ]; then
			# shellcheck disable=SC2086 # a list of words
			tar -cf "$cache/.$tarname.$$" -C "$tmp/src" $sources
			mv "$cache/.$tarname.$$" "$cache/$tarname"
		fi
	fi
	mkdir -p "$base/kselftest" "$base/scripts"
	cp "$tmp/src/tools/testing/selftests"/* "$base/kselftest/"
	cp -R "$tmp/src/scripts"/* "$base/scripts/"
	[ -f "$base/kselftest/kselftest_harness.h" ] && [ -x "$base/scripts/checkpatch.pl" ]
}

# For building kernels, which is done once: 140 MB are not worth keeping.
fetch_source()
{
	need xz
	keep=$cache
	cache=
	ok=0
	get linux-source-6.1 || ok=1
	cache=$keep
	[ $ok = 0 ] || return 1
	say 'unpacking linux-source-6.1'
	rm -rf "$base/source-6.1"
	mkdir "$base/source-6.1"
	dpkg-deb --fsys-tarfile "$deb" | tar -xO ./usr/src/linux-source-6.1.tar.xz |
		tar -xJ -C "$base/source-6.1" --strip-components=1 || return 1
	rm -f "$deb"
	[ -f "$base/source-6.1/Makefile" ]
}

for part in $todo; do
	[ ! -e "$(stamp "$part")" ] || continue
	case $part in
	kselftest | source) ;;
	*) need_release ;;
	esac
	if ! "fetch_$part"; then
		# The mirror may have moved on since the first part was fetched; the
		# parts must match, so begin again with what is there now.
		if [ "$part" = kselftest ] || [ "$part" = source ] ||
		    [ -n "${KVMM_FETCH_AGAIN-}" ]; then
			die "could not fetch $part"
		fi
		say "could not fetch $part for $release, starting over"
		rm -rf "$dir" "$tmp"
		KVMM_FETCH_AGAIN=1 exec "$0" --kernel "$series" --build "$build" headers image
	fi
	case $part in
	kselftest) say 'ready: kselftest headers and scripts' ;;
	source) say "ready: linux-source $ver" ;;
	*) say "ready: $part of $release" ;;
	esac
	# the source's says which version it is
	if [ "$part" = source ]; then
		echo "$ver" >"$(stamp source)"
	else
		: >"$(stamp "$part")"
	fi
done
