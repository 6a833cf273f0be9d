# SPDX-License-Identifier: MIT
#
# The GPU shim: objects that libkvmm takes in.  It links with nothing: the
# CUDA driver and libdrm are loaded at run time.

GPU_SHIM_OBJ := $(patsubst %.c,$(O)/%.o,$(wildcard gpu-shim/*.c))

$(O)/gpu-shim/drm.o: ALL_CFLAGS += $(shell pkg-config --cflags libdrm 2>/dev/null)

ALL += $(GPU_SHIM_OBJ)
