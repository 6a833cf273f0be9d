// SPDX-License-Identifier: MIT
/*
 * Events: what happened to the blocks of a pool, for clients that chose to be
 * told.
 */
#include "backend.h"

#include <poll.h>
#include <time.h>

int kvmm_events(struct kvmm_pool *pool, uint64_t mask, unsigned int count)
{
	if (mask >> KVMM_NR_EVENTS || count > KVMM_MAX_EVENTS)
		return kvmm_ret(-EINVAL);
	return kvmm_ret(pool->kv->ops->events(pool, mask, count));
}

int kvmm_event_fd(struct kvmm_pool *pool)
{
	return kvmm_ret(pool->kv->ops->event_fd(pool));
}

static uint64_t mono_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Until there may be events: 1; 0: it is @until; -errno. */
static int wait_until(struct kvmm_pool *pool, int timeout_ms, uint64_t until)
{
	struct pollfd p = {
		.fd = pool->kv->ops->event_fd(pool),
		.events = POLLIN,
	};
	uint64_t now;
	int ret;

	if (p.fd < 0)
		return p.fd;
	if (timeout_ms > 0) {
		now = mono_ms();
		if (now >= until)
			return 0;
		timeout_ms = (int)(until - now);
	}
	ret = poll(&p, 1, timeout_ms);
	return ret < 0 ? -errno : ret;
}

long kvmm_event_read(struct kvmm_pool *pool, struct kvmm_event *events,
		     unsigned int n, int timeout_ms)
{
	uint64_t until = 0;
	long ret;
	int more;

	if (!events)
		return kvmm_ret(-EFAULT);
	if (!n || timeout_ms < -1)
		return kvmm_ret(-EINVAL);
	if (n > KVMM_MAX_EVENTS)
		n = KVMM_MAX_EVENTS;
	if (timeout_ms > 0)
		until = mono_ms() + (uint64_t)timeout_ms;
	for (;;) {
		ret = pool->kv->ops->event_read(pool, events, n);
		if (ret != -EAGAIN)
			return kvmm_ret(ret);
		if (!timeout_ms)
			return 0;
		/* Another thread may be faster: then it goes on waiting. */
		more = wait_until(pool, timeout_ms, until);
		if (more <= 0)
			return kvmm_ret(more);
	}
}
