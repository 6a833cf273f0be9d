# SPDX-License-Identifier: MIT
#
# Tests of the kernel module: programs for the harness of the kernel's own
# selftests.  They are static, so that they run in any initramfs.

KT      := selftests/kernel
KT_SUP  := \
	kt_pool \
	kt_block \
	kt_swap \
	kt_proc \
	kt_crowd \
	kt_cgroup \
	kt_elastic \
	kt_nullb \
	kt_dm \
	kt_loop \
	kt_ring \
	kt_export \
	kt_poison

# in the order in which they run: what is simple first, life is the last
KT_PROG := \
	elastic \
	lease \
	shrink \
	abi \
	abi_addr \
	compat \
	pool \
	access \
	limits \
	cgroup \
	populate \
	block \
	order \
	share \
	arena \
	defence \
	swap \
	area \
	fsfail \
	freeze \
	uring \
	flight \
	sync \
	laggard \
	hwpoison \
	olderror \
	late \
	faults \
	event \
	event_wait \
	writeback \
	failnth \
	failnth_mem \
	failnth_block \
	kill \
	race \
	storm \
	fuzz \
	dmabuf \
	dmabuf_life \
	trace \
	sysfs \
	life

# for machines of their own: numa of two nodes
KT_MORE := numa
# shortage of little memory
KT_MORE += shortage

KT_BIN  := $(KT_PROG:%=$(O)/$(KT)/%)
KT_MORE_BIN := $(KT_MORE:%=$(O)/$(KT)/%)

# the harness defines functions that it does not declare
$(O)/$(KT)/%.o: ALL_CFLAGS += -isystem $(B)/kernel/kselftest \
	-Wno-missing-prototypes
$(O)/$(KT)/kt_export.o: ALL_CFLAGS += $(shell pkg-config --cflags libdrm 2>/dev/null)
$(KT_BIN:%=%.o) $(KT_MORE_BIN:%=%.o): | $(B)/kernel/.kselftest

$(KT_BIN) $(KT_MORE_BIN): $(O)/$(KT)/%: $(O)/$(KT)/%.o $(KT_SUP:%=$(O)/$(KT)/%.o)
	$(CC) $(CFLAGS) $(LDFLAGS) -static $^ -luring -o $@

$(O)/$(KT)/fuzz: $(patsubst %,$(O)/$(KT)/fuzz_%.o,proc ioctl mem ring)
$(O)/$(KT)/fuzz.o: $(KT)/fuzz.corpus

# the 32-bit half of compat, without a C library
KT_COMPAT32 := $(O)/$(KT)/compat32
$(KT_COMPAT32): $(KT)/compat32.c $(KT)/compat.h $(KT)/kt_pattern.h uapi/linux/kvmm.h
	@mkdir -p $(@D)
	$(CC) -m32 -std=gnu11 -O2 -g -ffreestanding -nostdlib -static \
		-fno-pic -fno-stack-protector -fcf-protection=none \
		$(WARN) -Wno-missing-prototypes -Iuapi \
		-isystem /usr/include/x86_64-linux-gnu $< -o $@
$(O)/$(KT)/compat.o: $(KT_COMPAT32)
$(O)/$(KT)/compat.o: ALL_CFLAGS += -DCOMPAT32='"$(KT_COMPAT32)"'

