#!/bin/sh
# SPDX-License-Identifier: MIT
#
# kvmmctl on the kernel backend, in the test VM (busybox sh): pools by name,
# counters, a replay that leaves nothing behind.  TAP.

n=0 bad=0
out=/tmp/kvmmctl.out err=/tmp/kvmmctl.err

# run WANTED-STATUS ARGUMENT...: output goes to $out and $err
run()
{
	want=$1
	shift
	kvmmctl "$@" >$out 2>$err
	rc=$?
	[ $rc -eq "$want" ]
}

# result STATUS WHAT
result()
{
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $n - $2"
		return
	fi
	bad=1
	echo "not ok $n - $2"
	echo "# exit $rc"
	sed 's/^/# stdout: /' $out
	sed 's/^/# stderr: /' $err
}

has() { grep -q -- "$1" $out; }
says() { grep -q -- "$1" $err; }

swap=$KVMM_DISK/kvmmctl.swap

cat >/tmp/trace.jsonl <<'END'
{"timestamp": 0, "hash_ids": [1, 2, 3, 4]}
{"timestamp": 1, "hash_ids": [1, 2, 5, 6]}
{"timestamp": 2, "hash_ids": [1, 2, 3, 4]}
END

run 0 stat && has '^backend  *kernel' && has 'in 0 pools'
result $? 'stat, no pool yet: auto takes the kernel'

run 0 pool create one --block-size 64K --frames 64
result $? 'pool create'
run 1 pool create one --block-size 64K --frames 64 &&
	says '^kvmmctl pool create: there is a pool one already$'
result $? 'pool create: the name is taken'
run 0 stat && has '^memory  *4 MiB in 1 pool$'
result $? 'stat: one pool'
run 0 pool create two --block-size 2M --frames 8 --slots 16 --swap "$swap" \
	--mode 0640 --clean 100:250 --json && has '"backend": "kernel"' &&
	has '"memory_bytes": 16777216' &&
	[ "$(cat /sys/kernel/kvmm/pools/two/clean_low)" -eq 100 ] &&
	[ "$(cat /sys/kernel/kvmm/pools/two/clean_high)" -eq 250 ]
result $? 'pool create with a swap area, JSON'
run 0 pool create soft --block-size 1M --frames 8 --elastic 6 --chunk 2 &&
	[ "$(cat /sys/kernel/kvmm/pools/soft/nr_elastic)" -eq 6 ] &&
	[ "$(cat /sys/kernel/kvmm/pools/soft/chunk_frames)" -eq 2 ] &&
	run 0 pool show soft && has 'given back to the system' &&
	run 0 pool destroy soft
result $? 'pool create with elastic frames'
run 0 pool create near --block-size 2M --frames 4 --nodes 0 --prefer-nodes &&
	[ "$(cat /sys/kernel/kvmm/pools/near/nodes)" = 0 ] &&
	[ "$(cat /sys/kernel/kvmm/pools/near/nodes_prefer)" -eq 1 ] &&
	[ "$(cat /sys/kernel/kvmm/pools/near/frames_misplaced)" -eq 0 ] &&
	run 0 pool destroy near
result $? 'pool create on a NUMA node'
run 1 pool create far --block-size 2M --frames 4 --nodes 0,63 &&
	says 'pool create: --nodes: a node does not exist'
result $? 'pool create on a node that is not there'
run 0 pool create later --block-size 1M --frames 64 --populate none &&
	has '^memory  *64 frames have none' &&
	[ "$(cat /sys/kernel/kvmm/pools/later/frames_online)" -eq 0 ] &&
	run 0 pool populate later && ! [ -s $err ] &&
	has '64 of 64 frames have memory, 0 are to come' &&
	[ "$(cat /sys/kernel/kvmm/pools/later/frames_online)" -eq 64 ] &&
	[ "$(cat /sys/kernel/kvmm/pools/later/nr_clients)" -eq 0 ] &&
	run 0 pool destroy later
