#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The checks for a GPU, tried without one: on the stand-in driver, and their
# kernels in an interpreter and, where a toolkit is, in ptxas:
#   fake.sh SELFTESTS-OBJECTS PROGRAM
# The first is where the program and the stand-in with sanitizers are, the second
# is what is shipped.  CUDA_HOME says where a toolkit is.  TAP on stdout.
set -u
objects=$1 shipped=$2
check=$objects/gpu/kvmm-gpu-check
fake=$objects/fakecuda/libcuda-fake.so.1
out=$objects/gpu
home=${CUDA_HOME:-/usr/local/cuda}
n=0 bad=0

result() # STATUS WHAT
{
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $n - $2"
	else
		bad=1
		echo "not ok $n - $2"
		grep -vE '^ok ' "$out/log" | tail -n 20 | sed 's/^/# /'
	fi
}

skip() { n=$((n + 1)); echo "ok $n - $1 # SKIP $2"; }

# run WANTED-STATUS [VARIABLE=VALUE...] -- [ARGUMENT...]
run()
{
	local want=$1 vars=()
	shift
	while [ "$1" != -- ]; do
		vars+=("$1")
		shift
	done
	shift
	env FAKECUDA_STRICT=1 "${vars[@]}" "$check" --quick --libcuda "$fake" "$@" \
		>"$out/log" 2>&1
	[ $? -eq "$want" ]
}

none_bad() { ! grep -q '^not ok' "$out/log"; }
has() { grep -qE -- "$1" "$out/log"; }

run 0 -- && none_bad && has '^ok .*offload .* 128 KiB by kernel: every byte' &&
	has '^ok .*restore .* 4 KiB by batch: every byte' &&
	has '^ok .*reads [0-9]+ frames in place: every byte' &&
	has '^ok .*by plain: the result is right' && ! has SKIP
result $? 'all checks pass'
run 0 FAKECUDA_SAME_POINTER=1 -- && none_bad
result $? 'where registered memory has one address'
run 0 FAKECUDA_DELAY_US=300 FAKECUDA_SEED=7 -- && none_bad
result $? 'where the device takes its time'
run 0 FAKECUDA_VERSION=12000 -- && none_bad && has 'copies by batch # SKIP' &&
	has '^ok .* by choice: every byte'
result $? 'a driver without batched copies'
run 0 FAKECUDA_MEMORY=40000000 -- && none_bad
result $? 'a device with little memory'
run 0 -- --seconds 0 && none_bad && has 'no time left'
result $? 'no time: all is skipped, and said'

# Does it see what is wrong?  The numbers are of calls whose result is compared.
while read -r flip what; do
	run 1 "FAKECUDA_FLIP=$flip" -- && has "^not ok .*$what"
	result $? "a single wrong bit is seen ($flip)"
done <<'END'
cuMemcpyDtoHAsync:6000 offload 32 x 64 x 4 KiB by plain
cuMemcpyHtoDAsync:6000 restore 32 x 64 x 4 KiB by plain
cuMemcpyBatchAsync:70 offload 32 x 64 x 4 KiB by batch
cuMemcpyBatchAsync:88 restore 32 x 64 x 4 KiB by batch
cuLaunchKernel:70 offload 32 x 64 x 4 KiB by kernel
kvmm_read:0 reads 31 frames in place
kvmm_product:0 go by kernel: the result is right
END
for call in cuMemAlloc:2 cuMemHostRegister:3 cuLaunchKernel:40 cuStreamCreate:3 cuModuleLoadDataEx:2; do
	run 1 "FAKECUDA_FAIL=$call" FAKECUDA_STRICT=0 -- && has '^not ok' && ! has 'Sanitizer'
	result $? "a call that fails is said ($call)"
done

run 4 FAKECUDA_DEVICES=0 -- && has '^1..0 # SKIP the NVIDIA driver has no GPU to give'
result $? 'no device: skipped'
"$shipped" --libcuda /nowhere/libcuda.so >"$out/log" 2>&1
[ $? -eq 4 ] && has '^1..0 # SKIP no NVIDIA driver here'
result $? 'no driver: skipped'
run 1 -- --device 3 && has 'no device 3, there are 1'
result $? 'no such device: an error'
"$shipped" --help >"$out/log" 2>&1 && has '^usage: kvmm-gpu-check' && has 'Exit status'
result $? '--help'

# It is taken to machines that may be older than this one.
objdump -T "$shipped" >"$out/log"
newest=$(grep -o 'GLIBC_[0-9.]*' "$out/log" | sort -Vu | tail -n 1)
[ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.34 ] &&
	[ "$(objdump -p "$shipped" | grep -c 'NEEDED.*lib\(c\|m\|pthread\|dl\)\.so')" = \
	"$(objdump -p "$shipped" | grep -c NEEDED)" ]
result $? "needs a C library only, as of 2.34 ($newest)"

"$shipped" --ptx >"$out/check.ptx"
python3 selftests/gpu/ptx.py "$out/check.ptx" >"$out/log" 2>&1
result $? 'the kernels compute what they should, in an interpreter'
if [ -x "$home/bin/ptxas" ]; then
	for arch in sm_75 sm_80 sm_89 sm_90 sm_100 sm_120; do
		"$home/bin/ptxas" -arch=$arch "$out/check.ptx" -o "$out/check.cubin" >"$out/log" 2>&1
		rc=$?
		if has 'not (supported|defined)'; then
			skip "the kernels assemble for $arch" "this ptxas doesn't know it"
		else
			result $rc "the kernels assemble for $arch"
		fi
	done
else
	skip 'the kernels assemble' "no ptxas in $home"
fi
echo "1..$n"
exit $bad
