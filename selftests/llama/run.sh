#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Builds kvmm-llama and runs its tests on libllama; says why where that can't be
# had:  run.sh BUILD-DIR [--fetch].  TAP on stdout.
set -u
build=$1
shift

if ! why=$(tools/llama/find.sh --build "$build" "$@" 2>&1 >/dev/null); then
	echo "# ${why//$'\n'/$'\n# '}"
	echo "ok 1 - kvmm-llama on libllama # SKIP ${why##*$'\n'}"
	echo 1..1
	exit 0
fi
if ! make --no-print-directory -s llama LLAMA_FETCH="$*" B="$build" >&2; then
	echo 'not ok 1 - kvmm-llama builds'
	echo 1..1
	exit 1
fi
KVMM_LLAMA=$build/llama/tools/llama/kvmm-llama exec python3 selftests/llama/test_llama.py real
