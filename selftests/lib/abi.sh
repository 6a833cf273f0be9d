#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What the library promises to programs that are compiled against it, TAP on
# stdout: layouts, exported symbols, no state of its own, an installation that
# works, manual pages.
#   abi.sh BUILD-FOLDER (of the variant)

set -u
out=$1
header="libkvmm/include/kvmm.h libkvmm/include/kvmm_engine.h"
uapi=uapi/linux/kvmm.h
so=$out/libkvmm.so.0
tmp=$out/lib-abi
no=0

rm -rf "$tmp"
mkdir -p "$tmp"

# ok WHAT COMMAND...: its output is shown where it fails
ok()
{
	local what=$1
	shift
	no=$((no + 1))
	if "$@" >"$tmp/out" 2>&1; then
		echo "ok $no - $what"
	else
		sed 's/^/# /' "$tmp/out"
		echo "not ok $no - $what"
	fi
}

skip()
{
	no=$((no + 1))
	echo "ok $no - $1 # SKIP $2"
}

same()
{
	diff "$1" "$2"
}

empty()
{
	cat "$1"
	[ ! -s "$1" ]
}

functions()
{
	# declarations: a name before a bracket, outside of comments
	# shellcheck disable=SC2086
	for f in $header; do
		gcc -fpreprocessed -E -P "$f"
	done | tr '\n' ' ' |
		grep -oE '\bkvmm_[a-z_]+\([^;{]*\);' |
		sed 's/(.*//' | sort -u
}

layout()
{
	"$1" "-m$2" -std=gnu11 -Wall -Wextra -Werror -Iuapi \
		-I"/usr/include/$(gcc -print-multiarch)" -fsyntax-only \
		selftests/lib/uapi_layout.c
}

ok "layout, 64 bit" layout gcc 64
ok "layout, 32 bit" layout gcc 32

# every struct and every define of the interface is in the layout test
sed -n 's/^struct \(kvmm_[a-z_]*\) {$/\1/p' $uapi | sort >"$tmp/structs"
sed -n 's/^SIZE(\(kvmm_[a-z_]*\),.*/\1/p' selftests/lib/uapi_layout.c |
	sort >"$tmp/asserted"
ok "every struct is covered" same "$tmp/structs" "$tmp/asserted"
sed -n 's/^#define \(KVMM_[A-Z_]*\)[ \t].*/\1/p' $uapi | sort >"$tmp/defines"
sed -n 's/^NUMBER(\(KVMM_[A-Z_]*\),.*/\1/p' selftests/lib/uapi_layout.c |
	sort >"$tmp/numbers"
comm -23 "$tmp/defines" "$tmp/numbers" >"$tmp/missing"
ok "every number is covered" empty "$tmp/missing"

echo '#include <kvmm_engine.h>' >"$tmp/c.c"
echo 'int main(void) { return 0; }' >>"$tmp/c.c"
cp "$tmp/c.c" "$tmp/cc.cc"
flags="-Wall -Wextra -pedantic -Werror -Iuapi -Ilibkvmm/include -fsyntax-only"
# shellcheck disable=SC2086
ok "the header is plain C" gcc -std=c11 $flags "$tmp/c.c"
# shellcheck disable=SC2086
ok "the header is C++, too" g++ $flags "$tmp/cc.cc"

functions >"$tmp/declared"
nm -D --defined-only "$so" | awk '$2 != "A" { print $3 }' |
	sed 's/@.*//' | sort >"$tmp/exported"
ok "more than thirty functions are declared" \
	test "$(wc -l <"$tmp/declared")" -gt 30
ok "all that is declared is exported, and nothing else" \
	same "$tmp/declared" "$tmp/exported"
nm -D --defined-only --with-symbol-versions "$so" |
	awk '$2 != "A" && $3 !~ /@@KVMM_0\.1$/ { print }' >"$tmp/unversioned"
ok "every symbol has a version" empty "$tmp/unversioned"
ok "the soname" grep -q 'SONAME.*\[libkvmm.so.0\]' <(readelf -d "$so")

