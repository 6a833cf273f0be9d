// SPDX-License-Identifier: GPL-2.0
/*
 * Events: what clients are told, read from their files.
 *
 * Each client that chose something has a queue of its own, whose memory is
 * taken when it chooses; so telling takes none, and costs one copy of 64 bytes
 * for each client that listens.  Who tells holds the pool's lock; who reads
 * holds the queue's mutex, over user memory; the two meet in the queue's
 * spinlock.  A full queue counts what it loses; the count becomes an event as
 * soon as a reader has made room, so it stands where the lost ones would have.
 */
#include <linux/bitops.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "kvmm_mod.h"
#include "trace.h"

#define KVMM_DEFAULT_EVENTS	256

/* Events that come by the block, 64 in one hold of the pool's lock. */
#define KVMM_BLOCK_EVENTS						\
	(BIT_ULL(KVMM_EVENT_EVICTED) | BIT_ULL(KVMM_EVENT_PURGED))

/**
 * kvmm_event_init() - a client that has chosen nothing
 * @q: its queue
 */
void kvmm_event_init(struct kvmm_event_queue *q)
{
	mutex_init(&q->read);
	init_waitqueue_head(&q->wait);
	INIT_LIST_HEAD(&q->node);
	spin_lock_init(&q->lock);
}

/** kvmm_event_exit() - nobody tells, reads or polls any more */
void kvmm_event_exit(struct kvmm_event_queue *q)
{
	kvfree(q->ring);
	mutex_destroy(&q->read);
}

/* There is room.  The queue's lock is held. */
static void kvmm_queue_put(struct kvmm_event_queue *q,
			   const struct kvmm_event *ev)
{
	u32 at = q->tail + q->nr;

	if (at >= q->size)
		at -= q->size;
	q->ring[at] = *ev;
	WRITE_ONCE(q->nr, q->nr + 1);
}

/* Return: false: it is lost. */
static bool kvmm_queue_add(struct kvmm_event_queue *q,
			   const struct kvmm_event *ev)
{
	bool room, first;

	spin_lock(&q->lock);
	room = q->nr < q->size;
	first = !q->nr;
	if (room) {
		kvmm_queue_put(q, ev);
	} else {
		q->lost++;
		q->lost_ms = ev->time_ms;
	}
	spin_unlock(&q->lock);
	/* Who waits has seen it empty. */
	if (first)
		wake_up_interruptible_poll(&q->wait, EPOLLIN | EPOLLRDNORM);
	return room;
}

/* @n events were read.  A queue that lost some is full until then. */
static void kvmm_queue_taken(struct kvmm_event_queue *q, u32 n)
{
	struct kvmm_event ev = { .type = KVMM_EVENT_LOST };

	spin_lock(&q->lock);
	q->tail += n;
	if (q->tail >= q->size)
		q->tail -= q->size;
	WRITE_ONCE(q->nr, q->nr - n);
	if (n && q->lost) {
		ev.value = q->lost;
		ev.time_ms = q->lost_ms;
		kvmm_queue_put(q, &ev);
		q->lost = 0;
	}
	spin_unlock(&q->lock);
}

static void kvmm_event_add(struct kvmm_pool *pool, struct kvmm_event_queue *q,
			   const struct kvmm_event *ev)
{
	if (kvmm_queue_add(q, ev))
		pool->events++;
	else
		pool->events_lost++;
}

/**
 * kvmm_event_raise() - tell all clients of a pool that chose to be told
 * @pool: the pool, locked
 * @ev: the event; its time is filled in
 */
void kvmm_event_raise(struct kvmm_pool *pool, struct kvmm_event *ev)
{
	struct kvmm_event_queue *q;

	lockdep_assert_held(&pool->lock);
	if (!(pool->event_mask & BIT_ULL(ev->type)))
		return;
	ev->time_ms = kvmm_pool_now(pool);
	list_for_each_entry(q, &pool->listeners, node)
		if (q->mask & BIT_ULL(ev->type))
			kvmm_event_add(pool, q, ev);
}

