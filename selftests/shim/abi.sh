#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Runs the kernel's PTX (OBJECTS-DIR/copy.ptx) in an interpreter, and compares
# what the shim and the stand-in driver believe of CUDA with an installed
# toolkit:  abi.sh OBJECTS-DIR STAND-IN
# CUDA_HOME says where it is (default: /usr/local/cuda).  TAP on stdout.

set -u
out=$1 fake=$2
home=${CUDA_HOME:-/usr/local/cuda}
include=$home/include

n=0
bad=0

# The kernel, instruction by instruction; needs no toolkit.
if command -v python3 >/dev/null; then
	python3 selftests/shim/ptx.py "$out/copy.ptx" | grep -v '^1\.\.'
	bad=$((PIPESTATUS[0] > 0))
	n=3
fi

if ! [ -r "$include/cuda.h" ] || ! [ -r "$include/cudaTypedefs.h" ]; then
	n=$((n + 1))
	echo "ok $n - the ABI against cuda.h # SKIP no CUDA toolkit in $home"
	echo "1..$n"
	exit $bad
fi

# The values and signatures, one test each.
if ! gcc -std=gnu11 -Wall -Wextra -Werror -I. -isystem "$include" \
	selftests/shim/abi.c -o "$out/abi"; then
	echo "not ok $((n + 1)) - the ABI test compiles"
	echo "1..$((n + 1))"
	exit 1
fi
"$out/abi" "$n" >"$out/abi.tap" || bad=1
cat "$out/abi.tap"
n=$((n + $(grep -cE '^(not )?ok ' "$out/abi.tap")))

result() { # description, output: empty is good
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n - $1"
	else
		bad=1
		echo "not ok $n - $1"
		head -n 20 <<<"$2" | sed 's/^/# /'
	fi
}

skip() {
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

# What the stand-in exports is exported by the real one too.
stub=
for f in "$home"/lib64/stubs/libcuda.so "$home"/lib/stubs/libcuda.so \
	"$home"/targets/*/lib/stubs/libcuda.so; do
	[ -e "$f" ] && stub=$f && break
done
symbols() {
	nm -D --defined-only "$1" | awk '$2 == "T" && $3 ~ /^cu[A-Z]/ {print $3}' |
		sort -u
}
if [ -n "$stub" ]; then
	result "the stand-in's symbols are libcuda's" \
		"$(comm -23 <(symbols "$fake") <(symbols "$stub"))"
else
	skip "the stand-in's symbols are libcuda's" "no libcuda stub in $home"
fi

# The kernel assembles for what this toolkit knows.
if [ -x "$home/bin/ptxas" ]; then
	for arch in sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120; do
		text=$("$home/bin/ptxas" -arch=$arch "$out/copy.ptx" \
			-o "$out/copy.cubin" 2>&1)
		if grep -qE "not (supported|defined)" <<<"$text"; then
			skip "the kernel assembles for $arch" \
				"this ptxas doesn't know it"
		else
			result "the kernel assembles for $arch" "$text"
		fi
	done
else
	skip "the kernel assembles" "no ptxas in $home"
fi

echo "1..$n"
exit $bad
