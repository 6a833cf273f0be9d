#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What can be said of the sources without running them; TAP on stdout.
#   style.sh BUILD-DIR
# Needs checkpatch.pl and kernel-doc (fetched into BUILD-DIR/kernel/scripts),
# sparse, and the kernel headers the module is built with.

set -u
build=$1
scripts=$build/kernel/scripts
n=0
bad=0

# make -j gives the descriptors of its jobs to other makes only; what make says
# of those that are missing here is no finding
MAKEFLAGS=$(sed -E 's/(^| )(-j[0-9]*|--jobserver-[^ ]*)//g' <<<"${MAKEFLAGS-}")
export MAKEFLAGS

result() { # description, output: empty is good
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n - $1"
	else
		bad=$((bad + 1))
		echo "not ok $n - $1"
		head -n 30 <<<"$2" | sed 's/^/# /'
	fi
}

skip() {
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

kernel_code=$(git ls-files 'kmod/*.[ch]' 'uapi/*.h')
user_code=$(git ls-files 'libkvmm/*.[ch]' 'tools/*.[ch]' 'gpu-shim/*.[ch]')

# BIT() is not for uapi headers; types.h has the userspace half of the core's
# types; check.c and tests return from macros, as kselftest's own do.
checkpatch() {
	local ignore=$1 strict=$2
	shift 2
	perl "$scripts/checkpatch.pl" --no-tree $strict --terse --show-types \
		--no-summary --ignore "$ignore" -f "$@" 2>&1
}

if [ -x "$scripts/checkpatch.pl" ] || [ -r "$scripts/checkpatch.pl" ]; then
	out=
	for f in $kernel_code; do
		ignore=NONE
		case $f in
		uapi/*) ignore=BIT_MACRO ;;
		kmod/core/types.h)
			ignore=PREFER_KERNEL_TYPES,NEW_TYPEDEFS
			ignore+=,COMPLEX_MACRO,PREFER_DEFINED_ATTRIBUTE_MACRO ;;
		# the kernel's own way of writing tracepoints
		kmod/trace.h) ignore=OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT ;;
		kmod/core/check.c) ignore=MACRO_WITH_FLOW_CONTROL ;;
		esac
		out+=$(checkpatch "$ignore" --strict "$f")
	done
	result "checkpatch --strict: kernel code" "$out"
	# Rules for the kernel's own macros, errors and messages are left out.
	ignore=SPLIT_STRING,USE_NEGATIVE_ERRNO,PREFER_DEFINED_ATTRIBUTE_MACRO
	ignore+=,COMPLEX_MACRO,NEW_TYPEDEFS,ENOSYS,TRAILING_SEMICOLON,VOLATILE
	ignore+=,MULTISTATEMENT_MACRO_USE_DO_WHILE,MACRO_WITH_FLOW_CONTROL,MISSING_SPACE
	export -f checkpatch
	export scripts
	result "checkpatch: userspace code" "$(xargs -P "$(nproc)" -n 20 \
		bash -c 'checkpatch "$0" "" "$@"' "$ignore" <<<"$user_code")"
	result "kernel-doc: public headers" "$(perl "$scripts/kernel-doc" -none \
		uapi/linux/kvmm.h libkvmm/include/kvmm.h \
		libkvmm/include/kvmm_engine.h 2>&1)"
else
	skip "checkpatch, kernel-doc" "not fetched: make kselftest-headers"
fi

if command -v sparse >/dev/null; then
	result "sparse and W=1: the module" "$(make -s modules-check 2>&1 |
		grep -E 'warning|error' )"
else
	skip "sparse" "not installed"
fi

if ! command -v spatch >/dev/null; then
	skip "coccinelle" "not installed"
elif ! [ -d "$scripts/coccinelle" ]; then
	skip "coccinelle" "no semantic patches: remove $build/kernel/.kselftest"
else
	result "coccinelle: the module" "$(selftests/cocci.sh \
		"$scripts/coccinelle")"
fi

out=
for f in $(git ls-files '*.c' '*.h' '*.sh' '*.py' '*.mk' Makefile Kbuild \
	.ci/run); do
	head -n 3 "$f" | grep -q SPDX-License-Identifier || out+="$f"$'\n'
done
result "every source has an SPDX line" "$out"

result "kernel versions are known to kmod/compat only" \
	"$(git grep -nI LINUX_VERSION_CODE -- kmod ':!kmod/compat')"

out=
for f in $(git ls-files '*.sh' .ci/run); do
	out+=$(bash -n "$f" 2>&1)
done
result "shell scripts parse" "$out"

# gcc 12's analyzer does not know vector types, which content.c is made of; one
# file needs libllama's header.
analyze() {
	gcc -std=gnu11 -O1 -fanalyzer -D_GNU_SOURCE -DKVMM_VERSION='""' \
		-Iuapi -Ilibkvmm/include -Ikmod -Ilibkvmm -c "$1" -o /dev/null \
		2>&1 | grep -E 'warning|error'
}
export -f analyze
result "gcc -fanalyzer: library and tools" "$(git ls-files 'libkvmm/*.c' \
	'tools/*.c' 'kmod/core/*.c' ':!tools/kvmmctl/content.c' \
	':!tools/llama/engine_llama.c' |
	xargs -P "$(nproc)" -I{} bash -c 'analyze {}')"

echo "1..$n"
exit $((bad > 0))
