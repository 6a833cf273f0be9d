# SPDX-License-Identifier: MIT
#
# Benchmarks; none of them is a test.

$(O)/selftests/bench/core: $(O)/selftests/bench/core.o \
		$(patsubst %.c,$(O)/%.o,$(wildcard kmod/core/*.c))
	$(CC) $(LDFLAGS) $^ -o $@

.PHONY: bench-run bench-core
bench-run: bench-core

bench-core: $(O)/selftests/bench/core
	@$< $(if $(JSON),--json)
