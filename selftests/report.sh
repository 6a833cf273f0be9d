#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Adds up what the suites counted; a suite without a result failed:
# report.sh RESULTS-DIR SUITE...

set -u
dir=$1
shift
passed=0 failed=0 skipped=0
for name; do
	p=0 f=1 s=0
	if [ -r "$dir/$name.sum" ]; then
		read -r p f s <"$dir/$name.sum"
	else
		echo "$name: no result (did it build?)"
	fi
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