result $? 'pool create --populate none, pool populate'
run 0 pool create later --block-size 1M --frames 64 --populate async --json &&
	has '"frames_populating": ' && run 0 pool populate later --wait --json &&
	has '"frames_online": 64' && has '"frames_populating": 0' &&
	run 0 pool populate later --cancel && run 0 pool destroy later
result $? 'pool create --populate async, pool populate --wait, --cancel'
run 1 pool populate nothing &&
	says '^kvmmctl pool populate: there is no pool nothing$'
result $? 'pool populate: no such pool'
run 1 pool create big --block-size 1M --frames 100000000 --populate async &&
	says '^kvmmctl pool create: big needs 95.37 TiB of memory, and all pools together may have [0-9.]* [MG]iB, of which [0-9.]* [MG]iB is left: 80 % of the machine.s memory, which is the default of /sys/module/kvmm/parameters/max_bytes$' &&
	! [ -s $out ] && [ "$(grep -c . $err)" -eq 1 ] && run 1 pool show big
result $? 'pool create --populate async: no memory, no pool'

# What is in progress depends on the machine: such tests go on until they have
# seen it once.
# kill_early COMMAND ARGUMENT...: SIGINT as soon as some frames have memory
kill_early()
{
	"$@" >$out 2>$err &
	pid=$!
	until [ "$(cat $file 2>/dev/null || echo 0)" -gt 0 ] || ! kill -0 $pid 2>/dev/null; do
		:
	done
	kill -INT $pid 2>/dev/null
	wait $pid
	rc=$?
}
file=/sys/kernel/kvmm/pools/big/frames_online
i=0 rc=0
while [ $rc -eq 0 ] && [ $i -lt 20 ]; do
	kill_early kvmmctl pool create big --block-size 1M --frames 256 \
		--threads 1
	[ $rc -ne 0 ] || kvmmctl pool destroy big >/dev/null
	i=$((i + 1))
done
[ $rc -eq 130 ] && says '^kvmmctl pool create: interrupted: big was not made$' &&
	! [ -s $out ] && ! [ -e $file ] && run 1 pool show big
result $? 'pool create: SIGINT while the memory comes, and nothing is left'
i=0 rc=0
while [ $rc -eq 0 ] && [ $i -lt 20 ]; do
	kvmmctl pool create big --block-size 1M --frames 256 --threads 1 \
		>$out 2>$err &
	pid=$!
	until [ "$(cat $file 2>/dev/null || echo 0)" -gt 0 ]; do
		:
	done
	kill -STOP $pid
	kvmmctl pool destroy big --force >/dev/null
	kvmmctl pool create big --block-size 64K --frames 8 >/dev/null
	kill -CONT $pid
	wait $pid
	rc=$?
	[ $rc -ne 0 ] || kvmmctl pool destroy big >/dev/null
	i=$((i + 1))
done
[ $rc -eq 1 ] && ! [ -s $out ] && [ "$(cat $file)" -eq 8 ] &&
	says 'pool create: someone destroyed big before it was complete$' &&
	run 0 pool destroy big
result $? 'pool create: destroyed meanwhile; who has the name now stays'
kvmmctl pool create big --block-size 1M --frames 256 --populate none >/dev/null
i=0 rc=0
while [ $rc -eq 0 ] && [ $i -lt 20 ]; do
	kill_early on_tty kvmmctl pool populate big --threads 1
	if [ $rc -eq 0 ]; then
		kvmmctl pool destroy big >/dev/null
		kvmmctl pool create big --block-size 1M --frames 256 \
			--populate none >/dev/null
	fi
	i=$((i + 1))
done
[ $rc -eq 130 ] && says 'interrupted: big keeps the memory that has come' &&
	[ "$(cat /sys/kernel/kvmm/pools/big/frames_populating)" -eq 0 ] &&
	[ "$(cat $file)" -lt 256 ]
