# SPDX-License-Identifier: MIT
#
# Tests of the shared core: unit, property, fuzz, model check.

core_src := $(wildcard kmod/core/*.c)
core_obj := $(core_src:%.c=$(O)/%.o)

core_unit_src := $(filter-out %/property.c,$(wildcard selftests/core/test_*.c)) \
	selftests/core/unit.c selftests/core/fixture.c
$(O)/selftests/core/unit: $(core_unit_src:%.c=$(O)/%.o) $(core_obj)
	$(CC) $(LDFLAGS) $^ -lcmocka -o $@

SUITES += core-unit

.PHONY: suite-core-unit
suite-core-unit:
	@$(MAKE) --no-print-directory VARIANT=asan $(B)/asan/selftests/core/unit
	@selftests/tap.sh $(B)/results core-unit $(B)/asan/selftests/core/unit
