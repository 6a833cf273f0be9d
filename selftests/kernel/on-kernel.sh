#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Build kvmm.ko for one kernel and run kernel tests on that kernel. Prints TAP.
set -euo pipefail

usage()
{
	cat <<'USAGE'
usage: on-kernel.sh [--build DIR] [--version V] KERNEL PROGRAM... [-- OPTION...]

KERNEL is a series that this machine's apt knows, such as 6.1 or 6.12, or the name
of a Debian release, such as forky: then module and kernel are that release's, see
tools/dist/build-in-suite.sh. OPTIONs are run.sh's.
USAGE
}

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/build version=unknown kernel='' progs=() more=()
while (($#)); do
	case $1 in
	--build) build=$2; shift ;;
	--version) version=$2; shift ;;
	-h | --help) usage; exit 0 ;;
	--) shift; more=("$@"); break ;;
	-*) usage >&2; exit 2 ;;
	*) if [[ $kernel ]]; then progs+=("$1"); else kernel=$1; fi ;;
	esac
	shift
done
[[ $kernel ]] || { usage >&2; exit 2; }
mkdir -p "$build/on-$kernel"
build=$(cd "$build" && pwd)
ko=$build/on-$kernel/kvmm.ko

if [[ $kernel = [0-9]* ]]; then
	from=(--kernel "$kernel")
	boot=(--kernel "$kernel")
else
	suite() { "$top/tools/dist/build-in-suite.sh" --build "$build" "$@"; }
	from=(--suite "$kernel")
	boot=(--image "$(suite --print kernel "$kernel")"
		--modules "$(suite --print modules "$kernel")")
fi
"$top/kmod/kmod-build.sh" --version "$version" --build "$build" "${from[@]}" \
	--output "$ko"
# modules that tests need, for the same kernel
mods=()
for m in importer laggard; do
	mod=$build/on-$kernel/kvmm_$m.ko
	if [[ $kernel = [0-9]* ]]; then
		"$here/build-module.sh" --source "$here/$m" --output "$mod" \
			--work "$build/on-$kernel/$m" --kdir "$("$top/tools/dist/fetch-kernel.sh" \
				--build "$build" --kernel "$kernel" --print kdir)"
	else
		suite --output "$build/on-$kernel/$m" "$kernel" "$here/$m" \
			>"$build/on-$kernel/$m.log" 2>&1 || {
			cat "$build/on-$kernel/$m.log" >&2
			exit 1
		}
		cp "$build/on-$kernel/$m/kvmm_$m.ko" "$mod"
	fi
	mods+=(--module "$mod")
done
tests=()
for p in "${progs[@]}"; do
	tests+=(--test "$p")
done
exec "$here/vm.sh" "$top/selftests/vm/run.sh" --build "$build" "${boot[@]}" \
	--name "on-$kernel" --module "$ko" "${mods[@]}" \
	--kmod vgem --rmmod --test-timeout 300 \
	--file "$top/kmod/abi:/t/docs" --env KVMM_ABI_DOCS=/t/docs \
	--env KVMM_KO=/t/kvmm.ko --file /sbin/mkfs.ext4 \
	"${tests[@]}" "${more[@]}"
