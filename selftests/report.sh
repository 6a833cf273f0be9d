#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Adds up what the suites counted; a suite without a result failed:
# report.sh RESULTS-DIR SUITE...
# What failed is said again here, for often the end of a log is all one has.

set -u
dir=$1
shift
passed=0 failed=0 skipped=0

# Its failures, then what it said last, without flooding the end.
what_failed()
{
	local log=$dir/$1.log

	[ -r "$log" ] || return
	echo "---- failed: $1"
	grep -nE '^not ok' "$log" |
		grep -viE 'not ok [0-9]+ *(- *)?# *skip' | head -n 20 | cut -c1-300
	# the lines before a failure say why
	grep -E -B 12 '^not ok' "$log" | grep -vE '^(not )?ok ' |
		head -n 40 | cut -c1-300
	echo "---- its last lines"
	tail -n 15 "$log" | cut -c1-300
}

for name; do
	p=0 f=1 s=0
	if [ -r "$dir/$name.sum" ]; then
		read -r p f s <"$dir/$name.sum"
	else
		echo "$name: no result (did it build?)"
	fi
	[ "$f" -eq 0 ] || what_failed "$name"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
