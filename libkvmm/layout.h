/* SPDX-License-Identifier: MIT */
/*
 * A checked layout, and what copies are made of it.
 */
#ifndef LIBKVMM_LAYOUT_H
#define LIBKVMM_LAYOUT_H

#include "backend.h"

#pragma GCC visibility push(default)
#include <kvmm_engine.h>
#pragma GCC visibility pop

#include "../gpu-shim/gpu.h"

/**
 * struct lay - a layout
 * @runs: own copy
 * @nr_runs: how many
 * @nr_groups: groups of them
 * @first: for each group its first run; one more entry: @nr_runs
 * @offset: for each group where it is in the frame of a full block
 * @block_tokens: tokens of a GPU block
 * @gpu_blocks: GPU blocks of a block
 * @nr_gpu_blocks: GPU block numbers are below it
 * @tokens: of a full block
 * @bytes: of a full block
 */
struct lay {
	struct kvmm_run *runs;
	unsigned int nr_runs;
	unsigned int nr_groups;
	unsigned int *first;
	size_t *offset;
	unsigned int block_tokens;
	unsigned int gpu_blocks;
	uint64_t nr_gpu_blocks;
	unsigned int tokens;
	size_t bytes;
};

/** lay_init() - check and copy; 0 or -errno */
int lay_init(struct lay *lay, const struct kvmm_layout *layout);
void lay_free(struct lay *lay);

/** lay_bytes() - bytes of a block with @tokens */
size_t lay_bytes(const struct lay *lay, unsigned int tokens);

/** lay_offset() - where @group is in the frame of such a block */
size_t lay_offset(const struct lay *lay, unsigned int group,
		  unsigned int tokens);

/**
 * lay_copy() - what the device copies for runs @first to @last - 1
 * @lay: the layout
 * @first: first run
 * @last: one past the last
 * @tokens: of the block
 * @gpu_blocks: its GPU blocks
 * @out: room for (@last - @first) * lay->gpu_blocks
 *
 * Return: entries of @out.
 */
size_t lay_copy(const struct lay *lay, unsigned int first, unsigned int last,
		unsigned int tokens, const uint32_t *gpu_blocks,
		struct kvmm_gpu_run *out);

#endif /* LIBKVMM_LAYOUT_H */