/**
 * kvmm_event_pool() - the same for an event of the whole pool
 * @pool: the pool, locked
 * @type: enum kvmm_event_type
 * @value: as the type says
 */
void kvmm_event_pool(struct kvmm_pool *pool, u32 type, u64 value)
{
	struct kvmm_event ev = { .type = type, .value = value };

	kvmm_event_raise(pool, &ev);
}

/**
 * kvmm_event_client() - tell one client, if it chose to be told
 * @client: the client, bound; its pool is locked
 * @type: enum kvmm_event_type
 * @value: as the type says
 */
void kvmm_event_client(struct kvmm_client *client, u32 type, u64 value)
{
	struct kvmm_event ev = { .type = type, .value = value };
	struct kvmm_pool *pool = client->pool;

	lockdep_assert_held(&pool->lock);
	if (!(client->events.mask & BIT_ULL(type)))
		return;
	ev.time_ms = kvmm_pool_now(pool);
	kvmm_event_add(pool, &client->events, &ev);
}

/**
 * kvmm_event_note() - struct kvmm_core_config.note: what happened to a block
 * @ctx: the pool, locked
 * @what: what
 * @handle: the block
 * @b: as it was
 */
void kvmm_event_note(void *ctx, enum kvmm_core_note what, u64 handle,
		     const struct kvmm_block *b)
{
	struct kvmm_event ev = {
		.type = what == KVMM_NOTE_EVICTED ? KVMM_EVENT_EVICTED :
						    KVMM_EVENT_PURGED,
		.handle = handle,
	};
	struct kvmm_pool *pool = ctx;

	if (what == KVMM_NOTE_EVICTED)
		trace_kvmm_evict(pool, handle, b);
	else
		trace_kvmm_purge(pool, handle, b, what);
	if (!(pool->event_mask & BIT_ULL(ev.type)))
		return;
	memcpy(ev.key, b->key, sizeof(ev.key));
	kvmm_event_raise(pool, &ev);
}

/**
 * kvmm_event_hangup() - a pool was destroyed: whoever waits finds out
 * @pool: the pool, locked, and dead
 */
void kvmm_event_hangup(struct kvmm_pool *pool)
{
	struct kvmm_client *client;

	lockdep_assert_held(&pool->lock);
	list_for_each_entry(client, &pool->clients, node)
		wake_up_all(&client->events.wait);
}

/* What the clients of a pool listen for.  Its lock is held. */
static void kvmm_event_count(struct kvmm_pool *pool)
{
	struct kvmm_event_queue *q;

	pool->event_mask = 0;
	pool->nr_block_listeners = 0;
	list_for_each_entry(q, &pool->listeners, node) {
		pool->event_mask |= q->mask;
		pool->nr_block_listeners += !!(q->mask & KVMM_BLOCK_EVENTS);
	}
}

/**
 * kvmm_event_unlisten() - a client is told nothing more
 * @client: the client, bound; its pool is locked
 */
void kvmm_event_unlisten(struct kvmm_client *client)
{
	struct kvmm_event_queue *q = &client->events;

	lockdep_assert_held(&client->pool->lock);
	list_del_init(&q->node);
	q->mask = 0;
	kvmm_event_count(client->pool);
}

/*
 * Put an empty queue in the place of what there was; the old one, or the new
 * one where that is refused, is left in @ring.
 */
static int kvmm_event_listen(struct kvmm_client *client, u64 mask, u32 size,
			     struct kvmm_event **ring)
{
	struct kvmm_event_queue *q = &client->events;
	struct kvmm_pool *pool = client->pool;
	int ret = 0;

	mutex_lock(&pool->lock);
	if (pool->dead) {
		ret = -ENODEV;
		goto out;
	}
	if (mask & KVMM_BLOCK_EVENTS && !(q->mask & KVMM_BLOCK_EVENTS) &&
	    pool->nr_block_listeners >= KVMM_MAX_LISTENERS) {
		ret = -EUSERS;
		goto out;
	}
	spin_lock(&q->lock);
	swap(q->ring, *ring);
	q->size = size;
	q->tail = 0;
	WRITE_ONCE(q->nr, 0);
	q->lost = 0;
	spin_unlock(&q->lock);
	kvmm_event_unlisten(client);
	if (mask) {
		q->mask = mask;
		list_add_tail(&q->node, &pool->listeners);
		kvmm_event_count(pool);
	}
out:
	mutex_unlock(&pool->lock);
	return ret;
}

