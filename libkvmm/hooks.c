// SPDX-License-Identifier: MIT
/*
 * Hooks that the pool's events call: a thread reads the client's events for as
 * long as the engine is open.  Without such hooks, on a pool that gives nothing
 * back, there is none, and the events are the program's own.
 */
#include "backend.h"
#include "engine.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BIT(n)		(1ULL << (n))
#define QUEUE		KVMM_MAX_EVENTS
#define AT_ONCE		64

static uint64_t wanted(const struct kvmm_engine *eng)
{
	const struct kvmm_hooks *h = &eng->hooks;
	uint64_t mask = 0;

	if (eng->elastic)
		mask |= BIT(KVMM_EVENT_CHUNK_WANTED);
	if (h->evicted)
		mask |= BIT(KVMM_EVENT_EVICTED) | BIT(KVMM_EVENT_PURGED);
	if (h->pressure)
		mask |= BIT(KVMM_EVENT_PRESSURE);
	if (h->bad)
		mask |= BIT(KVMM_EVENT_DEGRADED);
	return mask;
}

static void tell(struct kvmm_engine *eng, const struct kvmm_event *e)
{
	const struct kvmm_hooks *h = &eng->hooks;

	switch (e->type) {
	case KVMM_EVENT_LOST:
		/* which chunks is not known: all that nobody uses */
		eng_chunk_wanted(eng, EVERY_CHUNK);
		if (h->evicted)
			h->evicted(h->ctx, NULL, 1);
		break;
	case KVMM_EVENT_EVICTED:
	case KVMM_EVENT_PURGED:
		if (h->evicted)
			h->evicted(h->ctx, e->key,
				   e->type == KVMM_EVENT_PURGED);
		break;
	case KVMM_EVENT_PRESSURE:
		if (h->pressure)
			h->pressure(h->ctx, e->value);
		break;
	case KVMM_EVENT_CHUNK_WANTED:
		eng_chunk_wanted(eng, e->value);
		break;
	case KVMM_EVENT_DEGRADED:
		if (h->bad)
			h->bad(h->ctx, (int)e->value);
		break;
	}
}

static void *hook_main(void *arg)
{
	struct kvmm_engine *eng = arg;
	struct pollfd fds[2] = {
		{ .fd = kvmm_event_fd(eng->pool), .events = POLLIN },
		{ .fd = eng->hook_stop_fd, .events = POLLIN },
	};
	struct kvmm_event events[AT_ONCE];
	long i, n;

	for (;;) {
		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[1].revents)
			return NULL;
		n = kvmm_event_read(eng->pool, events, AT_ONCE, 0);
		/* the pool was destroyed: there is nothing more to come */
		if (n < 0 && n != -EINTR)
			return NULL;
		for (i = 0; i < n; i++)
			tell(eng, &events[i]);
	}
}

int hooks_start(struct kvmm_engine *eng)
{
	uint64_t mask = wanted(eng);
	int err;

	if (!mask)
		return 0;
	err = kvmm_events(eng->pool, mask, QUEUE);
	if (err)
		return err;
	eng->hook_stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (eng->hook_stop_fd < 0)
		return -errno;
	err = kvmm_thread_start(&eng->hook_thread, hook_main, eng);
	if (err) {
		close(eng->hook_stop_fd);
		return err;
	}
	eng->have_hook_thread = true;
	return 0;
}

void hooks_stop(struct kvmm_engine *eng)
{
	const uint64_t one = 1;
	ssize_t ret;

	if (!eng->have_hook_thread)
		return;
	/* an eventfd takes it, or is full and readable already */
	ret = write(eng->hook_stop_fd, &one, sizeof(one));
	(void)ret;
	pthread_join(eng->hook_thread, NULL);
	close(eng->hook_stop_fd);
	kvmm_events(eng->pool, 0, 0);
}
