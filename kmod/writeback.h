/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Background writeback: cold blocks are written before their frames are needed.
 */
#ifndef KVMM_WRITEBACK_H
#define KVMM_WRITEBACK_H

#include <linux/types.h>
#include <linux/workqueue.h>

struct kvmm_pool;

/**
 * struct kvmm_writeback - background writeback of a pool, under its lock
 * @low: it begins below so many permille of the frames online, 0: never
 * @high: and ends there
 * @active: it has begun, and not come to @high
 * @inflight: its writes in flight
 * @outs: blocks that it has written
 * @work: its worker; never runs twice at once
 */
struct kvmm_writeback {
	u32 low;
	u32 high;
	bool active;
	u32 inflight;
	u64 outs;
	struct work_struct work;
};

/* ---- writeback.c ---- */

void kvmm_writeback_init(struct kvmm_pool *pool);
void kvmm_writeback_exit(struct kvmm_pool *pool);
int kvmm_writeback_set(struct kvmm_pool *pool, u32 low, u32 high);
void kvmm_writeback_kick(struct kvmm_pool *pool);

#endif /* KVMM_WRITEBACK_H */
