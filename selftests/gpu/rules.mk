# SPDX-License-Identifier: MIT
#
# kvmm-gpu-check: a program to take to a machine with an NVIDIA GPU.  It is one
# file that loads the driver there and needs no more of that machine than a C
# library of 2021 (glibc 2.34) or newer.

GPU_CHECK_OBJ := $(patsubst %.c,$(O)/%.o,$(wildcard selftests/gpu/*.c))
GPU_CHECK := $(O)/selftests/gpu/kvmm-gpu-check
GPU_BUNDLE := $(B)/kvmm-gpu-check

$(O)/selftests/gpu/%.o: ALL_CFLAGS += -I.

$(GPU_CHECK): $(GPU_CHECK_OBJ) $(GPU_SHIM_OBJ)
	$(CC) $(LDFLAGS) -static-libgcc $^ -ldl -o $@

.PHONY: gpu-bundle gpu-check suite-gpu suite-gpu-fake
gpu-check: $(GPU_CHECK)

gpu-bundle: $(GPU_CHECK)
	@cp $< $(GPU_BUNDLE).new
	@strip $(GPU_BUNDLE).new
	@mv $(GPU_BUNDLE).new $(GPU_BUNDLE)
	@echo '$(GPU_BUNDLE): copy it to a machine with an NVIDIA GPU and run it there'

# gpu: on this machine's GPU, where it has one.  gpu-fake: the program itself, on
# the stand-in driver, with sanitizers; its kernels in an interpreter.
SUITES += gpu gpu-fake

suite-gpu: gpu-bundle
	@selftests/tap.sh $(B)/results gpu $(GPU_BUNDLE)

suite-gpu-fake: $(GPU_CHECK)
	@$(MAKE) --no-print-directory -s VARIANT=clang gpu-check
	@$(MAKE) --no-print-directory -s VARIANT=asan gpu-check \
		$(B)/asan/selftests/fakecuda/libcuda-fake.so.1
	@selftests/tap.sh $(B)/results gpu-fake selftests/gpu/fake.sh \
		$(B)/asan/selftests $(GPU_CHECK)
