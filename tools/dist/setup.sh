#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Install, through apt, what building and testing kvmm needs. Does nothing, and
# touches no network, when everything is already there.
set -eu

usage()
{
	cat <<'USAGE'
usage: setup.sh [--check | --list] [SET...]

Installs the Debian packages that kvmm needs and that are missing. Works as
root or through sudo, asks no question, and leaves what is installed alone.

  --check   install nothing; exit 1 and name what is missing
  --list    print the packages of the sets, with what each is for
  --help    this text

SET is one of the groups
  build     compiler, libraries of libkvmm and kvmmctl
  test      unit tests, sanitizers, fuzzers
  vm        build the kernel module and run it in QEMU
  bench     programs that kvmm is measured against
  style     format, static analysis and manual page checks
  debug     build debug kernels from source (see selftests/debug)
  suite     build the module for another Debian release (see build-in-suite.sh)
or a set of groups
  demo      build
  check     build test vm style
  all       build test vm bench style        (the default)
USAGE
}

# group|package|what it is for. A package may name alternatives, a/b: the first
# one is installed when none is there. libclang-rt-@ stands for the version that
# matches the clang package.
table()
{
	cat <<'TABLE'
build|build-essential|gcc, make, libc headers (gcc brings the asan, tsan and ubsan runtimes)
build|pkg-config/pkgconf|compiler flags of the libraries below
build|liburing-dev|io_uring, for swap I/O
build|libjansson-dev|JSON in kvmmctl
build|libisal-dev|crc32c of swapped blocks
build|libssl-dev|SHA-256 of block keys
build|libdrm-dev|types of libdrm, which the GPU shim loads at run time
test|libcmocka-dev|unit tests
test|clang|libFuzzer; a second compiler
test|libclang-rt-@|sanitizer and fuzzer runtimes of clang
test|python3|glue in the test scripts
vm|qemu-system-x86|boots the stock kernel with kvmm.ko
vm|busybox-static|user space of the test VM
vm|cpio|packs the initramfs of the test VM
vm|e2fsprogs|makes the ext4 disk of the test VM
vm|kmod|depmod and modinfo, for the kernel modules of the test VM
vm|libelf1/libelf1t64|objtool, which runs when the module is built
vm|xz-utils|kernel packages and sources are xz-compressed
vm|zstd|kernel packages and images may be zstd-compressed
bench|fio|the yardstick for swap bandwidth
style|sparse|kernel annotations
style|coccinelle|semantic patches over the module
style|mandoc|manual pages
style|shellcheck|shell scripts
debug|bison|the kernel's configuration program
debug|flex|the kernel's configuration program
debug|bc|a step of the kernel's build
debug|libelf-dev|objtool, which the kernel's build makes
debug|libssl-dev|programs of the kernel's build
debug|zstd|packs what was built
suite|mmdebstrap|unpacks another Debian release under build/
TABLE
}

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# The compiler runtime has the version in its name and must match the compiler.
clang_rt()
{
	v=
	if command -v clang >/dev/null 2>&1; then
		v=$(clang -dumpversion 2>/dev/null | cut -d. -f1) || v=
	fi
	if [ -z "$v" ]; then
		v=$(apt-cache depends clang 2>/dev/null |
		    sed -n 's/^ *Depends: clang-\([0-9][0-9]*\)$/\1/p' | head -n 1) || v=
	fi
	printf 'libclang-rt-%s-dev\n' "${v:-14}"
}

# lines of the table for the wanted groups
wanted()
{
	table | while IFS='|' read -r g p why; do
		case " $groups " in
		*" $g "*) ;;
		*) continue ;;
		esac
		[ "$p" != libclang-rt-@ ] || p=$(clang_rt)
		printf '%s|%s|%s\n' "$g" "$p" "$why"
	done
}

