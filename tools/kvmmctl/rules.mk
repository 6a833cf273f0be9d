# SPDX-License-Identifier: MIT
#
# kvmmctl, and the demo that it runs.

KVMMCTL_OBJS := $(patsubst %.c,$(O)/%.o,$(wildcard tools/kvmmctl/*.c))
KVMMCTL := $(O)/tools/kvmmctl/kvmmctl

ALL += $(KVMMCTL)

$(KVMMCTL): $(KVMMCTL_OBJS) $(LIBKVMM_A)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBKVMM_LIBS) -ljansson -lm

.PHONY: demo-run demo-vm-run install-kvmmctl
demo-run: $(KVMMCTL)
	@$(KVMMCTL) --backend user demo

# Smaller, since the processor is emulated where there is no hardware help.  The
# pipe keeps the progress bar away: the VM's terminal is a log here.
demo-vm-run: $(KVMMCTL) $(B)/kvmm.ko
	@$(VM_RUN) --name demo --module $(B)/kvmm.ko --rmmod --file $(KVMMCTL) \
		--label demo --test-timeout 300 --cmd 'set -o pipefail; \
		TMPDIR=$$KVMM_DISK kvmmctl --backend kernel demo \
		--memory 32M --disk 64M --block-size 64K 2>&1 | cat'

install-kvmmctl: $(KVMMCTL)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -m 755 $(KVMMCTL) $(DESTDIR)$(PREFIX)/bin/kvmmctl
	install -m 644 tools/kvmmctl/man/kvmmctl.1 \
		$(DESTDIR)$(PREFIX)/share/man/man1/kvmmctl.1
	install -m 644 tools/kvmmctl/completion/kvmmctl \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/kvmmctl