# writable data would be state shared by all users of the library
size -A "$out"/libkvmm/*.o "$out"/kmod/core/*.o "$out"/gpu-shim/*.o |
	awk '/^build/ || /:$/ { file = $1 }
	     ($1 ~ /^\.(data|bss|tdata|tbss)$/) && $2 > 0 { print file, $1, $2 }' \
	>"$tmp/state"
ok "no global state" empty "$tmp/state"

ok "install" make --no-print-directory install-lib PREFIX=/usr \
	DESTDIR="$PWD/$tmp/root"
root=$PWD/$tmp/root/usr
for f in include/kvmm.h include/kvmm_engine.h include/linux/kvmm.h lib/libkvmm.a lib/libkvmm.so \
	lib/libkvmm.so.0 lib/pkgconfig/libkvmm.pc share/man/man3/kvmm_open.3 \
	share/man/man3/kvmm_swap_in.3; do
	ok "installed: $f" test -r "$root/$f"
done

export PKG_CONFIG_PATH=$root/lib/pkgconfig
export PKG_CONFIG_SYSROOT_DIR=$PWD/$tmp/root
pc() { pkg-config "$@" libkvmm; }
ok "pkg-config finds it" pc --exists
ok "pkg-config tells the version" \
	test "$(pc --modversion)" = "$(sed -n 's/^VERSION := //p' Makefile)"
build_dynamic()
{
	# shellcheck disable=SC2046
	gcc -Wall -Wextra -Werror "libkvmm/$1.c" $(pc --cflags --libs) \
		-o "$tmp/$1"
}
build_static()
{
	# shellcheck disable=SC2046
	gcc -Wall -Wextra -Werror "libkvmm/$1.c" $(pc --cflags) \
		"$root/lib/libkvmm.a" \
		$(PKG_CONFIG_SYSROOT_DIR='' pc --static --libs |
			sed 's/-lkvmm//') -o "$tmp/$1-static"
}
ran()
{
	"$@" "$tmp/example.swap" || return 1
	test ! -e "$tmp/example.swap"
}
found() { "$@" "$tmp/example.swap" 2>&1 | grep '8 blocks found, 2 computed'; }
ok "the example builds" build_dynamic example
ok "the example runs" ran env LD_LIBRARY_PATH="$root/lib" "$tmp/example"
ok "the example finds its prefix" found env LD_LIBRARY_PATH="$root/lib" \
	"$tmp/example"
ok "the example builds with the static library" build_static example
ok "the example runs with the static library" found "$tmp/example-static"
served()
{
	"$@" "$tmp/example.swap" >"$tmp/served" 2>&1
	cat "$tmp/served"
	[ "$(cut -d: -f2 "$tmp/served" | tr -d '\n')" = " 0 loaded, 200 computed$(
		) 192 loaded, 108 computed 96 loaded, 204 computed$(
		) 288 loaded, 32 computed" ]
}
ok "the engine example builds" build_dynamic example_engine
ok "the engine example loads what it can" served env \
	LD_LIBRARY_PATH="$root/lib" "$tmp/example_engine"
ok "the engine example builds with the static library" \
	build_static example_engine
ok "the engine example runs with the static library" served \
	"$tmp/example_engine-static"
ok "no GPU driver is needed to link or to run" test -z \
	"$(readelf -d "$so" | grep NEEDED | grep -iE 'cuda|drm')"

# manual pages: one section "NAME" or another names every function
while read -r f; do
	grep -qE "^\.Nm $f( ,)?\$" libkvmm/man/*.3 || echo "$f"
done <"$tmp/declared" >"$tmp/undocumented"
ok "every function has a manual page" empty "$tmp/undocumented"
if command -v mandoc >/dev/null; then
	lint()
	{
		mandoc -T lint -W warning libkvmm/man/*.[37]
	}
	ok "manual pages, lint" lint
else
	skip "manual pages, lint" "no mandoc"
fi
echo "1..$no"
