#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Runs the high door's test programs of one build, TAP on stdout:
#   run.sh FOLDER TEST...
# Those that move blocks run with each device.

set -u
bin=$1
shift
rc=0

one()
{
	echo "# $*"
	timeout --kill-after=5 "${DT_TIMEOUT:-300}" env "$@" || {
		status=$?
		[ $status -eq 1 ] || echo "not ok - $*: exit code $status"
		rc=1
	}
}

for t in "$@"; do
	one KVMM_TEST_DEVICE=host "$bin/test_$t"
	case $t in
	plan | filter | hooks | elastic) ;;
	*) one KVMM_TEST_DEVICE=cuda "$bin/test_$t" ;;
	esac
done
exit $rc