# modules that tests need, for the stock kernel: a device that imports dma-bufs,
# files whose I/O is over early
KT_MODULES := importer laggard
KT_KO := $(KT_MODULES:%=$(B)/kvmm_%.ko)
$(KT_KO): $(B)/kvmm_%.ko: $(wildcard $(KT_MODULES:%=$(KT)/%/*)) \
		$(KT)/build-module.sh | $(KDIR_STAMP)
	@$(KT)/build-module.sh --kdir $(KDIR) --source $(KT)/$* \
		--work $(B)/$* --output $@

.PHONY: kernel-tests
kernel-tests: $(KT_BIN) $(KT_MORE_BIN)

# vm-kernel: those programs.  vm-numa, vm-numa3: on two nodes, on three.  vm-replay: a trace and
# kvmmctl, in the VM and here.  kernel-clang: a second compiler has nothing to
# say.
SUITES += vm-kernel vm-numa vm-numa3 vm-movable vm-replay kernel-clang
.PHONY: suite-vm-kernel suite-vm-numa suite-vm-numa3 suite-vm-movable suite-vm-replay suite-kernel-clang

KT_TESTS ?= $(KT_PROG)
# what the programs call
KT_FILES := --file /sbin/mkfs.ext4

suite-vm-kernel: $(KT_BIN) $(B)/kvmm.ko $(KT_KO)
	@selftests/tap.sh $(B)/results vm-kernel $(KT)/vm.sh \
		$(VM_RUN) --name kernel --kmod vgem \
		--module $(B)/kvmm.ko $(KT_KO:%=--module %) --rmmod --test-timeout 300 \
		--file kmod/abi:/t/docs --env KVMM_ABI_DOCS=/t/docs \
		--env KVMM_KO=/t/kvmm.ko $(KT_FILES) \
		$(foreach t,$(KT_TESTS),--test $(O)/$(KT)/$t)

# A machine that keeps memory for movable pages, where none can stay registered;
# and whose kernel leaves it to others to zero what it allocates.
suite-vm-movable: $(KT_BIN) $(B)/kvmm.ko
	@selftests/tap.sh $(B)/results vm-movable $(KT)/vm.sh \
		$(VM_RUN) --name movable --append 'movablecore=768M init_on_alloc=0' \
		--module $(B)/kvmm.ko --rmmod --test-timeout 300 \
		--test $(O)/$(KT)/defence --test $(O)/$(KT)/arena \
		--test $(O)/$(KT)/populate --test $(O)/$(KT)/olderror

suite-vm-numa: $(KT_MORE_BIN) $(B)/kvmm.ko
	@selftests/tap.sh $(B)/results vm-numa $(KT)/vm.sh \
		$(VM_RUN) --name numa --numa 2 --mem 1G --disk 0 \
		--module $(B)/kvmm.ko --rmmod --test-timeout 300 \
		--test $(O)/$(KT)/numa

suite-vm-numa3: $(KT_MORE_BIN) $(B)/kvmm.ko
	@selftests/tap.sh $(B)/results vm-numa3 $(KT)/vm.sh \
		$(VM_RUN) --name numa3 --numa 3 --mem 1536M --disk 0 \
		--module $(B)/kvmm.ko --rmmod --test-timeout 300 \
		--test $(O)/$(KT)/numa

# The same on each kernel there is to care for: one source, built by its own
# compiler.  forky's is 7.2.  Not a part of `make check`: half a GB is fetched.
KERNELS ?= 6.1 6.12 forky
.PHONY: check-kernels $(KERNELS:%=suite-on-%)
check-kernels: setup-vm setup-suite
	@rm -f $(B)/results/on-*
	@$(MAKE) --no-print-directory -k $(KERNELS:%=suite-on-%)
	@selftests/report.sh $(B)/results $(KERNELS:%=on-%)

$(KERNELS:%=suite-on-%): suite-on-%: kernel-tests
	@TAP_TIMEOUT=3600 selftests/tap.sh $(B)/results on-$* \
		$(KT)/on-kernel.sh --build $(B) --version '$(VERSION)' $* \
		$(KT_TESTS:%=$(O)/$(KT)/%)

suite-vm-replay: $(KVMMCTL) $(O)/selftests/tools/on_tty \
		$(B)/kvmm.ko
	@rm -rf $(B)/vm-replay
	@$(KT)/replay-host.sh $(KVMMCTL) $(B)/vm-replay
	@selftests/tap.sh $(B)/results vm-replay $(VM_RUN) --name replay \
		--module $(B)/kvmm.ko --rmmod --test-timeout 400 \
		--file $(KVMMCTL) --file $(B)/vm-replay:/t/replay \
		--file $(KT)/replay-vm.sh --file selftests/tools/vm_kvmmctl.sh \
		--file $(O)/selftests/tools/on_tty \
		--test 'replay-vm.sh /t/replay' --test vm_kvmmctl.sh

suite-kernel-clang:
	@selftests/tap.sh $(B)/results kernel-clang sh -c '\
		$(MAKE) --no-print-directory VARIANT=clang kernel-tests && \
		echo "ok 1 - the kernel tests build with clang" && echo 1..1'

# Half of the memory is in a pool, a process needs more than the rest.
SUITES += vm-shortage
.PHONY: suite-vm-shortage
suite-vm-shortage: $(O)/$(KT)/shortage $(B)/kvmm.ko
	@selftests/tap.sh $(B)/results vm-shortage $(KT)/vm.sh \
		$(VM_RUN) --name shortage --mem 512M --disk 64M --raw 0 \
		--module $(B)/kvmm.ko --rmmod --test-timeout 400 \
		--test $(O)/$(KT)/shortage
