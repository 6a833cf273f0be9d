# SPDX-License-Identifier: MIT
#
# kvmm-llama.  libllama may be of a newer system than this one, with a C library
# of its own; so the program is compiled, with libkvmm, against that: a variant
# of the build, build/llama, whose compiler and flags tools/llama/find.sh tells.
# All but the engine builds without libllama, too: selftests/llama uses that.

LLAMA_SRC := $(wildcard tools/llama/*.c)
# sizes and progress as kvmmctl has them
LLAMA_SHARED := tools/kvmmctl/size.c tools/kvmmctl/output.c
LLAMA_OBJS := $(patsubst %.c,$(O)/%.o,$(LLAMA_SRC) $(LLAMA_SHARED))
# the program without an engine
LLAMA_BARE_OBJS := $(filter-out %/engine_llama.o,$(LLAMA_OBJS))

LLAMA_FOUND := $(B)/llama/found.mk
LLAMA_DIR := $(B)/llama/tools/llama
KVMM_LLAMA := $(LLAMA_DIR)/kvmm-llama
LLAMA_MODEL := $(B)/llama/random.gguf

ifeq ($(VARIANT),llama)
include $(LLAMA_FOUND)
CC := $(LLAMA_CC)
OPT_llama := -O2 -g
ALL_CFLAGS += $(LLAMA_CPPFLAGS)
$(O)/tools/llama/setup.o: ALL_CFLAGS += \
	$(if $(LLAMA_BACKENDS),-DLLAMA_BACKENDS='"$(abspath $(LLAMA_BACKENDS))"')
$(LLAMA_OBJS) $(LIBKVMM_OBJ): $(LLAMA_FOUND)

$(KVMM_LLAMA).bin: $(LLAMA_OBJS) $(LIBKVMM_A)
	$(CC) $(LDFLAGS) $(LLAMA_LDFLAGS) -o $@ $^ $(LLAMA_LIBS) \
		$(LIBKVMM_LIBS) -ljansson -lm

# A program of another system is started by that system's loader.
$(KVMM_LLAMA): $(KVMM_LLAMA).bin
ifeq ($(LLAMA_KIND),root)
	@printf '#!/bin/sh\n%s\nexec %s --library-path %s %s "$$@"\n' \
		'# SPDX-License-Identifier: MIT' $(LLAMA_LOADER) \
		$(LLAMA_LIBDIR) $(abspath $<) >$@.new
	@chmod 755 $@.new
	@mv $@.new $@
else
	@ln -sf $(notdir $<) $@
endif

$(LLAMA_MODEL): $(KVMM_LLAMA)
	@$(KVMM_LLAMA) model $@ >/dev/null
endif

# LLAMA_FETCH=: build only where libllama is here already
LLAMA_FETCH ?= --fetch

.PHONY: llama llama-model demo-llama demo-llama-run
llama:
	@mkdir -p $(B)/llama
	@tools/llama/find.sh --build $(B) $(LLAMA_FETCH) >$(LLAMA_FOUND).new
	@cmp -s $(LLAMA_FOUND).new $(LLAMA_FOUND) || \
		cp $(LLAMA_FOUND).new $(LLAMA_FOUND)
	@rm -f $(LLAMA_FOUND).new
	@$(MAKE) --no-print-directory VARIANT=llama $(KVMM_LLAMA) $(LLAMA_MODEL)

# One thread: the model is small, and threads that wait for each other on a busy
# machine cost more than they bring.
demo-llama-run:
	@$(KVMM_LLAMA) compare --model $(LLAMA_MODEL) --backend user \
		--threads 1 --conversations 16 --rounds 3

demo-llama: setup-demo
	@$(MAKE) --no-print-directory -s llama
	@$(MAKE) --no-print-directory -s demo-llama-run

# Not a part of `make install`: most will use what their engine has of its own.
.PHONY: install-llama
install-llama: llama
	@! grep -q 'LLAMA_KIND := root' $(LLAMA_FOUND) || { \
		echo 'kvmm-llama was built for another system: give LLAMA_ROOT' >&2; \
		exit 1; }
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -m 755 $(KVMM_LLAMA).bin $(DESTDIR)$(PREFIX)/bin/kvmm-llama
	install -m 644 tools/llama/man/kvmm-llama.1 \
		$(DESTDIR)$(PREFIX)/share/man/man1/kvmm-llama.1
	install -m 644 tools/llama/completion/kvmm-llama \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/kvmm-llama
