#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Build kvmm.ko for one kernel, in a folder of links under build/.
set -eu

usage()
{
	cat <<'USAGE'
usage: kmod-build.sh --version V --build DIR [--kernel SERIES] [--kdir KDIR]
                     [--output FILE] [--check]
       kmod-build.sh --version V --build DIR --suite SUITE [--output FILE]
Builds DIR/kmod-RELEASE/kvmm.ko and copies it to FILE. Without --kdir, Debian's
kernel of that series is fetched. --check builds in DIR/kmod-RELEASE-check with
W=1 and sparse, and fails if either says anything. --suite builds for the kernel
of another Debian release, by its own compiler; see tools/dist/build-in-suite.sh.
What the kernel's build says goes to DIR/kmod-RELEASE/log, and to stderr when it
fails or warns; with V=1 all of it is shown.
USAGE
}

version=unknown
build=build
series=6.1
kdir=
output=
check=
suite=
while [ $# -gt 0 ]; do
	case $1 in
	--version) version=$2; shift ;;
	--build) build=$2; shift ;;
	--suite) suite=$2; shift ;;
	--kernel) series=$2; shift ;;
	--kdir) kdir=$2; shift ;;
	--output) output=$2; shift ;;
	--check) check=-check ;;
	*) usage >&2; exit 2 ;;
	esac
	shift
done

top=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$build"
build=$(cd "$build" && pwd)

if [ -n "$suite" ]; then
	kdir=
elif [ -z "$kdir" ]; then
	fetch=$top/tools/dist/fetch-kernel.sh
	"$fetch" --build "$build" --kernel "$series" headers
	kdir=$("$fetch" --build "$build" --kernel "$series" --print kdir)
fi
if [ -z "$suite" ] && ! [ -e "$kdir/Makefile" ]; then
	echo "kmod-build: no kernel headers in $kdir" >&2
	exit 1
fi

# The environment of a calling make is not meant for the kernel's.
verbose=${V-}
unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES VARIANT CFLAGS CPPFLAGS LDFLAGS
unset CC O B V

if [ -n "$suite" ]; then
	release=$suite
else
	release=$(sed -n 's/^#define UTS_RELEASE "\(.*\)"$/\1/p' \
		"$kdir/include/generated/utsrelease.h")
fi
dir=$build/kmod-$release$check

# One at a time: a second make may ask for the same.
mkdir -p "$dir"
exec 9>"$dir/.lock"
flock 9

# Links, so that the kernel build leaves nothing in the tree.  What is gone from
# the tree goes here too.
find "$dir" -type l ! -exec test -e {} \; -delete
link()
{
	mkdir -p "$dir/$(dirname "$1")"
	[ "$(readlink "$dir/$1" || :)" = "$top/$1" ] || ln -sfn "$top/$1" "$dir/$1"
}
cd "$top"
for f in Kbuild kmod/*.c kmod/*.h kmod/core/*.c kmod/core/*.h kmod/compat/*.h \
	kmod/compat/*.sh uapi/linux/*.h; do
	link "$f"
done

log=$dir/log
# Runs it into the log, of which only what is wrong is shown.
build()
{
	if [ "$verbose" = 1 ]; then
		"$@"
		return
	fi
	"$@" >"$log" 2>&1 || {
		cat "$log" >&2
		return 1
	}
	grep -A 8 -E '(warning|WARNING):' "$log" >&2 || :
}

if [ -n "$suite" ]; then
	build "$top/tools/dist/build-in-suite.sh" --build "$build" \
		--output "$dir/out" "$suite" "$dir" KVMM_VERSION="$version"
	echo "kmod-build: kvmm.ko for Debian $suite"
	[ -z "$output" ] || cp "$dir/out/kvmm.ko" "$output"
	exit 0
fi

# What the kernel offers changes with it, and with the questions.
probe=$top/kmod/compat/probe.sh
config=$dir/kmod/compat/compat_config.h
if ! [ -e "$config" ] || [ "$probe" -nt "$config" ] ||
	[ "$kdir/Makefile" -nt "$config" ]; then
	sh "$probe" "$kdir" "$dir/probe" "$config"
fi

set -- make -C "$kdir" M="$dir" KVMM_VERSION="$version" -j2 modules
# BTF of a module is for tracers; headers that bring a vmlinux ask for it.
command -v pahole >/dev/null 2>&1 || set -- "$@" CONFIG_DEBUG_INFO_BTF_MODULES=
if [ -n "$check" ]; then
	rm -f "$dir"/kmod/*.o "$dir"/kmod/core/*.o
	"$@" W=1 C=2 >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
	# BTF needs vmlinux, which headers lack; that is not about us.
	if grep -E 'warning:|error:|WARNING:|ERROR:' "$log" |
		grep -v "$kdir/" | grep .; then
		exit 1
	fi
	echo "kmod-build: $release: W=1 and sparse have nothing to say"
	exit 0
fi
build "$@"
echo "kmod-build: kvmm.ko for $release"
[ -z "$output" ] || cp "$dir/kvmm.ko" "$output"
