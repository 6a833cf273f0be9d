/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What clients are told, and where it waits until they read it.
 */
#ifndef KVMM_EVENT_H
#define KVMM_EVENT_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "core/core.h"

struct file;
struct iov_iter;
struct kiocb;
struct kvmm_client;
struct kvmm_pool;
struct poll_table_struct;

/**
 * struct kvmm_event_queue - what a client is to be told
 * @read: readers and KVMM_EVENTS, one at a time
 * @wait: readers and pollers; woken when @nr rises from 0, when another choice
 *	is made and when the pool ends
 * @node: in the pool's listeners; its lock, as for @mask
 * @mask: bit N: enum kvmm_event_type N was chosen
 * @lock: protects what follows; inside the pool's lock
 * @ring: the events; NULL: nothing is chosen.  Changes under @read and the
 *	pool's lock, too
 * @size: room in @ring
 * @tail: where the oldest is; only who holds @read moves it
 * @nr: how many
 * @lost: those that found @ring full; not 0 only while it is
 * @lost_ms: time of the last of them
 */
struct kvmm_event_queue {
	struct mutex read;			/* @tail, over user memory */
	wait_queue_head_t wait;
	struct list_head node;
	u64 mask;
	spinlock_t lock;			/* all that follows */
	struct kvmm_event *ring;
	u32 size;
	u32 tail;
	u32 nr;
	u64 lost;
	u64 lost_ms;
};

/* ---- event.c ---- */

void kvmm_event_init(struct kvmm_event_queue *q);
void kvmm_event_exit(struct kvmm_event_queue *q);
void kvmm_event_unlisten(struct kvmm_client *client);
void kvmm_event_hangup(struct kvmm_pool *pool);
/* All three: with the pool's lock held; they take no memory. */
void kvmm_event_raise(struct kvmm_pool *pool, struct kvmm_event *ev);
void kvmm_event_pool(struct kvmm_pool *pool, u32 type, u64 value);
void kvmm_event_client(struct kvmm_client *client, u32 type, u64 value);
void kvmm_event_note(void *ctx, enum kvmm_core_note what, u64 handle,
		     const struct kvmm_block *b);
ssize_t kvmm_event_read(struct kiocb *iocb, struct iov_iter *to);
__poll_t kvmm_event_poll(struct file *file, struct poll_table_struct *wait);
int kvmm_do_events(struct kvmm_client *client, struct file *file, void *arg);

#endif /* KVMM_EVENT_H */
