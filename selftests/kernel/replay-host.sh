#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Prepares replay-vm.sh: the trace, and what the user backend makes of it here.
# replay-host.sh KVMMCTL DIR

set -eu
kvmmctl=$1 dir=$2
requests=2000
mkdir -p "$dir"
trace=../shared/traces/mooncake-conversation.jsonl
if [ -r "$trace" ]; then
	head -n $requests "$trace" >"$dir/trace.jsonl"
else
	# Conversations that come back: each turn repeats what was said before.
	awk -v requests=$requests 'BEGIN {
		srand(7)
		id = 1
		for (r = 0; r < requests; r++) {
			c = int(rand() * rand() * 400)
			for (more = 1 + int(rand() * 12); more > 0; more--)
				chat[c] = chat[c] (chat[c] ? ", " : "") id++
			printf "{\"timestamp\": %d, \"hash_ids\": [%s]}\n",
				r * 50, chat[c]
			if (rand() < 0.04)
				chat[c] = ""
		}
	}' >"$dir/trace.jsonl"
fi
# shellcheck disable=SC2086 # words
"$kvmmctl" replay "$dir/trace.jsonl" --backend user --limit $requests \
	--frames 1000 --slots 4000 --block-size 64K --json >"$dir/user.json"
