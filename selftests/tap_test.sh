#!/bin/bash
# SPDX-License-Identifier: MIT
#
# tap.sh counts as it should, TAP on stdout.

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
echo "1..$no"
