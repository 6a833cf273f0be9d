#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Replays a trace on the kernel backend, in the test VM (busybox sh): no byte is
# wrong, both tiers are used, and the hits are those of the user backend, whose
# figures replay-host.sh put into DIR/user.json.  TAP.  replay-vm.sh DIR

dir=$1
n=0 bad=0
ours=/tmp/replay.json err=/tmp/replay.err

value() { sed -n "s/.*\"$2\": *\"*\\([^,\"}]*\\).*/\\1/p" "$1" | head -n 1; }

# result STATUS WHAT
result()
{
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $n - $2"
	else
		bad=1
		echo "not ok $n - $2"
	fi
}

kvmmctl replay "$dir/trace.jsonl" --backend kernel --limit 2000 \
	--frames 1000 --slots 4000 --block-size 64K --json \
	--swap "$KVMM_DISK/replay.swap" >$ours 2>$err
result $? 'replay ends'
sed 's/^/# kernel: /' $ours $err
sed 's/^/# user: /' "$dir/user.json"

[ "$(value $ours backend)" = kernel ]
result $? 'on the kernel backend'
[ "$(value $ours corrupt)" = 0 ]
result $? 'no byte is wrong'
[ "$(value $ours hits_memory)" -gt 0 ] && [ "$(value $ours hits_swap)" -gt 0 ]
result $? 'hits in memory and in the area'
[ "$(value $ours swap_out_bytes)" -gt $((4000 * 65536)) ]
result $? 'more was written than the area holds'
for key in requests blocks hits hits_memory hits_swap swap_out_bytes \
	swap_in_bytes; do
	[ "$(value $ours $key)" = "$(value "$dir/user.json" $key)" ]
	result $? "$key: as on the user backend"
done
[ "$(cat /sys/kernel/kvmm/nr_pools)" = 0 ] &&
	[ "$(cat /sys/kernel/kvmm/pinned_bytes)" = 0 ]
result $? 'nothing is left'
echo "1..$n"
exit $bad
