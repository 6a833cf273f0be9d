/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The pages of the arena, for I/O.
 */
#ifndef KVMM_ARENA_H
#define KVMM_ARENA_H

#include <linux/bvec.h>
#include <linux/types.h>

struct kvmm_pool;

unsigned int kvmm_arena_bvec(struct kvmm_pool *pool, u64 pos, size_t len,
			     struct bio_vec *bvec, unsigned int max,
			     size_t *bytes);
u32 kvmm_arena_crc32c(struct kvmm_pool *pool, u64 pos, size_t len);

#endif /* KVMM_ARENA_H */
