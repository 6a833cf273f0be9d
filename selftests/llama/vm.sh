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

requests=$(wc -l <$d/requests)
serve --no-kvmm <$d/requests >$d/plain 2>$d/err
[ "$(said plain | wc -l)" -eq "$requests" ]
result $? 'without kvmm'

kernel <$d/requests >$d/killed 2>$d/err &
pid=$!
i=0
while [ "$(wc -l <$d/killed)" -lt $((requests / 2)) ] && kill -0 $pid 2>/dev/null && [ $i -lt 600 ]; do
	usleep 100000
	i=$((i + 1))
done
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

# The pool goes while it is in use: a server does without.
mkfifo $d/pipe
kernel <$d/pipe >$d/without 2>$d/err &
pid=$!
exec 5>$d/pipe
head -n 5 $d/requests >&5
i=0
while [ "$(wc -l <$d/without)" -lt 5 ] && kill -0 $pid 2>/dev/null && [ $i -lt 600 ]; do
	usleep 100000
	i=$((i + 1))
done
kvmmctl pool destroy llama --force >$d/out 2>&1
result $? 'the pool is destroyed while it is served from'
tail -n +6 $d/requests >&5
exec 5>&-
wait $pid
result $? 'served to the end'
same without && grep -q store_error $d/without
result $? 'the same answers, and the failure is told'
rm -f "$area"
echo "1..$n"
exit $bad
