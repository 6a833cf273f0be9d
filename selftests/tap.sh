#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Runs one test program that speaks TAP, shows its failures, keeps its whole
# output and its counts:  tap.sh RESULTS-DIR NAME COMMAND...
# Always exits 0: report.sh tells the outcome of all.

set -u
dir=$1 name=$2
shift 2
mkdir -p "$dir"
log=$dir/$name.log
start=$SECONDS
timeout --kill-after=10 "${TAP_TIMEOUT:-900}" "$@" >"$log" 2>&1 </dev/null
rc=$?
# what machines print has any bytes in it, also NUL
export LC_ALL=C

passed=$(grep -acE '^ok [0-9]' "$log")
failed=$(grep -acE '^not ok [0-9]' "$log")
skipped=$(grep -aciE '^ok [0-9].*# *skip' "$log")
passed=$((passed - skipped))
# cmocka's skip() says "not ok", which TAP allows: it is no failure
unwilling=$(grep -aciE '^not ok [0-9]+ *(- *)?# *skip' "$log")
failed=$((failed - unwilling))
skipped=$((skipped + unwilling))
if [ $rc -eq 4 ] && [ $((passed + failed + skipped)) -eq 0 ]; then
	skipped=1
elif [ $rc -ne 0 ] && [ "$failed" -eq 0 ]; then
	failed=1
elif [ $((passed + failed + skipped)) -eq 0 ]; then
	echo "$name: ran no test" >>"$log"
	failed=1
fi
echo "$passed $failed $skipped" >"$dir/$name.sum"
printf '%-28s %5d passed %3d failed %3d skipped  (%d s)\n' \
	"$name" "$passed" "$failed" "$skipped" $((SECONDS - start))
if [ "$failed" -gt 0 ]; then
	echo "---- $name, exit $rc, whole output in $log"
	grep -anE '^not ok|ERROR|error:|Sanitizer|FAILED|# ' "$log" |
		grep -aviE 'not ok [0-9]+ *(- *)?# *skip' | head -n 40
	echo "---- last lines"
	tail -n 15 "$log"
fi
exit 0
