# SPDX-License-Identifier: MIT
#
# Tests of the kernel module: programs for the harness of the kernel's own
# selftests.  They are static, so that they run in any initramfs.

KT      := selftests/kernel
KT_SUP  := kt_pool kt_block kt_swap kt_proc kt_nullb kt_ring
# in the order in which they run: what is simple first, life is the last
KT_PROG := abi abi_addr pool access limits block order share arena swap area freeze uring flight \
	kill race sysfs life

KT_BIN  := $(KT_PROG:%=$(O)/$(KT)/%)

# the harness defines functions that it does not declare
$(O)/$(KT)/%.o: ALL_CFLAGS += -isystem $(B)/kernel/kselftest \
	-Wno-missing-prototypes
$(KT_BIN:%=%.o): | $(B)/kernel/.kselftest

$(KT_BIN): $(O)/$(KT)/%: $(O)/$(KT)/%.o $(KT_SUP:%=$(O)/$(KT)/%.o)
	$(CC) $(CFLAGS) $(LDFLAGS) -static $^ -luring -o $@

.PHONY: kernel-tests
kernel-tests: $(KT_BIN)

# vm-kernel: those programs.  vm-replay: a trace and kvmmctl, in the VM and here.
# kernel-clang: a second compiler has nothing to say.
SUITES += vm-kernel vm-replay kernel-clang
.PHONY: suite-vm-kernel suite-vm-replay suite-kernel-clang

KT_TESTS ?= $(KT_PROG)

suite-vm-kernel: $(KT_BIN) $(B)/kvmm.ko
	@selftests/tap.sh $(B)/results vm-kernel $(KT)/vm.sh \
		$(VM_RUN) --name kernel \
		--module $(B)/kvmm.ko --rmmod --test-timeout 300 \
		--file kmod/abi:/t/docs --env KVMM_ABI_DOCS=/t/docs \
		--env KVMM_KO=/t/kvmm.ko \
		$(foreach t,$(KT_TESTS),--test $(O)/$(KT)/$t)

# The same on Debian's newer kernel: not a part of `make check`.
.PHONY: check-vm-6.12
check-vm-6.12: $(KT_BIN) $(B)/kvmm-6.12.ko
	@mkdir -p $(B)/vm-6.12
	@cp $(B)/kvmm-6.12.ko $(B)/vm-6.12/kvmm.ko
	$(KT)/vm.sh selftests/vm/run.sh --kernel 6.12 --build $(B) \
		--name kernel-6.12 --module $(B)/vm-6.12/kvmm.ko --rmmod \
		--test-timeout 300 --file kmod/abi:/t/docs \
		--env KVMM_ABI_DOCS=/t/docs --env KVMM_KO=/t/kvmm.ko \
		$(foreach t,$(KT_TESTS),--test $(O)/$(KT)/$t)

suite-vm-replay: $(KVMMCTL) $(B)/kvmm.ko
	@rm -rf $(B)/vm-replay
	@$(KT)/replay-host.sh $(KVMMCTL) $(B)/vm-replay
	@selftests/tap.sh $(B)/results vm-replay $(VM_RUN) --name replay \
		--module $(B)/kvmm.ko --rmmod --test-timeout 400 \
		--file $(KVMMCTL) --file $(B)/vm-replay:/t/replay \
		--file $(KT)/replay-vm.sh --file selftests/tools/vm_kvmmctl.sh \
		--test 'replay-vm.sh /t/replay' --test vm_kvmmctl.sh

suite-kernel-clang:
	@selftests/tap.sh $(B)/results kernel-clang sh -c '\
		$(MAKE) --no-print-directory VARIANT=clang kernel-tests && \
		echo "ok 1 - the kernel tests build with clang" && echo 1..1'
