/* SPDX-License-Identifier: MIT */
/* The table of registered memory: see chunks.c. */
#ifndef KVMM_GPU_CHUNKS_H
#define KVMM_GPU_CHUNKS_H

#include "ops.h"

/* Unregisters everything, at close. */
void gpu_chunks_drop(struct kvmm_gpu *gpu);

#endif /* KVMM_GPU_CHUNKS_H */
