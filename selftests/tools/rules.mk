# SPDX-License-Identifier: MIT
#
# Tests of kvmmctl.  The tests in Python run the program that $KVMMCTL names.

TOOLS_UNIT := $(O)/selftests/tools/units
TOOLS_UNIT_OBJS := $(O)/selftests/tools/test_units.o \
	$(patsubst %,$(O)/tools/kvmmctl/%.o,content hist key size trace workload)

$(TOOLS_UNIT): $(TOOLS_UNIT_OBJS) $(LIBKVMM_A)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBKVMM_LIBS) -lcmocka -ljansson -lm

# runs a command with a terminal, in the VM too
TOOLS_TTY := $(O)/selftests/tools/on_tty

$(TOOLS_TTY): $(O)/selftests/tools/on_tty.o
	$(CC) $(LDFLAGS) -o $@ $^ -lutil

TOOLS_PY := tools-cli tools-trace tools-replay tools-faults
SUITES += tools-unit $(TOOLS_PY) tools-asan

.PHONY: suite-tools-unit suite-tools-asan $(TOOLS_PY:%=suite-%)
# A second compiler has nothing to say of kvmmctl.
suite-tools-unit:
	@$(MAKE) --no-print-directory -s VARIANT=clang \
		$(B)/clang/tools/kvmmctl/kvmmctl
	@$(MAKE) --no-print-directory VARIANT=asan \
		$(B)/asan/selftests/tools/units
	@selftests/tap.sh $(B)/results tools-unit \
		$(B)/asan/selftests/tools/units

$(TOOLS_PY:%=suite-%): suite-tools-%: $(KVMMCTL)
	@KVMMCTL=$(KVMMCTL) selftests/tap.sh $(B)/results tools-$* \
		python3 selftests/tools/test_$*.py

# all of them again, the long ones shortened, with sanitizers
suite-tools-asan:
	@$(MAKE) --no-print-directory VARIANT=asan \
		$(B)/asan/tools/kvmmctl/kvmmctl
	@KVMMCTL=$(B)/asan/tools/kvmmctl/kvmmctl TOOLS_QUICK=1 \
		selftests/tap.sh $(B)/results tools-asan \
		selftests/tools/each.sh $(TOOLS_PY:tools-%=%)
