# SPDX-License-Identifier: MIT
#
# Tests of the shared core: unit, property, fuzz, model check.

core_obj := $(patsubst %.c,$(O)/%.o,$(wildcard kmod/core/*.c))
core_test_o = $(patsubst %,$(O)/selftests/core/%.o,$1)

$(O)/selftests/core/unit: $(call core_test_o,unit fixture) $(patsubst \
		%.c,$(O)/%.o,$(wildcard selftests/core/test_*.c)) $(core_obj)
	$(CC) $(LDFLAGS) $^ -lcmocka -o $@

core_sim := sim sim_check sim_block sim_client sim_elastic sim_move
$(O)/selftests/core/property: \
		$(call core_test_o,property drive $(core_sim)) $(core_obj)
	$(CC) $(LDFLAGS) $^ -o $@

$(O)/selftests/core/fuzz: $(call core_test_o,fuzz drive $(core_sim)) $(core_obj)
	$(CC) $(LDFLAGS) -fsanitize=fuzzer $^ -o $@

$(O)/selftests/core/explore: $(call core_test_o,explore explore_ops \
		explore_sim explore_state) $(core_obj)
	$(CC) $(LDFLAGS) $^ -o $@

SUITES += core-unit core-property core-model core-fuzz

.PHONY: suite-core-unit suite-core-property suite-core-model suite-core-fuzz \
	fuzz-core fuzz-build
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

# Optimised: it is the number of states that counts here.
MODEL_STATES ?= 150000
suite-core-model: $(O)/selftests/core/explore
	@selftests/tap.sh $(B)/results core-model $< --states $(MODEL_STATES)

fuzz-build:
	@$(MAKE) --no-print-directory VARIANT=fuzz CC=clang CFLAGS='-O1 -g \
		-fsanitize=fuzzer-no-link,address,undefined \
		-fno-sanitize-recover=all' $(B)/fuzz/selftests/core/fuzz

suite-core-fuzz: FUZZ_SECONDS ?= 15
suite-core-fuzz: fuzz-build
	@selftests/tap.sh $(B)/results core-fuzz selftests/core/fuzz.sh \
		$(B)/fuzz/selftests/core/fuzz $(B)/fuzz-core $(FUZZ_SECONDS)

# Fuzzing for long: make fuzz-core FUZZ_SECONDS=3600
fuzz-core: FUZZ_SECONDS ?= 600
fuzz-core: fuzz-build
	@selftests/core/fuzz.sh $(B)/fuzz/selftests/core/fuzz $(B)/fuzz-core \
		$(FUZZ_SECONDS)

# clang warns of other things, and runs into other undefined behaviour.
SUITES += core-clang
.PHONY: suite-core-clang
suite-core-clang:
	@$(MAKE) --no-print-directory VARIANT=clang \
		$(B)/clang/selftests/core/unit $(B)/clang/selftests/core/property
	@selftests/tap.sh $(B)/results core-clang $(B)/clang/selftests/core/unit
