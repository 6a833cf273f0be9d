#!/bin/sh
# SPDX-License-Identifier: MIT
#
# kvmm-llama on the kernel's pool, in the test VM (busybox sh): answers are the
# same without kvmm, with it, after kill -9 and a restart, and with a damaged
# swap area.  vm-host.sh has made /t/llama.tar.  TAP.

d=/tmp/llama n=0 bad=0
mkdir -p $d
tar -xf /t/llama.tar -C $d || exit 1
area=$KVMM_DISK/llama.swap

result()
{
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $n - $2"
		return
	fi
	bad=1
	echo "not ok $n - $2"
	sed 's/^/# /' $d/err
}

serve()
{
	$d/kvmm-llama serve --model $d/"${model:-model.gguf}" --context 384 --block-tokens 32 \
		--slots 2 --threads 1 "$@"
}

# The pool has room for a few ranges in memory, and the disk for all.
kernel()
{
	serve --backend kernel --pool llama --memory 160K --disk 16M --swap "$area" "$@"
}

# What must not depend on where the state came from.
said()
{
	sed -n 's/^{"id": \([0-9]*\), "tokens": \(\[[^]]*\]\), "digest": "\([0-9a-f]*\)".*/\1 \2 \3/p' $d/"$1"
}
same() { said "$1" >$d/a && said plain >$d/b && [ -s $d/a ] && cmp -s $d/a $d/b; }

# sum FILE WHAT: over all answers
sum() { sed -n "s/.*\"$2_tokens\": \\([0-9]*\\).*/\\1/p" $d/"$1" | awk '{ n += $1 } END { print n + 0 }'; }
first() { head -n 1 $d/"$1" | sed -n "s/.*\"$2_tokens\": \\([0-9]*\\).*/\\1/p"; }

# lines FILE N: wait until there are so many, while $pid lives
lines()
{
	i=0
	# who writes it may not have begun
	while [ "$(cat $d/"$1" 2>/dev/null | wc -l)" -lt "$2" ] && kill -0 $pid 2>/dev/null && [ $i -lt 3000 ]; do
		usleep 100000
		i=$((i + 1))
	done
}

requests=$(wc -l <$d/requests)
serve --no-kvmm <$d/requests >$d/plain 2>$d/err
[ "$(said plain | wc -l)" -eq "$requests" ]
result $? 'without kvmm'

kernel <$d/requests >$d/killed 2>$d/err &
pid=$!
lines killed $((requests / 2))
kill -KILL $pid
wait $pid
[ $? -eq 137 ]
result $? 'killed while it serves'
done=$(wc -l <$d/killed)
[ "$done" -lt "$requests" ]
result $? "not before it was half done, and not after ($done of $requests)"
[ -d /sys/kernel/kvmm/pools/llama ]
result $? 'the pool is still there'

kernel <$d/requests >$d/again 2>$d/err
result $? 'started again'
grep -q 'found the pool, backend kernel' $d/err
result $? 'on the pool that was left'
same again
result $? 'the same answers, to the last bit of the logits'
[ "$(first again memory)" -gt 0 ] || [ "$(first again disk)" -gt 0 ]
result $? 'the very first prompt had its state from before the kill'
[ "$(sum again disk)" -gt 0 ]
result $? 'some came from the disk'
[ "$(sum again computed)" -lt "$(sum plain computed)" ]
result $? "computed $(sum again computed) tokens, not $(sum plain computed)"

head -n 1 $d/requests | kernel --tenant other >$d/other 2>$d/err
[ "$(first other computed)" = "$(first other prompt)" ]
result $? "another tenant's state is not found"
head -n 1 $d/requests | model=other.gguf kernel >$d/other 2>$d/err
[ "$(first other computed)" = "$(first other prompt)" ]
result $? "another model's state is not found"

# All of the area is overwritten; what is in memory is little.
dd if=/dev/zero of="$area" bs=64k count=256 conv=notrunc 2>/dev/null && sync
kernel <$d/requests >$d/damaged 2>$d/err
result $? 'served from a damaged area'
same damaged
result $? 'the same answers'
[ "$(cat /sys/kernel/kvmm/pools/llama/checksum_errors)" -gt 0 ]
result $? 'damage was found'

# serve_some NAME: a server, $pid, that has answered 5 requests
mkfifo $d/pipe
serve_some()
{
	kernel <$d/pipe >$d/"$1" 2>$d/err &
	pid=$!
	exec 5>$d/pipe
	head -n 5 $d/requests >&5
	lines "$1" 5
}
# serve_rest: and it answers the others
serve_rest()
{
	tail -n +6 $d/requests >&5
	exec 5>&-
	wait $pid
}

# The pool goes while it is in use: a server does without.
serve_some without
kvmmctl pool destroy llama --force >$d/out 2>&1
result $? 'the pool is destroyed while it is served from'
serve_rest
result $? 'served to the end'
same without && grep -q store_error $d/without
result $? 'the same answers, and the failure is told'

# Another one has its name: that one is nobody's business here.
others() # NAME: someone else's, and nothing has been done with it
{
	p=/sys/kernel/kvmm/pools/$1
	[ "$(cat "$p/frames_free")" -eq 16 ] && [ "$(cat "$p/lookups")" -eq 0 ] &&
		[ "$(cat "$p/nr_clients")" -eq 0 ]
}
serve_some remade
kvmmctl pool destroy llama --force >$d/out 2>&1 &&
	kvmmctl pool create llama --block-size 64K --frames 16 >$d/out 2>&1
result $? 'the pool is destroyed and another made while it is served from'
serve_rest
result $? 'served to the end'
same remade && grep -q store_error $d/remade
result $? 'the same answers again'
others llama
result $? "the other pool is as it was made"
kvmmctl pool destroy llama >$d/out 2>&1
# compare destroys what it made; it takes long until it is there
$d/kvmm-llama compare --model $d/model.gguf --context 384 --block-tokens 32 --slots 2 --threads 1 \
	--backend kernel --pool mine --memory 160K --disk 16M --swap "$area" --rounds 1 \
	--conversations 5 --turns 3 --prompts 2 --prompt-tokens 100 --user-tokens 50 \
	--predict 8 >$d/out 2>$d/err &
pid=$!
i=0
while [ "$(cat /sys/kernel/kvmm/pools/mine/nr_slots 2>/dev/null || echo 0)" -eq 0 ] &&
	kill -0 $pid 2>/dev/null && [ $i -lt 3000 ]; do
	usleep 100000
	i=$((i + 1))
done
kill -STOP $pid
kvmmctl pool destroy mine --force >$d/out2 2>&1 &&
	kvmmctl pool create mine --block-size 64K --frames 16 >$d/out2 2>&1
result $? 'the pool of a comparison is destroyed and another made'
kill -CONT $pid
wait $pid
[ $? -eq 1 ]
result $? 'which then fails, and finds no difference'
others mine
result $? "the other pool is not taken for its own"
kvmmctl pool destroy mine >$d/out 2>&1
rm -f "$area"
echo "1..$n"
exit $bad
