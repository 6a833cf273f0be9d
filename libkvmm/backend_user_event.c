// SPDX-License-Identifier: MIT
/*
 * User backend: events, with a queue for each client that chose some.
 *
 * The queues are filled while the pool's lock is held, wherever the core says
 * that a block was evicted or lost.  An eventfd says "not empty": it is
 * written when the first event comes, and read when the last one goes.
 */
#include "backend_user.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DEFAULT_EVENTS	256
#define EVENT(type)	(1ULL << (type))
#define BLOCK_EVENTS	(EVENT(KVMM_EVENT_EVICTED) | EVENT(KVMM_EVENT_PURGED))

static void signal_some(struct user_queue *q)
{
	uint64_t one = 1;
	ssize_t ret;

	if (q->signalled)
		return;
	/* It can't fail: the count is 0. */
	ret = write(q->fd, &one, sizeof(one));
	q->signalled = ret == sizeof(one);
}

static void signal_none(struct user_queue *q)
{
	uint64_t count;
	ssize_t ret;

	if (!q->signalled)
		return;
	ret = read(q->fd, &count, sizeof(count));
	q->signalled = ret != sizeof(count);
}

/* There is room. */
static void put(struct user_queue *q, const struct kvmm_event *ev)
{
	uint32_t at = q->tail + q->nr;

	q->ring[at >= q->size ? at - q->size : at] = *ev;
	q->nr++;
}

static void add(struct user_pool *up, struct user_queue *q,
		const struct kvmm_event *ev)
{
	if (q->nr == q->size) {
		q->lost++;
		q->lost_ms = ev->time_ms;
		up->events_lost++;
		return;
	}
	put(q, ev);
	up->events++;
	signal_some(q);
}

static void raise_event(struct user_pool *up, struct kvmm_event *ev)
{
	struct user_client *cl;

	ev->time_ms = user_now(up);
	for (cl = up->listeners; cl; cl = cl->next_listener)
		if (cl->queue.mask & EVENT(ev->type))
			add(up, &cl->queue, ev);
}

void user_event_flags(struct user_pool *up, uint32_t type, uint64_t value,
		      uint32_t flags)
{
	struct kvmm_event ev = {
		.type = type,
		.flags = flags,
		.value = value,
	};

	if (up->event_mask & EVENT(type))
		raise_event(up, &ev);
}

void user_event(struct user_pool *up, uint32_t type, uint64_t value)
{
	user_event_flags(up, type, value, 0);
}

void user_note(void *ctx, enum kvmm_core_note what, uint64_t handle,
	       const struct kvmm_block *b)
{
	struct user_pool *up = ctx;
	struct kvmm_event ev = {
		.type = what == KVMM_NOTE_EVICTED ? KVMM_EVENT_EVICTED
						  : KVMM_EVENT_PURGED,
		.handle = handle,
	};

	if (!(up->event_mask & EVENT(ev.type)))
		return;
	memcpy(ev.key, b->key, sizeof(ev.key));
	raise_event(up, &ev);
}

void user_event_hangup(struct user_pool *up)
{
	struct user_client *cl;

	for (cl = up->listeners; cl; cl = cl->next_listener)
		signal_some(&cl->queue);
}

/* What the clients of a pool listen for. */
static void count_listeners(struct user_pool *up)
{
	struct user_client *cl;

	up->event_mask = 0;
	up->nr_block_listeners = 0;
	for (cl = up->listeners; cl; cl = cl->next_listener) {
		up->event_mask |= cl->queue.mask;
		up->nr_block_listeners += !!(cl->queue.mask & BLOCK_EVENTS);
	}
}

static void unlisten(struct user_client *cl)
{
	struct user_client **link = &cl->up->listeners;

	while (*link && *link != cl)
		link = &(*link)->next_listener;
	if (*link)
		*link = cl->next_listener;
	cl->queue.mask = 0;
}

void user_event_init(struct user_queue *q)
{
	q->fd = -1;
}

void user_event_exit(struct user_client *cl)
{
	struct user_queue *q = &cl->queue;

	pthread_mutex_lock(&cl->up->lock);
	unlisten(cl);
	count_listeners(cl->up);
	pthread_mutex_unlock(&cl->up->lock);
	free(q->ring);
	if (q->fd >= 0)
		close(q->fd);
}

/* An empty queue in the place of what there was, which is left in *@ring. */
static int listen_for(struct user_client *cl, uint64_t mask, uint32_t size,
		      struct kvmm_event **ring)
{
	struct user_queue *q = &cl->queue;
	struct user_pool *up = cl->up;
	struct kvmm_event *old = q->ring;

	if (up->gone)
		return -ENODEV;
	if (mask & BLOCK_EVENTS && !(q->mask & BLOCK_EVENTS) &&
	    up->nr_block_listeners >= KVMM_MAX_LISTENERS)
		return -EUSERS;
	/* Once made it stays, for those who poll it. */
	if (mask && q->fd < 0)
		q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (mask && q->fd < 0)
		return -errno;
	q->ring = *ring;
	*ring = old;
	q->size = size;
	q->tail = 0;
	q->nr = 0;
	q->lost = 0;
	signal_none(q);
	unlisten(cl);
	if (mask) {
		q->mask = mask;
		cl->next_listener = up->listeners;
		up->listeners = cl;
	}
	count_listeners(up);
	return 0;
}

int user_events(struct kvmm_pool *pool, uint64_t mask, unsigned int count)
{
	struct user_client *cl = user_client(pool);
	uint32_t size = count ? count : DEFAULT_EVENTS;
	struct kvmm_event *ring = NULL;
	int err;

	if (mask) {
		ring = calloc(size, sizeof(*ring));
		if (!ring)
			return -ENOMEM;
	}
	pthread_mutex_lock(&cl->up->lock);
	err = listen_for(cl, mask, size, &ring);
	pthread_mutex_unlock(&cl->up->lock);
	free(ring);
	return err;
}

int user_event_fd(struct kvmm_pool *pool)
{
	struct user_client *cl = user_client(pool);
	int fd;

	pthread_mutex_lock(&cl->up->lock);
	fd = cl->queue.ring ? cl->queue.fd : -ENOTCONN;
	pthread_mutex_unlock(&cl->up->lock);
	return fd;
}

/* The oldest of the queue; those that were lost come where they would be. */
static void take(struct user_queue *q, struct kvmm_event *ev)
{
	*ev = q->ring[q->tail++];
	if (q->tail == q->size)
		q->tail = 0;
	q->nr--;
	if (q->lost) {
		struct kvmm_event lost = {
			.type = KVMM_EVENT_LOST,
			.time_ms = q->lost_ms,
			.value = q->lost,
		};

		put(q, &lost);
		q->lost = 0;
	}
}

long user_event_read(struct kvmm_pool *pool, struct kvmm_event *events,
		     unsigned int n)
{
	struct user_client *cl = user_client(pool);
	struct user_queue *q = &cl->queue;
	struct user_pool *up = cl->up;
	unsigned int k = 0;
	long ret;

	pthread_mutex_lock(&up->lock);
	while (k < n && q->nr)
		take(q, &events[k++]);
	if (!q->nr && !up->gone)
		signal_none(q);
	if (!q->ring)
		ret = -ENOTCONN;
	else if (k)
		ret = k;
	else
		ret = up->gone ? -ENODEV : -EAGAIN;
	pthread_mutex_unlock(&up->lock);
	return ret;
}
