#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs several of the tests in Python, one after another: each.sh NAME...

rc=0
for name; do
	python3 "$(dirname "$0")/test_$name.py" || rc=1
done
exit $rc