# Lines of the table of which no alternative is installed. One dpkg-query for
# all: a run with nothing to do takes milliseconds.
missing()
{
	dpkg-query -W -f '${Package}|${db:Status-Status}\n' >"$tmp/have" 2>/dev/null || :
	wanted | while IFS='|' read -r g p why; do
		found=
		for alt in $(printf '%s' "$p" | tr / ' '); do
			if grep -qxF "$alt|installed" "$tmp/have"; then
				found=1
				break
			fi
		done
		[ -n "$found" ] || printf '%s|%s|%s\n' "$g" "$p" "$why"
	done
}

# The first alternative that apt knows; the first one when it knows none, so
# that apt's own message names it.
pick()
{
	for alt in $(printf '%s' "$1" | tr / ' '); do
		if apt-cache show --no-all-versions "$alt" 2>/dev/null | grep -q '^Package:'; then
			printf '%s\n' "$alt"
			return
		fi
	done
	printf '%s\n' "${1%%/*}"
}

as_root()
{
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo -n "$@" </dev/null || return
	fi
}

# quiet DESCRIPTION COMMAND...: up to three tries; prints output of the last
# failure only. Mirrors and locks fail now and then for reasons that pass.
quiet()
{
	what=$1
	shift
	n=1
	while :; do
		if as_root "$@" >"$tmp/out" 2>&1 </dev/null; then
			return 0
		fi
		if [ "$n" = 3 ]; then
			tail -n 30 "$tmp/out" >&2
			return 1
		fi
		say "$what failed (try $n of 3), trying again"
		sleep $((n * 5))
		n=$((n + 1))
	done
}


mode=install
groups=
for a; do
	case $a in
	--check) mode=check ;;
	--list) mode=list ;;
	-h | --help) usage; exit 0 ;;
	build | test | vm | bench | style | debug | suite) groups="$groups $a" ;;
	demo) groups="$groups build" ;;
	check) groups="$groups build test vm style" ;;
	all) groups="$groups build test vm bench style" ;;
	*) usage >&2; die "unknown argument: $a" ;;
	esac
done
[ -n "$groups" ] || groups='build test vm bench style'

if [ "$mode" != list ] && ! { command -v dpkg-query && command -v apt-get; } >/dev/null 2>&1; then
	die 'no apt here: install by hand what --list names'
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

if [ "$mode" = list ]; then
	wanted | while IFS='|' read -r g p why; do
		printf '%-6s %-24s %s\n' "$g" "$p" "$why"
	done
	exit 0
fi

missing >"$tmp/missing"
if [ ! -s "$tmp/missing" ]; then
	[ "$mode" = install ] || say 'nothing is missing'
	exit 0
fi
if [ "$mode" = check ]; then
	say 'missing:'
	while IFS='|' read -r g p why; do
		printf '  %-6s %-24s %s\n' "$g" "$p" "$why"
	done <"$tmp/missing"
	exit 1
fi

if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
	die "not root and no sudo without a password; as root, run: apt-get install" \
	    "$(cut -d'|' -f2 "$tmp/missing" | sed 's,/.*,,' | tr '\n' ' ')"
fi

say 'installing what is missing:'
while IFS='|' read -r g p why; do
	printf '  %-6s %-24s %s\n' "$g" "$p" "$why"
done <"$tmp/missing"

# Package lists of a third party that can't be reached must not stop the
# install, so a failed update counts only if the packages can't be had then.
export DEBIAN_FRONTEND=noninteractive
set -- apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 \
	-o Dpkg::Options::=--force-confold
updated=yes
quiet 'apt-get update' "$@" update || updated=no

missing >"$tmp/missing"		# clang's version may be known only now
pkgs=
while IFS='|' read -r g p why; do
	pkgs="$pkgs $(pick "$p")"
done <"$tmp/missing"
# shellcheck disable=SC2086 # a list of words
quiet 'apt-get install' env DEBIAN_FRONTEND=noninteractive "$@" \
	--no-install-recommends install $pkgs || {
	[ "$updated" = yes ] || say 'apt-get update had failed too' >&2
	die 'installation failed'
}
missing >"$tmp/missing"
[ ! -s "$tmp/missing" ] || die "still missing: $(cut -d'|' -f2 "$tmp/missing" | tr '\n' ' ')"
say 'done'