int kvmm_do_events(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_event_queue *q = &client->events;
	struct kvmm_event *ring = NULL;
	struct kvmm_events *a = arg;
	u32 size = a->count ?: KVMM_DEFAULT_EVENTS;
	int ret;

	if (a->flags || a->__reserved || a->mask >> KVMM_NR_EVENTS ||
	    a->count > KVMM_MAX_EVENTS)
		return -EINVAL;
	if (a->mask) {
		ring = kvcalloc(size, sizeof(*ring),
				GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
		if (!ring)
			return -ENOMEM;
	}
	ret = mutex_lock_killable(&q->read);
	if (!ret) {
		ret = kvmm_event_listen(client, a->mask, size, &ring);
		mutex_unlock(&q->read);
		/* Nobody goes on waiting for what was chosen before. */
		wake_up_all(&q->wait);
	}
	kvfree(ring);
	return ret;
}

/*
 * Take what there is and fits; the queue's mutex is held.  The places that are
 * copied from are nobody else's until they were taken.  Return: bytes, 0:
 * there is nothing; -errno.
 */
static ssize_t kvmm_event_take(struct kvmm_event_queue *q, struct iov_iter *to)
{
	ssize_t done = 0;
	size_t copied;
	u32 n, whole;

	if (!q->ring)
		return -ENOTCONN;
	for (;;) {
		spin_lock(&q->lock);
		n = min(q->nr, q->size - q->tail);
		spin_unlock(&q->lock);
		n = min_t(size_t, n, iov_iter_count(to) / sizeof(*q->ring));
		if (!n)
			return done;
		copied = copy_to_iter(q->ring + q->tail, n * sizeof(*q->ring),
				      to);
		whole = copied / sizeof(*q->ring);
		kvmm_queue_taken(q, whole);
		done += whole * sizeof(*q->ring);
		if (whole < n)
			return done ?: -EFAULT;
	}
}

ssize_t kvmm_event_read(struct kiocb *iocb, struct iov_iter *to)
{
	struct file *file = iocb->ki_filp;
	struct kvmm_client *client = file->private_data;
	struct kvmm_pool *pool = kvmm_client_pool(client);
	struct kvmm_event_queue *q = &client->events;
	bool nowait = iocb->ki_flags & IOCB_NOWAIT;
	ssize_t ret;
	bool dead;

	if (!pool)
		return -ENOTCONN;
	if (iov_iter_count(to) < sizeof(struct kvmm_event))
		return -EINVAL;
	for (;;) {
		/* Before the queue is looked at: nothing comes after that. */
		dead = smp_load_acquire(&pool->dead);
		if (nowait && !mutex_trylock(&q->read))
			return -EAGAIN;
		if (!nowait && mutex_lock_interruptible(&q->read))
			return -ERESTARTSYS;
		ret = kvmm_event_take(q, to);
		mutex_unlock(&q->read);
		if (ret || dead)
			return ret;
		if (nowait || file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		if (wait_event_interruptible(q->wait, READ_ONCE(q->nr) ||
					     !READ_ONCE(q->ring) ||
					     READ_ONCE(pool->dead)))
			return -ERESTARTSYS;
	}
}

__poll_t kvmm_event_poll(struct file *file, poll_table *wait)
{
	struct kvmm_client *client = file->private_data;
	struct kvmm_pool *pool;
	__poll_t ready = 0;

	poll_wait(file, &client->events.wait, wait);
	pool = kvmm_client_pool(client);
	if (READ_ONCE(client->events.nr))
		ready |= EPOLLIN | EPOLLRDNORM;
	if (pool && READ_ONCE(pool->dead))
		ready |= EPOLLHUP;
	return ready;
}
