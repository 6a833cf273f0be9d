# SPDX-License-Identifier: MIT
#
# kvmm.ko, built outside the tree: build/kmod-RELEASE/ holds links to the
# sources, and what the kernel build makes of them.
#
# KDIR is what `make -C` gets: the headers of the kernel to build for.  By
# default Debian's stock kernel, fetched into build/.

KMOD_SERIES = $(or $(KERNEL_SERIES),6.1)
KMOD_SRC := $(wildcard Kbuild kmod/*.c kmod/*.h kmod/core/*.c kmod/core/*.h \
	kmod/compat/* uapi/linux/*.h)

# only one that was asked for: the default is fetched first
KMOD_KDIR = $(if $(filter command% environment%,$(origin KDIR)),--kdir $(KDIR))

.PHONY: modules-6.12 modules-check
modules: $(B)/kvmm.ko

# which kernel it was built for: another KDIR builds it anew
KMOD_FOR := $(B)/.kvmm.ko-for
$(KMOD_FOR): FORCE
	@mkdir -p $(B)
	@echo '$(KMOD_SERIES) $(KMOD_KDIR)' | cmp -s - $@ || \
		echo '$(KMOD_SERIES) $(KMOD_KDIR)' >$@

$(B)/kvmm.ko: $(KMOD_SRC) kmod/kmod-build.sh $(KMOD_FOR)
	@mkdir -p $(B)
	@kmod/kmod-build.sh --version '$(VERSION)' --build $(B) \
		--kernel $(KMOD_SERIES) --output $@ $(KMOD_KDIR)

# the other kernel that Debian 12 offers
modules-6.12: $(B)/kvmm-6.12.ko
$(B)/kvmm-6.12.ko: $(KMOD_SRC) kmod/kmod-build.sh
	@mkdir -p $(B)
	@kmod/kmod-build.sh --version '$(VERSION)' --build $(B) \
		--kernel 6.12 --output $@

# everything that sparse and W=1 have to say, as errors
modules-check:
	@kmod/kmod-build.sh --version '$(VERSION)' --build $(B) \
		--kernel $(KMOD_SERIES) --check $(KMOD_KDIR)
