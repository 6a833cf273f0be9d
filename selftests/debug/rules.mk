# SPDX-License-Identifier: MIT
#
# The kernel tests on debug kernels. The one that is a process of this machine is
# part of `make check`; the first run builds it, unless there is a pack. `make
# check-debug` is all of it.
#
#   check-debug-um, check-debug-x86   one kernel only
#   check-soak                        kill and race for long
#   check-coverage                    lines of kvmm.ko that the tests run
#   check-debug-harness               do these kernels find bugs at all?
#   fuzz-kernel                       /dev/kvmm for FUZZ_SECONDS on FUZZ_ARCH, from
#                                     FUZZ_SEED on
#   debug-kernels                     only build (or unpack) the kernels

DEBUG := selftests/debug
DEBUG_RUN = $(DEBUG)/check.sh --build $(B) --version '$(VERSION)'
# Tests to run, by name: make check-debug-um KT_TESTS='pool swap'
DEBUG_TESTS = $(KT_TESTS:%=$(O)/$(KT)/%)
COVERAGE_MIN ?= 90

.PHONY: check-debug-harness check-debug check-debug-um check-debug-x86 check-coverage debug-kernels \
	suite-debug-um suite-debug-x86 suite-coverage

debug-kernels: setup-check
	@$(DEBUG)/build-kernel.sh --arch um --build $(B)
	@$(DEBUG)/build-kernel.sh --arch x86 --build $(B)

SUITES += debug-um
suite-debug-um suite-debug-x86: suite-debug-%: kernel-tests
	@$(DEBUG)/build-kernel.sh --arch $* --build $(B) || [ $$? = 4 ]
	@TAP_TIMEOUT=7200 selftests/tap.sh $(B)/results debug-$* \
		$(DEBUG_RUN) --arch $* $(DEBUG_TESTS)

suite-coverage: kernel-tests
	@$(DEBUG)/build-kernel.sh --arch um --build $(B)
	@TAP_TIMEOUT=7200 selftests/tap.sh $(B)/results coverage \
		$(DEBUG_RUN) --arch um --coverage --fail-under $(COVERAGE_MIN) \
		$(DEBUG_TESTS)
	@sed -n '/^# *lines  *run/,$$p' $(B)/results/coverage.log

check-debug: setup-check
	@rm -f $(B)/results/debug-*
	@$(MAKE) --no-print-directory -k suite-debug-um suite-debug-x86
	@selftests/report.sh $(B)/results debug-um debug-x86

check-debug-um check-debug-x86: check-debug-%: setup-check
	@rm -f $(B)/results/debug-$*.*
	@$(MAKE) --no-print-directory suite-debug-$*
	@selftests/report.sh $(B)/results debug-$*

# For long: kill -9 SOAK_ROUNDS times in each way, everything at once for
# SOAK_SECONDS, on SOAK_ARCH.  Each says its seed.
SOAK_ARCH    ?= um
SOAK_ROUNDS  ?= 1000
SOAK_SECONDS ?= 300
SOAK_TESTS   ?= kill race storm
.PHONY: check-soak
check-soak: setup-check kernel-tests
	@$(DEBUG)/build-kernel.sh --arch $(SOAK_ARCH) --build $(B)
	@TAP_TIMEOUT=14400 KVMM_TEST_TIMEOUT=7200 \
		selftests/tap.sh $(B)/results soak \
		$(DEBUG_RUN) --arch $(SOAK_ARCH) \
		$(SOAK_TESTS:%=$(O)/$(KT)/%) -- \
		--env KVMM_KILL_ROUNDS=$(SOAK_ROUNDS) \
		--env KVMM_RACE_SECONDS=$(SOAK_SECONDS) \
		--env KVMM_STORM_SECONDS=$(SOAK_SECONDS)

check-coverage: setup-check
	@rm -f $(B)/results/coverage.*
	@$(MAKE) --no-print-directory suite-coverage
	@selftests/report.sh $(B)/results coverage

# New seeds each time; what breaks something is named, and can be given again:
# make fuzz-kernel FUZZ_SEED=... FUZZ_SECONDS=1
FUZZ_ARCH ?= um
FUZZ_SEED ?= $(shell date +%s)
.PHONY: fuzz-kernel
fuzz-kernel: FUZZ_SECONDS ?= 600
fuzz-kernel: setup-check $(O)/selftests/kernel/fuzz
	@$(DEBUG)/build-kernel.sh --arch $(FUZZ_ARCH) --build $(B)
	$(DEBUG_RUN) --arch $(FUZZ_ARCH) --name fuzz-$(FUZZ_ARCH) -- \
		--env KVMM_FUZZ_SECONDS=$(FUZZ_SECONDS) \
		--test-timeout $$(($(FUZZ_SECONDS) * 2 + 300)) \
		--test '$(O)/$(KT)/fuzz $(FUZZ_SEED)'

# Do the debug kernels find what they are there to find?
check-debug-harness: setup-check
	@rm -f $(B)/results/debug-bugs-*
	@for a in um x86; do TAP_TIMEOUT=3600 selftests/tap.sh $(B)/results debug-bugs-$$a \
		$(DEBUG)/selftest.sh --arch $$a --build $(B); done
	@selftests/report.sh $(B)/results debug-bugs-um debug-bugs-x86
