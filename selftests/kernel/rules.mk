# SPDX-License-Identifier: MIT
#
# Tests of the kernel module: programs for the harness of the kernel's own
# selftests.  They are static, so that they run in any initramfs.

KT      := selftests/kernel
KT_SUP  := kt_pool kt_block kt_swap kt_proc kt_nullb kt_ring
KT_PROG := abi pool access block order share arena swap area uring flight \
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
