# SPDX-License-Identifier: MIT
#
# The stock kernel that kvmm.ko is built for and the VM boots. Included from the
# top-level Makefile; paths are relative to the repository's root.
#
#   $(KDIR)            make -C $(KDIR) M=...; another tree may be given: make KDIR=...
#   $(KDIR_STAMP)      prerequisite (order-only will do) of what uses $(KDIR)
#   $(KIMAGE_STAMP)    of what boots the VM
#   $(KSELFTEST_STAMP) of what includes kselftest.h (-I$(KSELFTEST_DIR)) or runs
#                      $(CHECKPATCH)
#   $(VM_RUN)          selftests/vm/run.sh for that kernel and build folder

B ?= build
KERNEL_SERIES ?= 6.1
KERNEL_DIR := $(B)/kernel/$(KERNEL_SERIES)

FETCH_KERNEL := tools/dist/fetch-kernel.sh --kernel $(KERNEL_SERIES) --build $(B)

ifndef KDIR
KDIR := $(abspath $(KERNEL_DIR)/kdir)
KDIR_STAMP := $(KERNEL_DIR)/.headers
endif
KIMAGE_STAMP := $(KERNEL_DIR)/.image
KSELFTEST_STAMP := $(B)/kernel/.kselftest
KSELFTEST_DIR := $(B)/kernel/kselftest
CHECKPATCH := $(B)/kernel/scripts/checkpatch.pl --no-tree

VM_RUN := selftests/vm/run.sh --kernel $(KERNEL_SERIES) --build $(B)

$(KERNEL_DIR)/.headers:
	@$(FETCH_KERNEL) headers

$(KIMAGE_STAMP):
	@$(FETCH_KERNEL) image

$(KSELFTEST_STAMP):
	@$(FETCH_KERNEL) kselftest

.PHONY: kernel-headers kernel-image kselftest-headers check-vm-harness
kernel-headers: $(KDIR_STAMP)
kernel-image: $(KIMAGE_STAMP)
kselftest-headers: $(KSELFTEST_STAMP)

# Does the harness itself tell good from bad? Takes about a minute.
check-vm-harness: $(KERNEL_DIR)/.headers $(KIMAGE_STAMP)
	selftests/vm/selftest.sh --kernel $(KERNEL_SERIES) --build $(B)
