#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Run the kernel tests on a debug kernel: build kvmm.ko for it, boot it, and let
# no report of the kernel pass.
set -euo pipefail

usage()
{
	cat <<'USAGE'
usage: check.sh --arch um|x86 [--build DIR] [--version V] [--coverage]
                [--name NAME] [--fail-under PERCENT] [--module FILE.ko]
                [PROGRAM...] [-- OPTION...]

PROGRAMs run in the order given; OPTIONs are run.sh's, for all of the run, see
selftests/vm/run.sh --help. Counts, logs and exit code are run.sh's too.

  --module      instead of kvmm.ko, which is built
  --coverage    count what lines of the module were run; a report for each file
                is printed, and NAME/coverage has the lines that were not
  --fail-under  with --coverage: fewer percent of all lines are a failure
USAGE
}

die() { printf 'check: %s\n' "$*" >&2; exit 2; }

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
arch='' build=$top/build version=unknown coverage='' under=0 name='' ko='' progs=() more=()
while (($#)); do
	case $1 in
	--arch) arch=${2-}; shift ;;
	--build) build=${2-}; shift ;;
	--version) version=${2-}; shift ;;
	--name) name=${2-}; shift ;;
	--module) ko=${2-}; shift ;;
	--coverage) coverage=1 ;;
	--fail-under) under=${2-}; shift ;;
	-h | --help) usage; exit 0 ;;
	--) shift; more=("$@"); break ;;
	-*) usage >&2; die "unknown option: $1" ;;
	*) progs+=("$1") ;;
	esac
	shift
done
mkdir -p "$build"
build=$(cd "$build" && pwd)
name=${name:-debug-$arch${coverage:+-coverage}}

kernel() { "$here/build-kernel.sh" --arch "$arch" --build "$build" "$@"; }
skip() { printf '1..0 # SKIP %s\n' "$*"; exit 4; }
rc=0
kernel >&2 || rc=$?
((rc != 4)) || skip 'no debug kernel: linux-source could not be had'
((rc == 0)) || die 'no debug kernel'

# User Mode Linux needs ptrace, which containers may refuse, and a folder for its
# memory from which it may execute. It begins with finding that out.
can_run_uml()
{
	local out room dir
	room=$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1) || room=0
	if [[ -z ${TMPDIR-} ]] && ((${room:-0} < 2500000)); then
		mkdir -p "$build/debug-um/tmp"
		export TMPDIR=$build/debug-um/tmp
	fi
	# else it leaves a folder in ~/.uml
	dir=$(mktemp -d)
	out=$(timeout -k 5 60 "$(kernel --print kernel)" mem=128M "uml_dir=$dir" \
		con=null con0=null,fd:1 panic=-1 2>&1 </dev/null) || :
	rm -rf "$dir"
	[[ $out = *'Linux version'* ]] ||
		skip "User Mode Linux can't run here: $(tail -n 3 <<<"$out" | tr '\n' ' ')"
}
[[ $arch != um ]] || can_run_uml

vm=(--image "$(kernel --print kernel)" --modules "$(kernel --print modules)"
	--build "$build" --name "$name" --fresh --rmmod)
# Reports are complete, also the second of KASAN's; run.sh boots again after any.
append='kasan_multi_shot page_poison=1'
test_timeout=600
case $arch in
um)
	export ARCH=um
	# UML walks the mappings without their lock in force_flush_all(); RCU's checks
	# tell, twice at boot.
	vm+=(--uml --mem 2G --allow 'lib/maple_tree[.]c:[0-9]+ suspicious rcu') ;;
x86)
	# Both cost time at boot: PCI interrupts by way of ACPI, 256 old terminals. The
	# others can't be had without the former, and trying that is a warning.
	append+=' pci=noacpi,nomsi pty.legacy_count=0'
	vm+=(--cpus 2 --mem 3G --boot-timeout 300 --kmod vgem)
	# uring takes six minutes where it shares two CPUs with others
	test_timeout=1800 ;;
*) die '--arch is um or x86' ;;
esac
vm+=(--append "$append")

if [[ -z $ko ]]; then
	# A folder of its own for what is instrumented: the .gcno must fit the module.
	objs=$build/debug-$arch${coverage:+-coverage}
	mkdir -p "$objs"
	export UBSAN_SANITIZE=y		# is not on for everything
	ko=$objs/kvmm.ko
	if [[ $coverage ]]; then
		export GCOV_PROFILE=y
		vm+=(--out /sys/kernel/debug/gcov)
	fi
	"$top/kmod/kmod-build.sh" --version "$version" --build "$objs" \
		--kdir "$(kernel --print kdir)" --output "$ko" >"$objs/build.log" 2>&1 || {
		tail -n 30 "$objs/build.log" >&2
		die "kvmm.ko could not be built; see $objs/build.log"
	}
	# a device that imports dma-bufs, files whose I/O is over early
	for m in importer laggard; do
		env -u GCOV_PROFILE "$top/selftests/kernel/build-module.sh" \
			--kdir "$(kernel --print kdir)" --source "$top/selftests/kernel/$m" \
			--work "$objs/$m" --output "$objs/kvmm_$m.ko" ||
			die "kvmm_$m.ko could not be built"
		vm+=(--module "$objs/kvmm_$m.ko")
	done
	vm+=(--file "$top/kmod/abi:/t/docs" --env KVMM_ABI_DOCS=/t/docs
		--env KVMM_KO=/t/kvmm.ko --file /sbin/mkfs.ext4)
fi
unset ARCH GCOV_PROFILE UBSAN_SANITIZE

tests=()
for p in "${progs[@]}"; do
	tests+=(--test "$p")
done
rc=0
"$top/selftests/vm/run.sh" "${vm[@]}" --module "$ko" \
	--test-timeout "${KVMM_TEST_TIMEOUT:-$test_timeout}" \
	"${tests[@]}" "${more[@]}" || rc=$?

if [[ $coverage ]]; then
	log=$build/vm-logs/$name
	"$here/coverage.py" --objects "$objs" --under "$under" \
		--lines "$log/coverage" "$log"/out* || rc=1
fi
exit $rc
