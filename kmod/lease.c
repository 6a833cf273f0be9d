// SPDX-License-Identifier: GPL-2.0
/*
 * Leases: a client says which chunks of the arena a device has registered.
 * Memory of a chunk that is leased is not given back; see giveback.c.
 */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "kvmm_mod.h"

/** kvmm_chunk_of() - the chunk that frame @frame is in */
struct kvmm_chunk *kvmm_chunk_of(struct kvmm_pool *pool, u32 frame)
{
	return &pool->elastic.chunks[frame / pool->elastic.chunk_frames];
}

/** kvmm_chunk_unwant() - a chunk is not asked back any more; pool locked */
void kvmm_chunk_unwant(struct kvmm_pool *pool, struct kvmm_chunk *chunk)
{
	if (!chunk->wanted)
		return;
	chunk->wanted = false;
	if (chunk->holds)
		pool->elastic.nr_wanted--;
	else
		pool->elastic.nr_released--;
}

/** kvmm_chunk_want() - ask leased chunk @i back; pool locked */
void kvmm_chunk_want(struct kvmm_pool *pool, u32 i)
{
	struct kvmm_chunk *chunk = &pool->elastic.chunks[i];
	struct kvmm_client *client;

	if (chunk->wanted || !chunk->holds)
		return;
	chunk->wanted = true;
	pool->elastic.nr_wanted++;
	list_for_each_entry(client, &pool->clients, node)
		if (client->leases && test_bit(i, client->leases))
			kvmm_event_client(client, KVMM_EVENT_CHUNK_WANTED, i);
}

/**
 * kvmm_wishes_end() - what was asked back and not had is not wanted any more
 * @pool: the pool, whose elastic memory nobody else is giving back
 */
void kvmm_wishes_end(struct kvmm_pool *pool)
{
	struct kvmm_elastic *e = &pool->elastic;
	bool more = true;
	u32 i = 0;

	while (more) {
		u32 end = min(i + KVMM_CORE_BATCH, e->nr_chunks);

		mutex_lock(&pool->lock);
		more = (e->nr_wanted || e->nr_released) && end < e->nr_chunks;
		for (; (e->nr_wanted || e->nr_released) && i < end; i++)
			kvmm_chunk_unwant(pool, &e->chunks[i]);
		mutex_unlock(&pool->lock);
		cond_resched();
	}
}

static int kvmm_lease_take(struct kvmm_client *client, u32 i)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_elastic *e = &pool->elastic;
	struct kvmm_chunk *chunk = &e->chunks[i];

	if (test_bit(i, client->leases))
		return 0;
	/* A wish does not outlive the want. */
	if (!kvmm_pressure_recent())
		kvmm_chunk_unwant(pool, chunk);
	if (chunk->going || chunk->wanted)
		return -EBUSY;
	if (!chunk->holds++)
		e->nr_leased++;
	__set_bit(i, client->leases);
	client->nr_leases++;
	return 0;
}

static void kvmm_lease_end(struct kvmm_client *client, u32 i)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_elastic *e = &pool->elastic;
	struct kvmm_chunk *chunk = &e->chunks[i];
	bool wanted = chunk->wanted;

	if (!test_bit(i, client->leases))
		return;
	__clear_bit(i, client->leases);
	client->nr_leases--;
	if (chunk->holds > 1) {
		chunk->holds--;
		return;
	}
	kvmm_chunk_unwant(pool, chunk);
	chunk->holds = 0;
	e->nr_leased--;
	if (wanted && kvmm_pressure_recent()) {
		chunk->wanted = true;
		e->nr_released++;
		kvmm_shrink_kick();
	}
}

/* The client's bits, made when it takes its first lease. */
static int kvmm_lease_bits(struct kvmm_client *client)
{
	struct kvmm_pool *pool = client->pool;
	unsigned long *bits;

	if (client->leases)
		return 0;
	bits = kvcalloc(BITS_TO_LONGS(pool->elastic.nr_chunks), sizeof(*bits),
			GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!bits)
		return -ENOMEM;
	mutex_lock(&pool->lock);
	client->leases = bits;
	mutex_unlock(&pool->lock);
	return 0;
}

static int kvmm_lease_batch(struct kvmm_client *client, struct kvmm_lease *a)
{
	struct kvmm_pool *pool = client->pool;
	u32 n = min_t(u32, a->count - a->done, KVMM_CORE_BATCH);
	int ret = 0;

	mutex_lock(&pool->lock);
	if (pool->dead)
		ret = -ENODEV;
	while (!ret && n--) {
		u32 i = a->first + a->done;

		if (a->flags & KVMM_LEASE_END)
			kvmm_lease_end(client, i);
		else
			ret = kvmm_lease_take(client, i);
		a->done += !ret;
	}
	mutex_unlock(&pool->lock);
	return ret;
}

int kvmm_do_lease(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_lease *a = arg;
	int ret;

	a->done = 0;
	if (a->flags & ~KVMM_LEASE_END || a->__reserved || !a->count ||
	    (u64)a->first + a->count > client->pool->elastic.nr_chunks)
		return -EINVAL;

	mutex_lock(&client->lock);
	ret = kvmm_lease_bits(client);
	while (!ret && a->done < a->count) {
		ret = kvmm_lease_batch(client, a);
		cond_resched();
		if (!ret && fatal_signal_pending(current))
			ret = -EINTR;
	}
	mutex_unlock(&client->lock);
	return ret;
}

/** kvmm_lease_end_all() - a client goes, its leases with it */
void kvmm_lease_end_all(struct kvmm_client *client)
{
	struct kvmm_pool *pool = client->pool;
	u32 nr = pool->elastic.nr_chunks;
	unsigned long *bits;
	u32 i = 0;
	u32 n;

	if (!client->leases)
		return;
	while (i < nr) {
		mutex_lock(&pool->lock);
		for (n = 0; n < KVMM_CORE_BATCH && i < nr; n++) {
			i = client->nr_leases ?
				find_next_bit(client->leases, nr, i) : nr;
			if (i < nr)
				kvmm_lease_end(client, i);
		}
		mutex_unlock(&pool->lock);
		cond_resched();
	}
	mutex_lock(&pool->lock);
	bits = client->leases;
	client->leases = NULL;
	mutex_unlock(&pool->lock);
	kvfree(bits);
}
