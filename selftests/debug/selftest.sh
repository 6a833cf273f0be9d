#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Does a debug kernel find what it is there to find, and does the run then fail?
# Each kind of bug is made to happen once. Prints TAP.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
arch='' build=$top/build
while (($#)); do
	case $1 in
	--arch) arch=$2; shift 2 ;;
	--build) build=$2; shift 2 ;;
	*) echo 'usage: selftest.sh --arch um|x86 [--build DIR]' >&2; exit 2 ;;
	esac
done
mkdir -p "$build"
build=$(cd "$build" && pwd)

kernel() { "$here/build-kernel.sh" --arch "$arch" --build "$build" "$@"; }
kernel >&2
work=$build/debug-$arch/bugmod
log=$build/vm-logs/debug-$arch-bugs
mkdir -p "$work"
cp "$here/bugmod"/* "$work/"
(
	unset MAKEFLAGS MAKELEVEL MFLAGS CC O B V
	[[ $arch != um ]] || export ARCH=um
	export UBSAN_SANITIZE=y
	make -s -C "$(kernel --print kdir)" M="$work" modules
) >"$work/make.log" 2>&1 || { cat "$work/make.log" >&2; exit 2; }

# what it is asked for, and what the kernel's log must say then
bugs=(
	'uaf BUG: KASAN: .*use-after-free'
	'oob BUG: KASAN: slab-out-of-bounds'
	'double_free BUG: KASAN: (double-free|invalid-free)'
	'lock_order possible circular locking'
	'shift UBSAN: shift-out-of-bounds'
	'bounds UBSAN: array-index-out-of-bounds'
	'list list_add (double add|corruption)'
	'object ODEBUG: free active'
)
[[ $arch = um ]] || bugs+=('sleep BUG: sleeping function called')
bugs+=('leak kmemleak: [0-9]+ new suspected')

args=()
for b in "${bugs[@]}"; do
	args+=(--label "bug-${b%% *}"
		--cmd "echo ${b%% *} >/sys/module/kvmm_bugmod/parameters/bug; true")
done
# shellcheck disable=SC2016 # for the shell there
inject='n=0; hit=0
while [ $n -lt 60 ]; do
	n=$((n + 1))
	echo $n >/proc/self/fail-nth || exit 1
	echo alloc >/sys/module/kvmm_bugmod/parameters/bug || hit=$((hit + 1))
	echo 0 >/proc/self/fail-nth
done 2>/dev/null
[ $hit -gt 0 ] && [ $hit -lt 60 ] && [ -d /sys/kernel/debug/failslab ] &&
	[ -d /sys/kernel/debug/fail_page_alloc ]'
n=0 failed=0
ok()
{
	n=$((n + 1))
	printf 'ok %d - %s\n' $n "$1"
}
not_ok()
{
	n=$((n + 1)) failed=$((failed + 1))
	printf 'not ok %d - %s\n' $n "$1"
}

common=(--arch "$arch" --build "$build")
rc=0
"$here/check.sh" "${common[@]}" --module "$work/kvmm_bugmod.ko" \
	--name "debug-$arch-bugs" -- --quiet "${args[@]}" >"$work/log" 2>&1 || rc=$?
if ((rc == 1)); then
	ok 'a run with bugs fails'
else
	not_ok "a run with bugs ends with $rc"
fi
for b in "${bugs[@]}"; do
	name=${b%% *} want=${b#* }
	# the leak is found at the end
	if cat "$log"/console*.log | tr -d '\r' | awk -v want="$want" -v name="bug-$name" '
		/kvmm-vm: begin/ { on = $NF == name }
		on && $0 ~ want { found = 1 }
		END { exit !found }'; then
		ok "$name"
	else
		not_ok "$name: no '$want' in $log/console*.log"
	fi
done
# What modules hold is a leak on UML unless all of them are unloaded in the end.
modules='modprobe null_blk nr_devices=0 && modprobe brd rd_nr=0 && modprobe dm-delay && modprobe loop'
if "$here/check.sh" "${common[@]}" --module "$work/kvmm_bugmod.ko" \
	--name "debug-$arch-inject" -- --quiet --label fail-nth --cmd "$inject" \
	--label modules --cmd "$modules" >"$work/log2" 2>&1; then
	ok 'fail-nth works, and a run without bugs passes'
else
	not_ok "fail-nth, or a run without bugs; see $work/log2"
fi
printf '1..%d\n' $n
((failed == 0))
