#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Fuzzes the core for a while and says so in TAP:  fuzz.sh PROGRAM DIR SECONDS
# What is found to be new stays in DIR/corpus for the next run; an input that
# breaks something is kept in DIR and can be given to PROGRAM again.

set -u
program=$1 dir=$2 seconds=$3
corpus=$dir/corpus
mkdir -p "$corpus"

# Seeds: random programs of some length, the same ones everywhere.
if [ -z "$(ls -A "$corpus")" ]; then
	for i in $(seq 1 24); do
		LC_ALL=C awk -v seed="$i" 'BEGIN {
			srand(seed)
			for (n = 150 * seed; n > 0; n--)
				printf "%c", int(1 + rand() * 255)
		}' >"$corpus/seed-$i"
	done
fi

log=$dir/log
echo 1..1
"$program" -max_total_time="$seconds" -max_len=4096 -len_control=20 \
	-timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
	-artifact_prefix="$dir/" "$corpus" >"$log" 2>&1
rc=$?
runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
cover=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
if [ $rc -eq 0 ]; then
	echo "ok 1 - $runs programs in $seconds s, coverage $cover"
else
	grep -E '^#|ERROR|SUMMARY|Test unit written' "$log" | grep -v REDUCE |
		grep -v NEW | tail -n 20 | sed 's/^#*/# /'
	echo "not ok 1 - a program breaks the core, exit $rc"
	exit 1
fi
