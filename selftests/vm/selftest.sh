#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Test of the VM harness: each way in which a run can go wrong is made to happen,
# and run.sh must report it as what it is. Prints TAP.
set -euo pipefail

usage()
{
	echo 'usage: selftest.sh [--kernel SERIES] [--build DIR]'
}

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
series=6.1 build=$top/build
while (($#)); do
	case $1 in
	--kernel) series=$2; shift 2 ;;
	--build) build=$2; shift 2 ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
done
mkdir -p "$build/vm-selftest"
build=$(cd "$build" && pwd)
work=$build/vm-selftest
logs=$build/vm-logs

fetch=("$top/tools/dist/fetch-kernel.sh" --kernel "$series" --build "$build")
"${fetch[@]}" headers image
mkdir -p "$work/badmod"
cp "$here/badmod"/* "$work/badmod/"
make -s -C "$("${fetch[@]}" --print kdir)" M="$work/badmod" modules >"$work/make.log" 2>&1 || {
	cat "$work/make.log" >&2
	exit 2
}
bad=$work/badmod/kvmm_badmod.ko

prog()
{
	{ echo '#!/bin/sh'; cat; } >"$work/$1"
	chmod 755 "$work/$1"
}
# No machine of that run is left.
gone()
{
	! pgrep -f "[q]emu-system.*$logs/$1/" >/dev/null
}

prog passes <<'X'
echo TAP version 13
echo 1..3
echo ok 1 one
echo 'ok 2 two # SKIP not here'
echo ok 3 three
X
prog fails <<'X'
echo 1..2
echo ok 1 one
echo not ok 2 two
exit 1
X
prog skips <<'X'
echo '1..0 # SKIP no such device'
exit 4
X
prog quits <<'X'
echo 1..5
echo ok 1 one
X
prog exits <<'X'
echo ok 1 one
exit 7
X
prog hangs <<'X'
echo ok 1 one
sleep 1000
X
prog lies <<'X'
echo not ok 1 one
X

n=0 failures=0
check() # description command...
{
	local what=$1
	shift
	n=$((n + 1))
	if "$@"; then
		echo "ok $n $what"
	else
		echo "not ok $n $what"
		failures=$((failures + 1))
	fi
}

run() # name arguments...
{
	local name=$1 rc=0
	shift
	"$here/run.sh" --kernel "$series" --build "$build" --name "selftest-$name" "$@" \
		>"$work/$name.out" 2>&1 || rc=$?
	echo "$rc" >"$work/$name.rc"
}

summary() { grep -qx "$2" "$logs/selftest-$1/summary"; }
counts() # name exit-code passed failed skipped
{
	if [[ $(cat "$work/$1.rc") = "$2" ]] && summary "$1" "passed=$3" &&
	    summary "$1" "failed=$4" && summary "$1" "skipped=$5"; then
		return 0
	fi
	sed 's/^/#   /' "$work/$1.out"
	return 1
}
says() { grep -qE "$2" "$work/$1.out"; }
has_point() { grep -qE "$(printf '^%s\t%s\t%s' "$2" "$3" "${4-}")" "$logs/selftest-$1/points"; }

# ---- the log scanner by itself ----

scan() { awk -v allow="${1-}" -f "$here/klog-scan.awk" | sed -n 's/^reports //p'; }
harmless='[    0.1] Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on
[    0.2] kasan: KernelAddressSanitizer initialized
[    0.3] kvmm: loading out-of-tree module taints kernel.
[    9.0] kvmm-vm: begin 0 5 a BUG: in a name
[    9.1] kvmm-vm: dump begin
[    9.2] INFO: task x:1 blocked for more than 30 seconds.
[    9.3] kvmm-vm: dump end'
check 'log scan: harmless lines' test "$(scan <<<"$harmless")" = 0
while IFS= read -r line; do
	check "log scan: $line" test "$(scan <<<"[    1.000000] $line")" = 1
done <<'X'
WARNING: CPU: 0 PID: 1 at kmod/pool.c:1 f+0x1/0x2 [kvmm]
WARNING: kmod/pool.c:1 at f+0x1/0x2 [kvmm], CPU#0: x/1
WARNING: possible circular locking dependency detected
WARNING: suspicious RCU usage
BUG: KASAN: slab-use-after-free in f+0x1/0x2 [kvmm]
BUG: unable to handle page fault for address: 0000000000001000
BUG: sleeping function called from invalid context at mm/x.c:1
BUG kmalloc-64 (Tainted: G    B  O): Poison overwritten
kernel BUG at kmod/pool.c:1!
Oops: 0002 [#1] PREEMPT SMP PTI
general protection fault, probably for non-canonical address 0xdead
UBSAN: shift-out-of-bounds in kmod/pool.c:1:2
INFO: task kvmm:1 blocked for more than 60 seconds.
watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [kvmm:1]
rcu: INFO: rcu_preempt self-detected stall on CPU
rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
refcount_t: underflow; use-after-free.
kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
list_add corruption. prev->next should be next
Kernel panic - not syncing: Fatal exception
BUG: Bad page state in process x  pfn:00001
page allocation failure: order:9, mode:0x1
X
check 'log scan: time stamp with caller' test "$(scan <<<'[    1.0][  T123] WARNING: CPU: 0')" = 1
check 'log scan: allowed line' test "$(scan 'order:9' <<<'[    1.0] page allocation failure: order:9')" = 0

# ---- runs ----

# shellcheck disable=SC2016 # the VM's shell expands them
run good --cpus 2 --numa 2 --test "$work/passes" --test "$work/skips" \
	--file /usr/bin/od --file "$work/passes:/data/x" --env 'WORDS=two words' \
	--module "$bad" --rmmod \
	--label command --cmd 'echo data >/mnt/disk/file && echo raw >/dev/vdb && /t/od -N 16 /dev/vdb >/tmp/od.txt &&
		[ "$(nproc)" = 2 ] && [ -d /sys/devices/system/node/node1 ] &&
		[ "$WORDS" = "two words" ] && [ -x /data/x ] && [ -d /sys/module/kvmm_badmod ] &&
		modprobe null_blk && [ -b /dev/nullb0 ] && rmmod null_blk &&
		printf "upper\n\n\nlower\n\nlast"' \
	--out /mnt/nothing --out /tmp/od.txt --out /proc/version &
good=$!
run bad --disk 0 --test "$work/fails" --test "$work/exits" --test "$work/quits" --test "$work/hangs:3" \
	--test "$work/lies" --test /t/nothing --cmd false --cmd true &
wait "$good" "$!"
check 'a good run passes' counts good 0 5 0 2
check 'skips are counted' has_point good skipped skips
blanks()
{
	[[ $(sed -n '/^upper$/,/^#/p' "$work/$1.out" | paste -sd'|') = 'upper|||lower||last|# command: pass '* ]]
}
check 'empty lines stay, and none is added' blanks good
check 'TAP of tests is shown' says good '^ok 3 three$'
check 'files come back' grep -q '^0000000' "$logs/selftest-good/out/tmp/od.txt"
check 'rmmod is reported' has_point good passed rmmod
check 'a bad run fails' counts bad 1 6 7 0
check 'a failed point' has_point bad failed fails '2 two'
check 'an exit code without a failed point' has_point bad failed exits 'exit code 7'
check 'fewer points than planned' has_point bad failed quits 'planned 5 test points, 1 came'
check 'a test that hangs' has_point bad failed hangs 'no end within 3 s'
check 'where it hung' says bad 'task [0-9]+ \(sleep\)'
check 'a failed point and exit code 0' has_point bad failed lies '1 one'
check 'a missing program' has_point bad failed nothing 'exit code 127'
check 'a test after a hung one' has_point bad passed true
check 'no report from a dump that was asked for' has_point bad passed kernel-log

run warn --module "$bad" --module-args what=warn --test "$work/passes" &
warn=$!
run oops --file "$bad" --test "$work/passes" --cmd 'insmod /t/kvmm_badmod.ko what=oops' --test "$work/fails" &
wait "$warn" "$!"
check 'a kernel warning fails the run' counts warn 1 2 1 1
check 'the warning is shown' says warn '#   .*asked for'
check 'an oops ends the run' counts oops 1 2 3 1
check 'the oops is shown' says oops 'BUG: kernel NULL pointer dereference'
check 'the test that it hit' has_point oops failed 'insmod.*' 'the VM died'
check 'tests after it have not passed' has_point oops failed fails 'not run'

run stuck --file "$bad" --test-timeout 3 --cmd 'insmod /t/kvmm_badmod.ko what=stuck' --cmd true &
stuck=$!
run param --module "$bad" --module-args what=nonsense --cmd true &
wait "$stuck" "$!"
check 'a test that cannot be killed' has_point stuck failed 'insmod.*' 'stuck in the kernel'
check 'where it is stuck' says stuck 'badmod_init'
check 'tests after it have not passed' has_point stuck failed true 'not run'
check 'the machine is gone with it' gone stuck
check 'a module that does not load' has_point param failed insmod
check 'tests without their module have not passed' counts param 1 1 2 0

run boot --append rdinit=/nonexistent --disk 0 --cmd true
check 'a kernel that does not boot' counts boot 1 0 2 0
check 'boots are tried again' summary boot boots=3

echo "1..$n"
[[ $failures = 0 ]]
