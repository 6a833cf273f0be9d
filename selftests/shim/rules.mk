# SPDX-License-Identifier: MIT
#
# Tests of gpu-shim.

SHIM_TEST_OBJ := $(patsubst %.c,$(O)/%.o,$(wildcard selftests/shim/test_*.c) \
	selftests/shim/fixture.c selftests/shim/shim.c)
SHIM_TEST := $(O)/selftests/shim/shim
SHIM_DRM := $(O)/selftests/shim/libdrm-fake.so.2

$(O)/selftests/shim/%.o: ALL_CFLAGS += -I. $(shell pkg-config --cflags libdrm 2>/dev/null)

$(SHIM_DRM): $(O)/selftests/shim/fakedrm.o
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libdrm.so.2 $^ -o $@

$(SHIM_TEST): $(SHIM_TEST_OBJ) $(GPU_SHIM_OBJ) | $(SHIM_DRM) $(FAKECUDA) \
		$(FAKECUDA_OLD)
	$(CC) $(LDFLAGS) $^ -ldl -lcmocka -o $@

# On a real driver, with the libdrm of this machine.
SHIM_VGEM := $(O)/selftests/shim/vgem
SHIM_LIBDRM = $(shell $(CC) -print-file-name=libdrm.so.2)

$(SHIM_VGEM): $(O)/selftests/shim/vgem.o $(GPU_SHIM_OBJ) $(LIBKVMM_A)
	$(CC) $(LDFLAGS) $^ $(LIBKVMM_LIBS) -ldl -lcmocka -o $@

# Injected failures have nothing to say about threads, and take ten times as
# long with TSan.
SUITES += shim shim-asan shim-tsan shim-abi vm-shim

.PHONY: suite-shim suite-shim-asan suite-shim-tsan suite-shim-abi suite-vm-shim

suite-shim:
	@$(MAKE) --no-print-directory -s VARIANT=clang \
		$(B)/clang/selftests/shim/shim
	@$(MAKE) --no-print-directory -s $(B)/release/selftests/shim/shim
	@selftests/tap.sh $(B)/results shim $(B)/release/selftests/shim/shim

suite-shim-asan:
	@$(MAKE) --no-print-directory -s VARIANT=asan \
		$(B)/asan/selftests/shim/shim
	@selftests/tap.sh $(B)/results shim-asan \
		$(B)/asan/selftests/shim/shim

suite-shim-tsan:
	@$(MAKE) --no-print-directory -s VARIANT=tsan \
		$(B)/tsan/selftests/shim/shim
	@selftests/tap.sh $(B)/results shim-tsan \
		$(B)/tsan/selftests/shim/shim strict ops copy order

suite-shim-abi: $(SHIM_TEST)
	@$(SHIM_TEST) --ptx >$(O)/selftests/shim/copy.ptx
	@selftests/tap.sh $(B)/results shim-abi selftests/shim/abi.sh \
		$(O)/selftests/shim $(FAKECUDA)

suite-vm-shim: $(SHIM_VGEM) $(B)/kvmm.ko
	@selftests/tap.sh $(B)/results vm-shim $(VM_RUN) --name shim \
		--kmod vgem --module $(B)/kvmm.ko --rmmod --mem 512M --disk 0 \
		--file $(SHIM_LIBDRM):/usr/lib/$(shell gcc -print-multiarch)/libdrm.so.2 \
		--test $(SHIM_VGEM)
