#!/bin/bash
# SPDX-License-Identifier: MIT
#
# tap.sh counts as it should, and report.sh says what failed; TAP on stdout.

set -u
here=$(dirname "$0")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
no=0

# counts WHAT PASSED FAILED SKIPPED EXIT-CODE LINE...
counts()
{
	local what=$1 want="$2 $3 $4" rc=$5 have
	shift 5
	{ printf 'cat <<"END"\n'; printf '%s\n' "$@"; printf 'END\nexit %d\n' "$rc"; } \
		>"$tmp/test"
	"$here/tap.sh" "$tmp" t bash "$tmp/test" >"$tmp/out"
	have=$(cat "$tmp/t.sum")
	no=$((no + 1))
	if [ "$have" = "$want" ]; then
		echo "ok $no - $what"
	else
		echo "# counted $have, not $want"
		echo "not ok $no - $what"
	fi
}

counts 'all is well' 2 0 0 0 'ok 1 - a' 'ok 2 - b'
counts 'one fails' 1 1 0 1 'ok 1 - a' 'not ok 2 - b'
counts 'skipped, and said so' 1 0 1 0 'ok 1 - a' 'ok 2 - b # SKIP no device'
counts "cmocka's skip()" 1 0 1 0 'ok 1 - a' 'not ok 2 # SKIP b'
counts "cmocka's skip(), and a failure" 0 1 1 1 'not ok 1 # SKIP a' 'not ok 2 - b'
counts 'a failure that talks of skipping' 1 1 0 1 'ok 1 - a' \
	'not ok 2 - b: could not # SKIP'
counts 'exit code without a failure' 1 1 0 3 'ok 1 - a'
counts 'no test at all' 0 1 0 0 'hello'
counts 'not here' 0 0 1 4 'no such device'

# report WHAT RC PATTERN SUITE...: the exit code, and a line that is there
report()
{
	local what=$1 want=$2 pattern=$3 rc
	shift 3
	"$here/report.sh" "$tmp" "$@" >"$tmp/out"
	rc=$?
	sed -i '$s/^/last: /' "$tmp/out"
	no=$((no + 1))
	if [ $rc -eq "$want" ] && grep -q "$pattern" "$tmp/out"; then
		echo "ok $no - $what"
	else
		sed 's/^/# /' "$tmp/out"
		echo "not ok $no - $what"
	fi
}

counts 'for the report' 1 1 0 1 'ok 1 - a' '# because' 'not ok 2 - b'
cp "$tmp/t.sum" "$tmp/bad.sum"
cp "$tmp/t.log" "$tmp/bad.log"
counts 'for the report' 2 0 0 0 'ok 1 - a' 'ok 2 - b'
report 'nothing failed' 0 '^last: 2 passed, 0 failed, 0 skipped$' t
report 'which suite failed' 1 '^---- failed: bad$' t bad
report 'which test' 1 '^3:not ok 2 - b$' t bad
report 'and why' 1 '^# because$' t bad
report 'the sum stays the last line' 1 '^last: 3 passed, 1 failed, 0 skipped$' t bad
printf '\0\377 # because\nnot ok 3 - \377c\n' >>"$tmp/bad.log"
report 'which test, after bytes that are no text' 1 '^5:not ok 3 - ' t bad
: >"$tmp/lost.sum"
report 'a result that a full disk has lost' 1 \
	'^last: 2 passed, 1 failed, 0 skipped$' t lost
printf 'cat <<"END"\nok 1 - \377\nnot ok 2 - b\nEND\nprintf "\\0\\n"; exit 1\n' >"$tmp/test"
"$here/tap.sh" "$tmp" t bash "$tmp/test" >"$tmp/out"
no=$((no + 1))
if grep -q '^2:not ok 2 - b$' "$tmp/out"; then
	echo "ok $no - what failed is shown, also beside bytes that are no text"
else
	sed 's/^/# /' "$tmp/out"
	echo "not ok $no - what failed is shown, also beside bytes that are no text"
fi
# the filter of the kernel tests, likewise
no=$((no + 1))
if "$here/kernel/vm.sh" printf '#  OK  a\nok 1 - a\n# \0\nnot ok 2 - b\n' |
	tr -d '\0' | cmp -s - <(printf 'ok 1 - a\n# \nnot ok 2 - b\n'); then
	echo "ok $no - the kernel tests' results, too"
else
	echo "not ok $no - the kernel tests' results, too"
fi
counts 'for the report' 2 0 0 0 'ok 1 - a' 'ok 2 - b'
report 'a suite without a result' 1 '^none: no result' t none
echo "1..$no"
