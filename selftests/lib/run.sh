#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Runs the library's test programs of one build, TAP on stdout:
#   run.sh FOLDER TEST...
# Those that do I/O run a second time with threads in place of io_uring.

set -u
bin=$1
shift
rc=0

one()
{
	echo "# $*"
	timeout --kill-after=5 "${LT_TIMEOUT:-150}" env "$@" || {
		status=$?
		[ $status -eq 1 ] || echo "not ok - $*: exit code $status"
		rc=1
	}
}

for t in "$@"; do
	one "$bin/test_$t"
	case $t in
	swap | area | fault | late | stress)
		one KVMM_TEST_NO_URING=1 "$bin/test_$t"
		;;
	esac
done
exit $rc
