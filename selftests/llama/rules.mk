# SPDX-License-Identifier: MIT
#
# Tests of kvmm-llama.
#
#   llama-fake  all of it, on an engine that pretends; ASan and UBSan
#   llama       on libllama; skipped where that can't be had
#   vm-llama    on libllama and the kernel's pool, in the VM: kill -9, restart
#
# LLAMA_FETCH=: use libllama only where it is here already.

LT_FAKE := $(O)/selftests/llama/kvmm-llama-fake

$(O)/selftests/llama/%.o: ALL_CFLAGS += -I.

$(LT_FAKE): $(LLAMA_BARE_OBJS) $(O)/selftests/llama/fake_engine.o $(LIBKVMM_A)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBKVMM_LIBS) -ljansson -lm

SUITES += llama-fake llama vm-llama
.PHONY: suite-llama-fake suite-llama suite-vm-llama llama-fake
llama-fake: $(LT_FAKE)

suite-llama-fake:
	@$(MAKE) --no-print-directory -s VARIANT=clang llama-fake
	@$(MAKE) --no-print-directory -s VARIANT=asan llama-fake
	@KVMM_LLAMA=$(B)/asan/selftests/llama/kvmm-llama-fake \
		selftests/tap.sh $(B)/results llama-fake \
		python3 selftests/llama/test_llama.py fake

suite-llama:
	@selftests/tap.sh $(B)/results llama selftests/llama/run.sh $(B) \
		$(LLAMA_FETCH)

# Where it can't run, the suite is one test that says why.
suite-vm-llama: $(KVMMCTL) $(B)/kvmm.ko
	@why=$$(selftests/llama/vm-host.sh $(B) $(B)/vm-llama $(LLAMA_FETCH)); \
	rc=$$?; \
	if [ $$rc = 4 ]; then \
		selftests/tap.sh $(B)/results vm-llama echo \
			"ok 1 - kvmm-llama in the VM # SKIP $$why"; \
	else \
		selftests/tap.sh $(B)/results vm-llama sh -c "[ $$rc = 0 ] && \
			exec $(VM_RUN) --name llama --module $(B)/kvmm.ko \
			--rmmod --mem 768M --test-timeout 400 \
			--file $(B)/vm-llama/llama.tar --file $(KVMMCTL) \
			--file selftests/llama/vm.sh:/t/llama.sh \
			--test llama.sh"; \
	fi
