/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory that pools give back and take again, and leases, which forbid it.
 */
#ifndef KVMM_ELASTIC_H
#define KVMM_ELASTIC_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/workqueue.h>

struct file;
struct kvmm_client;
struct kvmm_pool;
struct kvmm_pool_create;
struct kvmm_pool_stat;

/**
 * struct kvmm_chunk - a chunk of the arena
 * @holds: leases on it
 * @going: units of it on their way out: no lease can be had
 * @wanted: asked back; without leases: to be given back soon
 */
struct kvmm_chunk {
	u16 holds;
	u16 going;
	bool wanted;
};

/**
 * struct kvmm_elastic - memory that a pool gives back and takes again
 * @node: in the list of pools that do so; kvmm_elastic_lock
 * @nr_chunks: constant
 * @chunk_frames: constant
 * @chunks: @nr_chunks of them
 * @nr_leased: chunks with leases
 * @nr_wanted: of those, asked back
 * @nr_released: asked back, and without leases now
 * @wish: kvmm_pressure_nr when chunks were asked back last
 * @gone: bit N: elastic frame N was given back and has no memory again
 * @nr_gone: such frames
 * @first_gone: none is before this one
 * @was: which frames of the unit at hand had memory; kvmm_elastic_lock
 * @known: pages that might be had, when last looked at; kvmm_elastic_lock
 * @idle_until: nothing was found last time: not to be asked before, jiffies
 * @again_after: memory is not taken again before, jiffies
 * @again: takes memory again
 * @given_back: frames given back so far
 * @taken_again: frames that had been given back and got memory again
 * @shrinks: times that memory was given back
 *
 * Under the pool's lock, but for what is said to be otherwise.
 */
struct kvmm_elastic {
	struct list_head node;
	u32 nr_chunks;
	u32 chunk_frames;
	struct kvmm_chunk *chunks;
	u32 nr_leased;
	u32 nr_wanted;
	u32 nr_released;
	unsigned int wish;
	unsigned long *gone;
	u32 nr_gone;
	u32 first_gone;
	unsigned long *was;
	unsigned long known;
	unsigned long idle_until;
	unsigned long again_after;
	struct work_struct again;
	u64 given_back;
	u64 taken_again;
	u64 shrinks;
};

/* ---- lease.c ---- */

struct kvmm_chunk *kvmm_chunk_of(struct kvmm_pool *pool, u32 frame);
void kvmm_wishes_end(struct kvmm_pool *pool);
void kvmm_chunk_unwant(struct kvmm_pool *pool, struct kvmm_chunk *chunk);
void kvmm_chunk_want(struct kvmm_pool *pool, u32 i);
void kvmm_lease_end_all(struct kvmm_client *client);
int kvmm_do_lease(struct kvmm_client *client, struct file *file, void *arg);

/* ---- elastic.c ---- */

void kvmm_elastic_setup(struct kvmm_pool *pool);
int kvmm_elastic_init(struct kvmm_pool *pool,
		      const struct kvmm_pool_create *a);
void kvmm_elastic_add(struct kvmm_pool *pool);
void kvmm_elastic_del(struct kvmm_pool *pool);
void kvmm_elastic_exit(struct kvmm_pool *pool);
void kvmm_elastic_online(struct kvmm_pool *pool, u32 first, u32 n);
void kvmm_elastic_miss(struct kvmm_pool *pool);
unsigned long kvmm_elastic_pages(struct kvmm_pool *pool);
void kvmm_elastic_stat(struct kvmm_pool *pool, struct kvmm_pool_stat *st);

/* ---- giveback.c ---- */

u64 kvmm_give_back(struct kvmm_pool *pool, u64 pages, bool hard);

/* ---- shrink.c ---- */

extern struct mutex kvmm_elastic_lock;
extern struct list_head kvmm_elastic_pools;

extern struct workqueue_struct *kvmm_elastic_wq;
extern unsigned int kvmm_pressure_nr;

unsigned long kvmm_pressure_jiffies(void);
bool kvmm_pressure_recent(void);
void kvmm_shrink_kick(void);
void kvmm_shrink_flush(void);
void kvmm_shrink_freed(unsigned long pages);
int kvmm_shrink_init(void);
void kvmm_shrink_exit(void);

#endif /* KVMM_ELASTIC_H */