result $? 'pool populate: SIGINT ends it'
on_tty kvmmctl pool populate big >$out 2>$err
rc=$?
[ $rc -eq 0 ] && has '256 of 256 frames' && [ "$(cat $file)" -eq 256 ]
result $? 'pool populate: the rest, later'
kvmmctl pool destroy big >/dev/null
kvmmctl pool create big --block-size 1M --frames 256 --populate none >/dev/null
on_tty kvmmctl pool populate big --threads 1 --json >$out 2>$err
rc=$?
[ $rc -eq 0 ] && says '^.\[[#.]\{24\}\] *[0-9]* %  [0-9]* of 256 frames  [0-9.]* [KMG]*i*B/s' &&
	! grep -q '\[[#.]' $out && has '"frames_online": 256'
result $? 'pool populate: progress on a terminal, and only there'
kvmmctl pool destroy big >/dev/null

[ "$(stat -c %s "$swap")" -eq 33554432 ]
result $? 'the swap file has the size of its slots'
run 1 pool create three --block-size 2M --frames 8 --slots 16 --swap "$swap" &&
	run 1 pool show three
result $? 'an area in use is refused, and the pool is not left behind'
run 1 pool create three --block-size 2M --frames 8 --slots 16 --swap "$swap"
[ "$(grep -c . $err)" -eq 1 ] &&
	says 'swap is in use: mounted, or the swap area of a pool already$'
result $? 'an area in use is told in one sentence'
# /tmp is a tmpfs; newer kernels have O_DIRECT there
if run 0 pool create three --block-size 64K --frames 4 --slots 4 --swap /tmp/a; then
	run 0 pool destroy three && rm /tmp/a
else
	[ "$(grep -c . $err)" -eq 1 ] && ! [ -e /tmp/a ] &&
		says "^kvmmctl pool create: /tmp/a can't be a swap area: it would be on a tmpfs, which is memory itself and has no O_DIRECT here; give a file on a disk\$"
fi
result $? 'a swap file on a tmpfs is refused in one sentence'
# shellcheck disable=SC2016
(cd /tmp && run 0 replay trace.jsonl --backend user --block-size 64K --frames 4 \
	--slots 4 --swap a || { [ "$(grep -c . $err)" -eq 1 ] &&
	says "^kvmmctl replay: a can't be a swap area: it would be on a tmpfs"; })
result $? 'the same on the user backend'

run 0 pool list && has '^one .* 0600 .*64 KiB' && has '^two .* 0640 .*2 MiB'
result $? 'pool list'
run 0 pool list --json && has '"name": "one"' && has '"mode": "0640"'
result $? 'pool list, JSON'
run 0 pool show two && has '^policy  *lru' && has '^frames_free  *8 frames' &&
	has '^slots_free  *16 slots' && has '^clients  *0 clients'
result $? 'pool show'
run 0 stat two --json && has '"slots_free": 16' && has '"checksums": true'
result $? 'stat NAME, JSON'
run 0 stat two --json && has '"latency_out_us": {' &&
	has '"alloc_wait_us": {' && has '"p99": 0' && has '"exports": 0' &&
	run 0 stat two && has '^latency_in  *0 blocks read back$' &&
	has '^bytes_out  *0 commands that wrote$'
result $? 'stat NAME: histograms of a pool that has done nothing'
run 0 stat two --watch 1 --count 2 && has 'lookups/s'
result $? 'stat --watch'
run 1 pool show nothing && says '^kvmmctl pool show: there is no pool nothing$'
result $? 'pool show: no such pool'

# Limits; 'one' and 'two' are there and hold 4 MiB and 16 MiB.
param=/sys/module/kvmm/parameters
echo 29360128 >$param/max_bytes
run 1 pool create more --block-size 1M --frames 9 --json &&
	says '^kvmmctl pool create: more needs 9 MiB of memory, and all pools together may have 28 MiB, of which 8 MiB is left: set in /sys/module/kvmm/parameters/max_bytes$' &&
	has '"error": "no memory"' && has '"name": "more"' &&
	has '"needed_bytes": 9437184' && has '"limit": "node"' &&
	has '"limit_bytes": 29360128' && has '"left_bytes": 8388608' &&
	has "\"set_in\": \"$param/max_bytes\""
