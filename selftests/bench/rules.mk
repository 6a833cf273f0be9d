# SPDX-License-Identifier: MIT
#
# Benchmarks; none of them is a test.  JSON=1 prints JSON.

$(O)/selftests/bench/core: $(O)/selftests/bench/core.o \
		$(patsubst %.c,$(O)/%.o,$(wildcard kmod/core/*.c))
	$(CC) $(LDFLAGS) $^ -o $@

$(O)/selftests/bench/swap: $(O)/selftests/bench/swap.o $(LIBKVMM_A)
	$(CC) $(LDFLAGS) $^ $(LIBKVMM_LIBS) -o $@

$(O)/selftests/bench/door: $(O)/selftests/bench/door.o $(LIBKVMM_A)
	$(CC) $(LDFLAGS) $^ $(LIBKVMM_LIBS) -o $@

# The file to swap to and how much; the disk that matters is the user's.
BENCH_FILE   ?= $(B)/bench-swap
BENCH_BYTES  ?= 1G
BENCH_ROUNDS ?= 3

# In the VM; how much, how often and with how many CPUs.
BENCH_POPULATE        ?= 1024
BENCH_POPULATE_ROUNDS ?= 5
BENCH_POPULATE_CPUS   ?= 2

.PHONY: bench-run bench-core bench-door bench-swap bench-populate
bench-run: bench-core bench-door bench-swap

bench-core: $(O)/selftests/bench/core
	@$< $(if $(JSON),--json)

bench-door: $(O)/selftests/bench/door
	@for fragment in 65536 32768 8192; do \
		$< --fragment $$fragment --rounds 9 $(if $(JSON),--json) || \
			exit 1; \
	done

bench-swap: $(O)/selftests/bench/swap
	@selftests/bench/swap.py $< --file $(BENCH_FILE) \
		--bytes $(BENCH_BYTES) --rounds $(BENCH_ROUNDS) \
		$(if $(JSON),--json)

$(O)/selftests/bench/populate: $(O)/selftests/bench/populate.o
	$(CC) $(LDFLAGS) -static $^ -o $@

bench-populate: $(O)/selftests/bench/populate $(B)/kvmm.ko
	@$(VM_RUN) --name bench-populate --disk 0 \
		--cpus $(BENCH_POPULATE_CPUS) \
		--mem $$(($(BENCH_POPULATE) * 5 / 4 + 512))M \
		--module $(B)/kvmm.ko --rmmod --test-timeout 1200 --file $< \
		--label populate --cmd 'populate \
		$$(($(BENCH_POPULATE) << 20)) $(BENCH_POPULATE_ROUNDS)'

# kvmm.ko against io_uring, in the VM; not a part of `make bench`: it needs the
# VM and takes minutes where that is emulated.
BENCH_VM_BYTES  ?= 268435456
BENCH_VM_ROUNDS ?= 7
# where to: the spare disk itself, and a file on the ext4 one
BENCH_VM_PATHS  ?= /dev/vdb /mnt/disk/area
BENCH_VM_ARGS   := $(if $(JSON),--json )--bytes $(BENCH_VM_BYTES) --rounds $(BENCH_VM_ROUNDS)

$(O)/selftests/bench/vm: $(O)/selftests/bench/vm.o \
		$(patsubst %,$(O)/selftests/kernel/%.o,kt_pool kt_block kt_swap kt_proc kt_ring)
	$(CC) $(CFLAGS) $(LDFLAGS) -static $^ -luring -o $@

.PHONY: bench-vm
bench-vm: $(O)/selftests/bench/vm $(B)/kvmm.ko $(KIMAGE_STAMP)
	@$(VM_RUN) --name bench --mem 1G --append tsc=reliable --module $(B)/kvmm.ko --rmmod \
		--test-timeout 900 --file $< \
		$(foreach p,$(BENCH_VM_PATHS),--test 'vm $(BENCH_VM_ARGS) $p')
