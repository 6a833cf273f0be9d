/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Frames that were exported as a dma-buf: export.c holds their memory, dmabuf.c
 * shows it to devices, to processes and to the kernel.
 */
#ifndef KVMM_EXPORT_H
#define KVMM_EXPORT_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/types.h>

#include "core/core.h"

struct dma_buf;
struct file;
struct kvmm_client;
struct kvmm_pool;

/**
 * struct kvmm_export_call - KVMM_EXPORT on its way
 * @a: what the caller gave and gets
 * @file: the dma-buf, or NULL; it gets its descriptor when the caller was told
 */
struct kvmm_export_call {
	struct kvmm_export a;
	struct file *file;
};

/**
 * struct kvmm_piece - memory that is physically contiguous
 * @page: its first page
 * @start: the number of that page in the export
 */
struct kvmm_piece {
	struct page *page;
	pgoff_t start;
};

/**
 * struct kvmm_export_mem - the memory of one dma-buf
 * @rb: in kvmm_pool.exports
 * @subtree_last: highest @last in the tree below
 * @first: first frame
 * @last: last frame
 * @pool: the pool; holds a reference
 * @rdonly: nobody may write to it
 * @nr_pages: pages
 * @nr_pieces: pieces they make
 * @pieces: those, in order, and one more that starts where they end
 * @lock: the list; inside the lock of dma_buf.resv, nothing is inside
 * @maps: mappings of devices
 *
 * Constant but for the first two, which are under the pool's lock.  Holds a
 * reference to each folio it touches, whatever becomes of the pool.
 */
struct kvmm_export_mem {
	struct rb_node rb;
	u32 subtree_last;
	u32 first;
	u32 last;
	struct kvmm_pool *pool;
	bool rdonly;
	pgoff_t nr_pages;
	u32 nr_pieces;
	struct kvmm_piece *pieces;
	struct mutex lock;			/* @maps */
	struct list_head maps;
};

/* Pages of piece @i */
static inline pgoff_t kvmm_piece_pages(const struct kvmm_export_mem *x, u32 i)
{
	return x->pieces[i + 1].start - x->pieces[i].start;
}

/* ---- export.c ---- */

bool kvmm_export_poisoned(const struct kvmm_export_mem *x);
void kvmm_export_drop(struct kvmm_export_mem *x);

#ifdef CONFIG_DMA_SHARED_BUFFER
bool kvmm_export_covers(struct kvmm_pool *pool, u32 first, u32 count);
u32 kvmm_export_revoke(struct kvmm_pool *pool);
int kvmm_do_export(struct kvmm_client *client, struct file *file, void *arg);
void kvmm_export_told(struct kvmm_client *client, void *arg, int err);
#else
static inline bool kvmm_export_covers(struct kvmm_pool *pool, u32 first,
				      u32 count)
{
	return false;
}

static inline u32 kvmm_export_revoke(struct kvmm_pool *pool)
{
	return 0;
}

static inline int kvmm_do_export(struct kvmm_client *client, struct file *file,
				 void *arg)
{
	return -EOPNOTSUPP;
}

static inline void kvmm_export_told(struct kvmm_client *client, void *arg,
				    int err)
{
}
#endif

/* ---- dmabuf.c ---- */

struct dma_buf *kvmm_dmabuf_make(struct kvmm_export_mem *x);

#endif /* KVMM_EXPORT_H */