result $? 'pool create: beyond the limit of the node'
run 0 pool create more --block-size 1M --frames 10 --elastic 4 --chunk 2 \
	--populate none && run 1 pool populate more &&
	says '^kvmmctl pool populate: more needs \(10 MiB\|[24] MiB more\) of memory, and all pools together may have 28 MiB, of which \(8 MiB\|2 MiB\|0 bytes\) is left: set in' &&
	run 0 pool destroy more
result $? 'pool populate: beyond the limit of the node'
run 1 replay /tmp/trace.jsonl --block-size 1M --frames 5 &&
	says '^kvmmctl replay: replay-[0-9]* needs 9 MiB of memory, and all pools together may have 28 MiB' &&
	! [ -s $out ] && [ "$(grep -c . $err)" -eq 1 ]
result $? 'replay: beyond the limit of the node'
echo 0 >$param/max_bytes
echo 2 >$param/max_pools
run 1 pool create more --block-size 64K --frames 8 --json &&
	says '^kvmmctl pool create: more can.t be made: this machine may have 2 pools, set in /sys/module/kvmm/parameters/max_pools, and they are there$' &&
	has '"limit": "node"' && has '"limit_pools": 2'
result $? 'pool create: too many pools'
# shellcheck disable=SC2016
unshare -m sh -c 'umount -l /sys && exec "$@"' sh kvmmctl pool create more \
	--block-size 64K --frames 8 --json >$out 2>$err
rc=$?
[ $rc -eq 1 ] && says '^kvmmctl pool create: more can.t be made: there are too many pools, see ' &&
	has '"limit": null'
result $? 'pool create: too many pools, and no /sys that tells the limit'
echo 256 >$param/max_pools

# in_group COMMAND ARGUMENT...: in a memory cgroup of 16 MiB
group=/sys/fs/cgroup/kvmmctl
in_group()
{
	# shellcheck disable=SC2016 # $0 and $@ are those of the new shell
	sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' $group "$@" >$out 2>$err
	rc=$?
	[ $rc -eq 1 ]
}
mkdir $group
echo 16777216 >$group/memory.max
in_group kvmmctl pool create more --block-size 2M --frames 16 --json &&
	says '^kvmmctl pool create: more needs [0-9]* MiB\( more\|\) of memory, and this memory cgroup may have 16 MiB, of which [0-9.]* [KM]iB is left: set in /sys/fs/cgroup/kvmmctl/memory.max$' &&
	has '"limit": "cgroup"' && has '"limit_bytes": 16777216' &&
	has "\"set_in\": \"$group/memory.max\"" && run 1 pool show more
result $? 'pool create: beyond the limit of the memory cgroup'
# shellcheck disable=SC2016
in_group unshare -m sh -c 'umount -l /sys/fs/cgroup && exec "$@"' sh kvmmctl \
	pool create more --block-size 2M --frames 16 --json &&
	says 'and the system had none, though no limit that is seen here is in the way now$' &&
	has '"limit": null'
result $? 'pool create: beyond a limit that is not seen'
odd=$(printf '/sys/fs/cgroup/caf\351')
mkdir "$odd"
echo 16777216 >"$odd/memory.max"
# shellcheck disable=SC2016
sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$odd" kvmmctl pool create more \
	--block-size 2M --frames 16 --json >$out 2>$err
rc=$?
[ $rc -eq 1 ] && has '"set_in": "/sys/fs/cgroup/caf?/memory.max"' &&
	[ "$(grep -c . $err)" -eq 1 ]
result $? 'pool create: beyond the limit of a memory cgroup with an odd name'
rmdir "$odd"
in_group kvmmctl replay /tmp/trace.jsonl --block-size 2M --frames 16 &&
	says 'is available, limited by /sys/fs/cgroup/kvmmctl/memory.max; '
result $? 'replay: beyond the limit of the memory cgroup'
# shellcheck disable=SC2016
sh -c 'echo $$ >"$0/cgroup.procs" && dd if=/dev/zero of="$1" bs=1M count=12 &&
	sync && shift && exec "$@"' $group "$KVMM_DISK/cache" kvmmctl replay \
	/tmp/trace.jsonl --block-size 1M --frames 4 >$out 2>$err
