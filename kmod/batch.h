/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Commands on arrays of blocks: their calls, and what they share.  User memory
 * is copied outside the pool's lock, KVMM_CORE_BATCH entries at a time, through
 * the client's own buffer.
 */
#ifndef KVMM_BATCH_H
#define KVMM_BATCH_H

#include <linux/types.h>

#include "kvmm_mod.h"

static inline bool kvmm_bad_count(u32 count)
{
	return !count || count > KVMM_MAX_BATCH;
}

/* ---- alloc.c ---- */

int kvmm_do_alloc(struct kvmm_client *client, struct file *file, void *arg);
int kvmm_do_publish(struct kvmm_client *client, struct file *file, void *arg);

/* ---- lookup.c ---- */

int kvmm_do_lookup(struct kvmm_client *client, struct file *file, void *arg);
int kvmm_do_keys(struct kvmm_client *client, struct file *file, void *arg);

/* ---- batch.c ---- */

int kvmm_pool_lock(struct kvmm_pool *pool);
int kvmm_next_batch(void);
void kvmm_unpin_untold(struct kvmm_client *client, struct kvmm_block_ref *refs,
		       u32 n);
int kvmm_do_touch(struct kvmm_client *client, struct file *file, void *arg);
int kvmm_do_pin(struct kvmm_client *client, struct file *file, void *arg);
int kvmm_do_unpin(struct kvmm_client *client, struct file *file, void *arg);
int kvmm_do_drop(struct kvmm_client *client, struct file *file, void *arg);
int kvmm_do_query(struct kvmm_client *client, struct file *file, void *arg);
int kvmm_do_request_end(struct kvmm_client *client, struct file *file,
			void *arg);
int kvmm_do_hint(struct kvmm_client *client, struct file *file, void *arg);

#endif /* KVMM_BATCH_H */
