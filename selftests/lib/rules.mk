# SPDX-License-Identifier: MIT
#
# Tests of libkvmm.
#
#   lib        every call on the user backend, with io_uring and with threads
#   lib-asan   the same under ASan and UBSan
#   lib-tsan   the same under TSan
#   lib-clang  builds without a warning, and passes
#   lib-abi    layouts, symbols, installation, example, manual pages
#   vm-lib     on the kernel's backend, in the VM; some on the user's, too

comma := ,
LT := selftests/lib
LT_PROG := open key pool populate block order client export swap area fault late event system stress limits
LT_BIN := $(LT_PROG:%=$(O)/$(LT)/test_%)

$(LT_BIN): $(O)/$(LT)/test_%: $(O)/$(LT)/test_%.o $(O)/$(LT)/lt.o $(LIBKVMM_A)
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LIBKVMM_LIBS) $(LT_LIBS) -lcmocka -o $@
$(O)/$(LT)/test_system: LT_LIBS := $(patsubst %,-Wl$(comma)--wrap=%,madvise open \
	io_uring_queue_init io_uring_register_buffers_sparse io_uring_submit \
	io_uring_peek_batch_cqe)
$(O)/$(LT)/test_late: LT_LIBS := $(patsubst %,-Wl$(comma)--wrap=%,pread pwrite \
	io_uring_peek_batch_cqe)

.PHONY: lib-tests
lib-tests: $(LT_BIN)

SUITES += lib lib-asan lib-tsan lib-clang lib-abi vm-lib
.PHONY: suite-lib suite-lib-asan suite-lib-tsan suite-lib-clang suite-lib-abi \
	suite-vm-lib

LT_SUITE = @$(MAKE) --no-print-directory VARIANT=$1 lib-tests && \
	KVMM_TEST_DIR=$(B) selftests/tap.sh $(B)/results lib$2 $(LT)/run.sh \
	$(B)/$1/$(LT) $3

suite-lib:
	$(call LT_SUITE,release,,$(LT_PROG))
suite-lib-asan:
	$(call LT_SUITE,asan,-asan,$(LT_PROG))
suite-lib-tsan: export TSAN_OPTIONS = halt_on_error=1:second_deadlock_stack=1
suite-lib-tsan:
	$(call LT_SUITE,tsan,-tsan,$(LT_PROG))
suite-lib-clang:
	$(call LT_SUITE,clang,-clang,$(filter-out stress,$(LT_PROG)))

suite-lib-abi: $(LIBKVMM_A) $(O)/libkvmm.so $(O)/libkvmm.pc
	@selftests/tap.sh $(B)/results lib-abi $(LT)/abi.sh $(O)

# The floor is 6.1 for the user backend, too: what asks most of the kernel.
suite-vm-lib: $(LT_BIN) $(B)/kvmm.ko
	@selftests/tap.sh $(B)/results vm-lib $(VM_RUN) --name lib \
		--module $(B)/kvmm.ko --rmmod --test-timeout 150 \
		--env KVMM_TEST_DIR=/mnt/disk --env KVMM_TEST_BLKDEV=/dev/vdb \
		--env KVMM_TEST_BACKEND=kernel \
		$(foreach t,$(filter-out system,$(LT_PROG)), \
			--test $(O)/$(LT)/test_$t) \
		$(foreach t,pool populate swap area late limits system, \
			--file $(O)/$(LT)/test_$t --label user_$t \
			--cmd 'KVMM_TEST_BACKEND=user test_$t')