rc=$?
[ $rc -eq 0 ] && has '^hits  *4 blocks'
result $? 'replay: page cache makes way in a memory cgroup'
rm -f "$KVMM_DISK/cache"
# as a container has it: its own group is on top
mount --bind $group /sys/fs/cgroup
# shellcheck disable=SC2016
sh -c 'echo $$ >/sys/fs/cgroup/cgroup.procs && exec "$@"' sh kvmmctl replay \
	/tmp/trace.jsonl --block-size 2M --frames 16 >$out 2>$err
rc=$?
[ $rc -eq 1 ] && says 'is available, limited by /sys/fs/cgroup/memory.max; '
result $? 'replay: beyond the limit of a container'
umount /sys/fs/cgroup
rmdir $group

odd=$(printf '%s/odd\351' "$KVMM_DISK")
run 0 pool create odd --block-size 64K --frames 4 --slots 4 --swap "$odd" --json &&
	has '"swap": ".*/odd?"' && run 0 pool destroy odd
result $? 'pool create: a swap file with an odd name'
rm -f "$odd"

if command -v su >/dev/null && grep -q '^nobody:' /etc/passwd; then
	run 0 pool list
	chmod 666 /dev/kvmm
	su -s /bin/sh nobody -c 'kvmmctl pool destroy one' >$out 2>$err
	rc=$?
	[ $rc -eq 1 ] && says "is someone else's"
	result $? 'pool destroy: not by others'
	# COMMAND of nobody
	nobody()
	{
		su -s /bin/sh nobody -c "$1" >$out 2>$err
		rc=$?
		[ $rc -eq 1 ]
	}
	more='kvmmctl pool create more --json --block-size 64K --frames'
	nobody "$more 8" && says '^kvmmctl pool create: only who has CAP_IPC_LOCK, or is in the group that /sys/module/kvmm/parameters/create_gid names, may make pools$'
	result $? 'pool create: not by everyone'
	echo 65534 >$param/create_gid
	echo 2097152 >$param/max_user_bytes
	nobody "$more 40" &&
		says '^kvmmctl pool create: more needs 2.50 MiB of memory, and all pools of one user may have 2 MiB, of which 2 MiB is left: set in /sys/module/kvmm/parameters/max_user_bytes$' &&
		has '"limit": "user"' && has '"left_bytes": 2097152'
	result $? 'pool create: beyond the limit of a user'
	su -s /bin/sh nobody -c 'kvmmctl pool create his --block-size 64K \
		--frames 64 --elastic 32 --chunk 32 --populate none' \
		>/dev/null 2>&1
	run 1 pool populate his &&
		says '^kvmmctl pool populate: his needs .* of memory, and all pools of one user may have 2 MiB, of which .* is left: set in'
	result $? 'pool populate: the limit of its owner'
	echo 0 >$param/max_user_bytes
	echo 1 >$param/max_user_pools
	nobody "$more 4" &&
		says '^kvmmctl pool create: more can.t be made: one user may have 1 pool, set in /sys/module/kvmm/parameters/max_user_pools, and it is there$' &&
		has '"limit": "user"' && has '"limit_pools": 1'
	result $? 'pool create: too many pools of a user'
	kvmmctl pool destroy his >/dev/null
	echo 0 >$param/max_user_pools
	echo -1 >$param/create_gid
fi

run 0 replay /tmp/trace.jsonl --block-size 64K --frames 2 --slots 8 \
	--swap "$KVMM_DISK/replay.swap" --json && has '"backend": "kernel"' &&
	has '"hits_memory": 4' && has '"hits_swap": 2' && has '"corrupt": 0' &&
	[ ! -e "$KVMM_DISK/replay.swap" ]
result $? 'replay'
run 0 pool list && ! has replay-
result $? 'its pool is gone'

