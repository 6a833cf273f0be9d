# SPDX-License-Identifier: MIT
#
# Tests of the shared core: unit, property, fuzz, model check.

core_obj := $(patsubst %.c,$(O)/%.o,$(wildcard kmod/core/*.c))
core_test_o = $(patsubst %,$(O)/selftests/core/%.o,$1)

$(O)/selftests/core/unit: $(call core_test_o,unit fixture) $(patsubst \
		%.c,$(O)/%.o,$(wildcard selftests/core/test_*.c)) $(core_obj)
	$(CC) $(LDFLAGS) $^ -lcmocka -o $@

core_sim := sim sim_check sim_block sim_move
$(O)/selftests/core/property: \
		$(call core_test_o,property drive $(core_sim)) $(core_obj)
	$(CC) $(LDFLAGS) $^ -o $@

SUITES += core-unit core-property

.PHONY: suite-core-unit suite-core-property
suite-core-unit:
	@$(MAKE) --no-print-directory VARIANT=asan $(B)/asan/selftests/core/unit
	@selftests/tap.sh $(B)/results core-unit $(B)/asan/selftests/core/unit

PROPERTY_OPS ?= 3000000
suite-core-property:
	@$(MAKE) --no-print-directory VARIANT=asan \
		$(B)/asan/selftests/core/property
	@selftests/tap.sh $(B)/results core-property \
		$(B)/asan/selftests/core/property --ops $(PROPERTY_OPS) \
		$(if $(SEED),--seed $(SEED))
