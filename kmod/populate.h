/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Frames get their memory: populates in progress, by threads and by workers.
 */
#ifndef KVMM_POPULATE_H
#define KVMM_POPULATE_H

#include <linux/list.h>
#include <linux/types.h>

struct file;
struct kvmm_client;
struct kvmm_pool;

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
int kvmm_do_populate(struct kvmm_client *client, struct file *file, void *arg);

/* ---- fill.c ---- */

int kvmm_fill_begin(struct kvmm_fill *fill, struct kvmm_pool *pool, u32 frames);
void kvmm_fill_step(struct kvmm_fill *fill, u32 frames);
void kvmm_fill_end(struct kvmm_fill *fill);
int kvmm_fill_cancel(struct kvmm_pool *pool);
int kvmm_fill_async(struct kvmm_pool *pool, u32 first, u32 end, u32 workers);
void kvmm_fill_drain(struct kvmm_pool *pool);

#endif /* KVMM_POPULATE_H */
