# SPDX-License-Identifier: MIT
#
# The stand-in libcuda, and the same as a driver of 11.3 would be.

FAKECUDA_OBJ := $(patsubst %.c,$(O)/%.o,$(filter-out %/proc.c, \
	$(wildcard selftests/fakecuda/*.c)))
FAKECUDA := $(O)/selftests/fakecuda/libcuda-fake.so.1
FAKECUDA_OLD := $(O)/selftests/fakecuda/libcuda-fake-old.so.1

$(O)/selftests/fakecuda/%.o: ALL_CFLAGS += -I.

$(O)/selftests/fakecuda/proc_old.o: selftests/fakecuda/proc.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(CFLAGS) -DFAKE_OLD -MMD -MP -c $< -o $@

$(FAKECUDA): $(FAKECUDA_OBJ) $(O)/selftests/fakecuda/proc.o
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libcuda.so.1 $^ -o $@
	@ln -sf libcuda-fake.so.1 $(@D)/libcuda.so.1

$(FAKECUDA_OLD): $(FAKECUDA_OBJ) $(O)/selftests/fakecuda/proc_old.o
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libcuda.so.1 $^ -o $@
