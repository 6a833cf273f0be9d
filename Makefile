# SPDX-License-Identifier: MIT
#
# kvmm: userspace, the kernel module, tests and benchmarks.  `make help` lists
# the targets.  Everything that is built goes to build/.  Each folder declares
# what it builds in its own rules.mk.

SHELL := /bin/bash
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VERSION := 0.1.0

B       ?= build
# release, asan (ASan and UBSan), tsan, clang: each has objects of its own
VARIANT ?= release
O       := $(B)/$(VARIANT)

PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
DESTDIR ?=

CC_release := gcc
CC_asan    := gcc
CC_tsan    := gcc
CC_clang   := clang
ifeq ($(origin CC),default)
CC := $(CC_$(VARIANT))
endif

WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes \
	-Wmissing-prototypes -Wvla -Wpointer-arith
OPT_release := -O2 -g
OPT_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all \
	-fno-omit-frame-pointer
OPT_tsan    := -O1 -g -fsanitize=thread
OPT_clang   := -O2 -g

CFLAGS   ?= $(OPT_$(VARIANT))
CPPFLAGS += -Iuapi -Ilibkvmm/include -Ikmod -D_GNU_SOURCE \
	-DKVMM_VERSION='"$(VERSION)"'
ALL_CFLAGS := -std=gnu11 -fPIC -fvisibility=hidden -pthread $(WARN) $(CPPFLAGS)
LDFLAGS  += -pthread $(filter -fsanitize=%,$(CFLAGS))

# tests: one line per suite, `make suite-NAME` runs it and keeps its counts
SUITES :=
# what `all` builds
ALL :=

include $(wildcard libkvmm/rules.mk gpu-shim/rules.mk tools/rules.mk \
	tools/*/rules.mk kmod/rules.mk selftests/*/rules.mk)

$(O)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(CFLAGS) $(CFLAGS_$*) -MMD -MP -c $< -o $@

# the core is kernel code: no floating point, also where it runs in a process
$(O)/kmod/core/%.o: ALL_CFLAGS += -mgeneral-regs-only

-include $(shell find $(O) -name '*.d' 2>/dev/null)

.PHONY: all modules demo demo-vm check check-vm bench style install clean \
	help setup-% report FORCE

all: $(ALL)

setup-%: FORCE
	@tools/dist/setup.sh $*

# The suites record counts and never stop make: one run shows every failure.
check: setup-check
	@rm -rf $(B)/results
	@$(MAKE) --no-print-directory all modules
	@$(MAKE) --no-print-directory -k $(SUITES:%=suite-%)
	@$(MAKE) --no-print-directory report

report:
	@selftests/report.sh $(B)/results $(SUITES)

check-vm: setup-vm
	@rm -f $(B)/results/vm*
	@$(MAKE) --no-print-directory all modules
	@$(MAKE) --no-print-directory -k $(filter suite-vm%,$(SUITES:%=suite-%))
	@selftests/report.sh $(B)/results $(filter vm%,$(SUITES))

# What the folders bring for these: demo-run, demo-vm-run, bench-run,
# install-NAME.
# With llama.cpp where its library is here already, else made-up blocks.
demo: setup-demo
	@$(MAKE) --no-print-directory -s all
	@if tools/llama/find.sh --build $(B) >/dev/null 2>&1 && \
		$(MAKE) --no-print-directory -s llama LLAMA_FETCH=; then \
		$(MAKE) --no-print-directory -s demo-llama-run; \
	else \
		$(MAKE) --no-print-directory -s demo-run && echo && \
		echo 'make demo-llama shows it with llama.cpp, which it fetches (20 MB).'; \
	fi

demo-vm: setup-vm
	@$(MAKE) --no-print-directory -s all modules
	@$(MAKE) --no-print-directory demo-vm-run

bench: setup-bench
	@$(MAKE) --no-print-directory -s all
	@$(MAKE) --no-print-directory bench-run

install: all install-lib install-kvmmctl

SUITES += style
style suite-style: $(KSELFTEST_STAMP) $(KDIR_STAMP)
style:
	@selftests/style.sh $(B)
suite-style:
	@selftests/tap.sh $(B)/results style selftests/style.sh $(B)

# what counts the others
SUITES += tap
.PHONY: suite-tap
suite-tap:
	@selftests/tap.sh $(B)/results tap selftests/tap_test.sh

clean:
	rm -rf $(B)

help:
	@echo 'all        library and kvmmctl'
	@echo 'modules    kvmm.ko for the stock kernel the tests boot; KDIR=... for another'
	@echo 'setup-build    install what all needs; setup-check: modules and the tests, too'
	@echo 'demo       the main job on the user backend, half a minute once built, no module'
	@echo 'demo-llama the same with llama.cpp, whose library is fetched'
	@echo 'demo-vm    the same on kvmm.ko in a virtual machine'
	@echo 'check      every test; installs what is missing'
	@echo 'suite-NAME one suite, for instance suite-lib; check SUITES="lib shim" for some'
	@echo 'check-vm   only the tests of the kernel module'
	@echo 'check-kernels  those on 6.1, 6.12 and 7.2'
	@echo 'check-debug    those on kernels with KASAN, lockdep and kmemleak'
	@echo 'check-coverage lines of the module that its tests run'
	@echo 'check-soak     kill, race and storm of these for long, on a debug kernel'
	@echo 'fuzz-core, fuzz-kernel  FUZZ_SECONDS=...: random commands for as long'
	@echo 'bench      swap against fio, offload against memcpy, and the core'
	@echo 'bench-vm   kvmm.ko against io_uring, in the virtual machine'
	@echo 'llama      kvmm-llama, with llama.cpp; LLAMA_ROOT=... or fetched'
	@echo 'gpu-bundle build/kvmm-gpu-check: takes the checks to a machine with an NVIDIA GPU'
	@echo 'style      checkpatch, sparse, W=1, kernel-doc, -fanalyzer'
	@echo 'install    library, headers, manual, kvmmctl; PREFIX, LIBDIR and DESTDIR'
	@echo 'install-llama  kvmm-llama, with a llama.cpp of your own'
	@echo 'clean      remove build/'
