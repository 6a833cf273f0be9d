#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Build a module that tests need, outside the tree.
set -eu

usage()
{
	echo 'usage: build-module.sh --kdir KDIR --source DIR --work DIR --output FILE'
}

while [ $# -gt 0 ]; do
	case $1 in
	--kdir) kdir=$2 ;;
	--source) src=$2 ;;
	--work) work=$2 ;;
	--output) out=$2 ;;
	*) usage >&2; exit 2 ;;
	esac
	shift 2
done

# The environment of a calling make is not meant for the kernel's.
unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES VARIANT CFLAGS CPPFLAGS LDFLAGS
unset CC O B V

mkdir -p "$work"
work=$(cd "$work" && pwd)
cp "$src"/* "$work/"
set -- make -s -C "$kdir" M="$work" modules
# BTF of a module is for tracers; headers that bring a vmlinux ask for it.
command -v pahole >/dev/null 2>&1 || set -- "$@" CONFIG_DEBUG_INFO_BTF_MODULES=
"$@" >"$work/log" 2>&1 || {
	cat "$work/log" >&2
	exit 1
}
cp "$work"/*.ko "$out"
