#!/bin/sh
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2034 # print() reads the variables by name
#
# Find libllama, and say how to compile and run with it, as a makefile.
set -eu

usage()
{
	cat <<'USAGE'
usage: find.sh [--build DIR] [--fetch]

Prints make variables, or says why there is no libllama and exits with 1:
  LLAMA_KIND      host, prefix or root
  LLAMA_CC        the compiler
  LLAMA_CPPFLAGS, LLAMA_LDFLAGS, LLAMA_LIBS
  LLAMA_BACKENDS  folder with ggml's backends; empty: where ggml looks itself
  LLAMA_LIBDIR, LLAMA_LOADER    kind root: where its libraries and loader are
  LLAMA_VERSION   of the library

The first of these counts:
  $LLAMA_ROOT  a folder: either a prefix that llama.cpp was installed to
               (include/llama.h, lib/libllama.so), or the root of another system
               (usr/include/llama.h, and a C library of its own)
  pkg-config   llama.pc of this system
  DIR/llama-root, which tools/dist/fetch-llama.sh makes; --fetch does that now
USAGE
}

die() { printf 'find: %s\n' "$*" >&2; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build
fetch=
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage; exit 0 ;;
	--build) [ $# -gt 1 ] || die "$1 needs a value"; build=$2; shift ;;
	--fetch) fetch=1 ;;
	*) usage >&2; die "unknown argument: $1" ;;
	esac
	shift
done

print()
{
	for v in KIND CC CPPFLAGS LDFLAGS LIBS BACKENDS LIBDIR LOADER VERSION; do
		eval "printf 'LLAMA_%s := %s\n' $v \"\${$v-}\""
	done
}

version()
{
	PKG_CONFIG_PATH=$1 pkg-config --modversion llama 2>/dev/null || echo unknown
}

as_root()
{
	LIBDIR=
	for d in "$1"/usr/lib/x86_64-linux-gnu "$1"/usr/lib64 "$1"/usr/lib; do
		[ ! -e "$d/libllama.so" ] || { LIBDIR=$d; break; }
	done
	[ -n "$LIBDIR" ] || die "$1 has usr/include/llama.h, but no libllama.so"
	LOADER=
	for f in "$LIBDIR"/ld-linux-x86-64.so.2 "$1"/lib64/ld-linux-x86-64.so.2; do
		[ ! -e "$f" ] || { LOADER=$f; break; }
	done
	[ -n "$LOADER" ] || die "$1 has no ld-linux-x86-64.so.2"
	KIND=root
	CC="gcc --sysroot=$1"
	# where libdrm's headers look for the kernel's
	CPPFLAGS='-isystem =/usr/include/libdrm'
	# gcc's own idea of where libraries are is the host's
	LDFLAGS="-B$LIBDIR -L$LIBDIR"
	LIBS='-lllama -lggml -lggml-base'
	for d in "$LIBDIR"/ggml/backends*; do
		[ ! -d "$d" ] || BACKENDS=$d
	done
	VERSION=$(version "$LIBDIR/pkgconfig")
	print
}

as_prefix()
{
	LIBDIR=
	for d in "$1"/lib/x86_64-linux-gnu "$1"/lib64 "$1"/lib; do
		[ ! -e "$d/libllama.so" ] || { LIBDIR=$d; break; }
	done
	[ -n "$LIBDIR" ] || die "$1 has include/llama.h, but no libllama.so"
	KIND=prefix
	CC=gcc
	CPPFLAGS="-isystem $1/include"
	LDFLAGS="-L$LIBDIR -Wl,-rpath,$LIBDIR"
	LIBS='-lllama -lggml -lggml-base'
	VERSION=$(version "$LIBDIR/pkgconfig")
	print
}

if [ -n "${LLAMA_ROOT-}" ]; then
	[ -d "$LLAMA_ROOT" ] || die "LLAMA_ROOT: no folder $LLAMA_ROOT"
	LLAMA_ROOT=$(cd "$LLAMA_ROOT" && pwd)
	if [ -e "$LLAMA_ROOT/usr/include/llama.h" ] && [ "$LLAMA_ROOT" != / ]; then
		as_root "$LLAMA_ROOT"
	elif [ -e "$LLAMA_ROOT/include/llama.h" ]; then
		as_prefix "$LLAMA_ROOT"
	else
		die "LLAMA_ROOT: no llama.h in $LLAMA_ROOT"
	fi
	exit 0
fi
if pkg-config --exists llama 2>/dev/null; then
	KIND=host
	CC=gcc
	CPPFLAGS=$(pkg-config --cflags llama)
	LIBS=$(pkg-config --libs llama)
	VERSION=$(version '')
	print
	exit 0
fi
if [ -n "$fetch" ]; then
	"$here/../dist/fetch-llama.sh" --build "$build" >&2 || exit 1
fi
root=$("$here/../dist/fetch-llama.sh" --build "$build" --print) ||
	die 'no libllama here; tools/dist/fetch-llama.sh fetches it, or give LLAMA_ROOT'
as_root "$root"
