# SPDX-License-Identifier: MIT
#
# Tests of libkvmm.

LT := selftests/lib
LT_PROG := open pool block client swap area fault stress seccomp
LT_BIN := $(LT_PROG:%=$(O)/$(LT)/test_%)

$(LT_BIN): $(O)/$(LT)/test_%: $(O)/$(LT)/test_%.o $(O)/$(LT)/lt.o $(LIBKVMM_A)
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LIBKVMM_LIBS) -lcmocka -o $@

.PHONY: lib-tests
lib-tests: $(LT_BIN)
