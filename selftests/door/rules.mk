# SPDX-License-Identifier: MIT
#
# Tests of libkvmm's high door.
#
#   door       host memory as the device, then the stand-in CUDA driver
#   door-asan  the same under ASan and UBSan
#   door-tsan  the same under TSan

DT := selftests/door
DT_PROG := layout move fence cancel fail many parts plan filter hooks \
	reach elastic rdonly near
DT_PROG := $(filter $(DT_PROG),$(patsubst $(DT)/test_%.c,%,$(wildcard $(DT)/test_*.c)))
DT_BIN := $(DT_PROG:%=$(O)/$(DT)/test_%)

$(O)/$(DT)/%.o: ALL_CFLAGS += -I.

$(DT_BIN): $(O)/$(DT)/test_%: $(O)/$(DT)/test_%.o $(O)/$(DT)/door.o \
		$(O)/selftests/lib/lt.o $(LIBKVMM_A) \
		| $(O)/selftests/fakecuda/libcuda-fake.so.1
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LIBKVMM_LIBS) $(DT_LIBS) -ldl -lcmocka \
		-o $@
$(O)/$(DT)/test_plan: DT_LIBS := -lm
# what a disk or a device does at its worst
$(O)/$(DT)/test_cancel: DT_LIBS := -Wl,--wrap=kvmm_swap_in
$(O)/$(DT)/test_fail: DT_LIBS := -Wl,--wrap=kvmm_swap_in \
	-Wl,--wrap=kvmm_gpu_copy -Wl,--wrap=kvmm_publish
$(O)/$(DT)/test_reach: DT_LIBS := -Wl,--wrap=kvmm_pool_stat \
	-Wl,--wrap=kvmm_lease

.PHONY: door-tests
door-tests: $(DT_BIN)

SUITES += door door-asan door-tsan
.PHONY: suite-door suite-door-asan suite-door-tsan

DT_SUITE = @$(MAKE) --no-print-directory -s VARIANT=$1 door-tests && \
	KVMM_TEST_DIR=$(B) selftests/tap.sh $(B)/results door$2 $(DT)/run.sh \
	$(B)/$1/$(DT) $(DT_PROG)

suite-door:
	$(call DT_SUITE,release,)
suite-door-asan:
	$(call DT_SUITE,asan,-asan)
suite-door-tsan: export TSAN_OPTIONS = halt_on_error=1:second_deadlock_stack=1
suite-door-tsan:
	$(call DT_SUITE,tsan,-tsan)

# The node of the device, on a machine of two.
SUITES += vm-near
.PHONY: suite-vm-near
suite-vm-near: $(DT_BIN) $(B)/kvmm.ko
	@selftests/tap.sh $(B)/results vm-near $(VM_RUN) --name near \
		--numa 2 --mem 1G --disk 0 --module $(B)/kvmm.ko --rmmod \
		--env KVMM_TEST_DIR=/tmp --env KVMM_TEST_BACKEND=kernel \
		--env KVMM_TEST_DEVICE=cuda \
		--env KVMM_TEST_LIBCUDA=/t/libcuda-fake.so.1 \
		--file $(O)/selftests/fakecuda/libcuda-fake.so.1 \
		--test $(O)/$(DT)/test_near

# On the kernel's backend, with processes of their own.
SUITES += vm-door
.PHONY: suite-vm-door
suite-vm-door: $(DT_BIN) $(B)/kvmm.ko
	@selftests/tap.sh $(B)/results vm-door $(VM_RUN) --name door \
		--module $(B)/kvmm.ko --rmmod --test-timeout 240 \
		--env KVMM_TEST_DIR=/mnt/disk --env KVMM_TEST_BACKEND=kernel \
		--env KVMM_TEST_LIBCUDA=/t/libcuda-fake.so.1 \
		--file $(O)/selftests/fakecuda/libcuda-fake.so.1 \
		$(foreach t,$(filter-out plan filter reach near,$(DT_PROG)), \
			--test $(O)/$(DT)/test_$t) \
		$(foreach t,move cancel rdonly, --label cuda_$t \
			--cmd 'KVMM_TEST_DEVICE=cuda test_$t')
