#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Adds up what the suites counted; a suite without a result failed:
# report.sh RESULTS-DIR SUITE...
# What failed is said again here, for often the end of a log is all one has.

set -u
# logs of machines have any bytes in them, also NUL
export LC_ALL=C
dir=$1
shift
passed=0 failed=0 skipped=0

# Its failures, then what it said last, without flooding the end.
what_failed()
{
	local log=$dir/$1.log

	[ -r "$log" ] || return
	echo "---- failed: $1"
	grep -anE '^not ok' "$log" |
		grep -aviE 'not ok [0-9]+ *(- *)?# *skip' | head -n 20 | cut -c1-300
	# the lines before a failure say why
	grep -aE -B 12 '^not ok' "$log" | grep -avE '^(not )?ok ' |
		head -n 40 | cut -c1-300
	echo "---- its last lines"
	tail -n 15 "$log" | cut -c1-300
}

for name; do
	p=0 f=1 s=0 sum=
	if [ -r "$dir/$name.sum" ]; then
		read -r sum <"$dir/$name.sum"
		# on a full disk it is empty
		if [[ $sum =~ ^[0-9]+\ [0-9]+\ [0-9]+$ ]]; then
			read -r p f s <<<"$sum"
		else
			echo "$name: no result that can be read"
		fi
	else
		echo "$name: no result (did it build?)"
	fi
	[ "$f" -eq 0 ] || what_failed "$name"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