awk 'BEGIN {
	for (i = 0; i < 20000; i++)
		printf "{\"timestamp\": %d, \"hash_ids\": [%d, %d]}\n", i,
			i % 500, i % 500 + 1
}' >/tmp/long.jsonl
# begin: a long replay in the background, $pid
begin()
{
	kvmmctl replay /tmp/long.jsonl --block-size 64K --frames 50 \
		--slots 600 --swap "$KVMM_DISK/long.swap" >$out 2>$err &
	pid=$!
	i=0
	area=/sys/kernel/kvmm/pools/replay-$pid/nr_slots
	until [ "$(cat $area 2>/dev/null || echo 0)" -gt 0 ] ||
		[ $i -eq 50 ]; do
		sleep 0.2
		i=$((i + 1))
	done
	sleep 0.5
}
begin
kill -TERM $pid
wait $pid
rc=$?
[ $rc -eq 143 ] && says 'interrupted after' &&
	[ ! -e "$KVMM_DISK/long.swap" ] && run 0 pool list && ! has replay-
result $? 'SIGTERM ends a replay, and its pool and file go'

begin
run 0 pool events "replay-$pid" --type evicted --count 5 &&
	has '^backend  *kernel' &&
	[ "$(grep -c '^ *[0-9]*\.[0-9]*  evicted  *[0-9a-f]\{64\}$' $out)" -eq 5 ]
result $? 'pool events: blocks that are evicted, with their keys'
run 0 stat "replay-$pid" &&
	has '^latency_out  *[1-9][0-9,]* blocks written out: p50 at most [0-9,]* us, p90 [0-9,]* us, p99 [0-9,]* us$' &&
	has '^bytes_out  *[1-9][0-9,]* commands that wrote: p50 below [0-9.]* [KMG]iB, ' &&
	has '^alloc_wait  *[1-9][0-9,]* allocations: p50 at most '
result $? 'stat NAME: percentiles'
run 0 pool events "replay-$pid" --type evicted --count 3 --json &&
	[ "$(grep -c '"event": "evicted".*"handle": "0x.*"key": "' $out)" -eq 3 ]
result $? 'pool events, JSON'
kill -TERM $pid
wait $pid
# events_begin NAME: in the background, $pid; returns when it listens
events_begin()
{
	# not what the command before printed
	: >$out
	kvmmctl pool events "$1" >$out 2>$err &
	pid=$!
	i=0
	until grep -q '^backend' $out || [ $i -eq 100 ]; do
		sleep 0.2
		i=$((i + 1))
	done
}
events_begin one
kill -TERM $pid
wait $pid
rc=$?
[ $rc -eq 0 ] && ! [ -s $err ]
result $? 'pool events: a signal ends it'
kvmmctl pool create short --block-size 4K --frames 1 >/dev/null
events_begin short
kvmmctl pool destroy short --force >/dev/null
wait $pid
rc=$?
[ $rc -eq 0 ] && says '^kvmmctl pool events: short was destroyed$'
result $? 'pool events: the end of the pool ends it'
run 1 pool events nothing &&
	says '^kvmmctl pool events: there is no pool nothing$'
result $? 'pool events: no such pool'
run 1 pool events one --type evicted,flown &&
	says "^kvmmctl pool events: --type: 'flown' is unknown"
result $? 'pool events: no such type'

begin
kill -KILL $pid
wait $pid
before=$(df -P "$KVMM_DISK" | awk 'NR == 2 { print $3 }')
run 0 pool list && has "^replay-$pid " && run 0 pool destroy "replay-$pid" &&
	[ "$(ls "$KVMM_DISK" | grep -c 'long\.swap')" -eq 0 ] &&
	[ "$(df -P "$KVMM_DISK" | awk 'NR == 2 { print $3 }')" -le \
		$((before - 30000)) ]
result $? 'SIGKILL leaves a pool that can be destroyed, and its file goes too'

run 0 pool destroy one && run 0 pool destroy two --json &&
	has '"destroyed": "two"'
result $? 'pool destroy'
run 1 pool destroy two && says '^kvmmctl pool destroy: there is no pool two$'
result $? 'pool destroy: no such pool'
run 0 stat && has 'in 0 pools'
result $? 'no pool is left'

rm -f "$swap"
echo "1..$n"
exit $bad
