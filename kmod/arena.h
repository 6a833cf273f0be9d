/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The pages of the arena: for I/O, and for arena.c and populate.c, which share
 * them.
 */
#ifndef KVMM_ARENA_H
#define KVMM_ARENA_H

#include <linux/bvec.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/types.h>

#include "kvmm_mod.h"

struct shmem_sb_info;

/* A cgroup or machine without memory is an error here, not an OOM kill. */
#define KVMM_ARENA_GFP	(GFP_HIGHUSER | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)

/* Room for a mount option that names up to 32 ranges of nodes below 64. */
#define KVMM_PLACE_LEN		128

static inline struct inode *kvmm_arena_inode(struct kvmm_pool *pool)
{
	return file_inode(pool->arena.file);
}

static inline struct shmem_sb_info *kvmm_arena_sbinfo(struct vfsmount *mnt)
{
	return mnt->mnt_sb->s_fs_info;
}

/* log2 of a frame's pages */
static inline unsigned int kvmm_frame_page_shift(const struct kvmm_pool *pool)
{
	return pool->block_shift - PAGE_SHIFT;
}

/* Frames of one huge page; larger frames come and go one by one. */
static inline u32 kvmm_unit_frames(const struct kvmm_pool *pool)
{
	if (pool->block_shift >= PMD_SHIFT)
		return 1;
	return 1U << (PMD_SHIFT - pool->block_shift);
}

static inline struct mutex *kvmm_unit_lock(struct kvmm_pool *pool, u32 frame)
{
	u32 unit = frame / kvmm_unit_frames(pool);

	return &pool->arena.unit[unit % KVMM_UNIT_LOCKS];
}

/**
 * struct kvmm_fill - a populate in progress
 * @pool: the pool
 * @node: in the list of @pool; its lock
 * @left: frames that it still has to do; the same lock
 * @gently: only what is free: nothing is reclaimed for it
 * @full: the nodes that the pool prefers were all seen to be full
 * @cancelled: it is to end; written under that lock
 */
struct kvmm_fill {
	struct kvmm_pool *pool;
	struct list_head node;
	u32 left;
	bool gently;
	bool full;
	bool cancelled;
};

/* ---- populate.c ---- */

void kvmm_arena_allow(struct kvmm_pool *pool, long pages);
int kvmm_populate_unit(struct kvmm_fill *fill, u32 first, u32 last);

/* ---- fill.c ---- */

int kvmm_fill_begin(struct kvmm_fill *fill, struct kvmm_pool *pool, u32 frames);
void kvmm_fill_step(struct kvmm_fill *fill, u32 frames);
void kvmm_fill_end(struct kvmm_fill *fill);
int kvmm_fill_cancel(struct kvmm_pool *pool);
int kvmm_fill_async(struct kvmm_pool *pool, u32 first, u32 end, u32 workers);

/* ---- arena.c ---- */

unsigned int kvmm_frames_of(const struct kvmm_pool *pool, pgoff_t start,
			    pgoff_t end);
void kvmm_arena_release(struct kvmm_pool *pool, pgoff_t start, pgoff_t end);
void kvmm_arena_punch(struct kvmm_pool *pool, pgoff_t start, pgoff_t end);
bool kvmm_next_run(struct kvmm_pool *pool, bool online, u32 *first, u32 *last,
		   u32 end);
bool kvmm_folio_poisoned(struct folio *folio, pgoff_t from, pgoff_t to);
bool kvmm_frame_poisoned(struct kvmm_pool *pool, u32 frame);
unsigned int kvmm_arena_bvec(struct kvmm_pool *pool, u64 pos, size_t len,
			     struct bio_vec *bvec, unsigned int max,
			     size_t *bytes);
u32 kvmm_arena_crc32c(struct kvmm_pool *pool, u64 pos, size_t len);

#endif /* KVMM_ARENA_H */
