/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The arena and its pages: for I/O, and for arena.c and populate.c, which share
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

/* ---- arena.c ---- */

int kvmm_arena_init(struct kvmm_pool *pool);
void kvmm_arena_revoke(struct kvmm_pool *pool);
void kvmm_arena_exit(struct kvmm_pool *pool);
int kvmm_arena_mmap(struct kvmm_pool *pool, struct vm_area_struct *vma,
		    bool rdonly);
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
