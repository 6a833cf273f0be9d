# SPDX-License-Identifier: MIT
#
# libkvmm.so and libkvmm.a: the library's own files, the core it shares with the
# kernel module, and the GPU shim.

LIBKVMM_OBJ := $(patsubst %.c,$(O)/%.o,$(filter-out libkvmm/example%.c, \
	$(wildcard libkvmm/*.c)) $(wildcard kmod/core/*.c) \
	$(wildcard gpu-shim/*.c))
LIBKVMM_SO := $(O)/libkvmm.so.0
LIBKVMM_A := $(O)/libkvmm.a
LIBKVMM_LIBS := -luring -lisal -lcrypto
LIBKVMM_MAN3 := $(wildcard libkvmm/man/*.3)
LIBKVMM_MAN7 := $(wildcard libkvmm/man/*.7)

ALL += $(LIBKVMM_A) $(O)/libkvmm.so $(O)/libkvmm.pc

$(LIBKVMM_A): $(LIBKVMM_OBJ)
	@mkdir -p $(@D)
	rm -f $@
	$(AR) rcs $@ $^

$(LIBKVMM_SO): $(LIBKVMM_OBJ) libkvmm/libkvmm.map
	@mkdir -p $(@D)
	$(CC) -shared -Wl,-soname,libkvmm.so.0 \
		-Wl,--version-script=libkvmm/libkvmm.map -Wl,-z,defs \
		$(LDFLAGS) $(LIBKVMM_OBJ) $(LIBKVMM_LIBS) -o $@

$(O)/libkvmm.so: $(LIBKVMM_SO)
	ln -sf libkvmm.so.0 $@

# The paths go into the file: it is made anew when they change.
$(O)/libkvmm.pc: libkvmm/libkvmm.pc.in FORCE
	@mkdir -p $(@D)
	@sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|' \
		-e 's|@VERSION@|$(VERSION)|' $< >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

INSTALL += install-lib
.PHONY: install-lib
install-lib: $(LIBKVMM_A) $(LIBKVMM_SO) $(O)/libkvmm.pc
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig \
		$(DESTDIR)$(PREFIX)/include/linux \
		$(DESTDIR)$(PREFIX)/share/man/man3 \
		$(DESTDIR)$(PREFIX)/share/man/man7
	install -m 644 $(LIBKVMM_A) $(DESTDIR)$(LIBDIR)/libkvmm.a
	install -m 755 $(LIBKVMM_SO) $(DESTDIR)$(LIBDIR)/libkvmm.so.$(VERSION)
	ln -sf libkvmm.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libkvmm.so.0
	ln -sf libkvmm.so.0 $(DESTDIR)$(LIBDIR)/libkvmm.so
	install -m 644 $(O)/libkvmm.pc $(DESTDIR)$(LIBDIR)/pkgconfig/libkvmm.pc
	install -m 644 libkvmm/include/kvmm.h $(DESTDIR)$(PREFIX)/include/kvmm.h
	install -m 644 libkvmm/include/kvmm_engine.h \
		$(DESTDIR)$(PREFIX)/include/kvmm_engine.h
	install -m 644 uapi/linux/kvmm.h \
		$(DESTDIR)$(PREFIX)/include/linux/kvmm.h
	install -m 644 $(LIBKVMM_MAN3) $(DESTDIR)$(PREFIX)/share/man/man3/
	install -m 644 $(LIBKVMM_MAN7) $(DESTDIR)$(PREFIX)/share/man/man7/
	@# each function has a name of its own for its page
	@for page in $(notdir $(LIBKVMM_MAN3)); do \
		for name in $$(sed -n 's/^\.Nm \(kvmm_[a-z_]*\).*/\1.3/p' \
				libkvmm/man/$$page); do \
			[ $$name = $$page ] || ln -sf $$page \
				$(DESTDIR)$(PREFIX)/share/man/man3/$$name; \
		done; \
	done
