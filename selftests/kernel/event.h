/* SPDX-License-Identifier: MIT */
/*
 * Events.  What event*.c have in common: a pool that purges what is stored
 * beyond its frames, choosing and reading events of it.
 */
#ifndef KVMM_EVENT_TEST_H
#define KVMM_EVENT_TEST_H

#include <fcntl.h>
#include <poll.h>

#include "kt_harness.h"

#define FRAMES	8
#define SLOTS	16
#define BIT(type)	(1ULL << (type))
#define PURGED	BIT(KVMM_EVENT_PURGED)
#define MAX	64

FIXTURE(event) {
	struct kt t;
	struct kvmm_event ev[MAX];
};

/* A pool without an area: what is stored beyond the frames is purged. */
FIXTURE_SETUP(event)
{
	struct kvmm_pool_create spec = kt_spec("event", 4096, FRAMES, SLOTS);

	kt_wipe();
	spec.flags = KVMM_POOL_MANUAL_CLOCK;
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	ASSERT_EQ(0, kt_clock(&self->t, 5));
}

FIXTURE_TEARDOWN(event)
{
	if (self->t.fd >= 0)
		KT_FINISH(&self->t);
}

static inline int choose(struct kt *t, uint64_t mask, uint32_t count)
{
	struct kvmm_events a = {
		.size = sizeof(a), .mask = mask, .count = count,
	};

	return kt_ioctl(t->fd, KVMM_EVENTS, &a);
}

/* Events read, at most @max; or -errno. */
static inline int take(struct kt *t, struct kvmm_event *ev, int max)
{
	ssize_t n = read(t->fd, ev, max * sizeof(*ev));

	if (n < 0)
		return -errno;
	return n % sizeof(*ev) ? -EBADMSG : (int)(n / sizeof(*ev));
}

static inline int nonblock(struct kt *t, bool on)
{
	return fcntl(t->fd, F_SETFL, on ? O_NONBLOCK : 0);
}

/* What poll() says right now. */
static inline int ready(struct kt *t)
{
	struct pollfd p = { .fd = t->fd, .events = POLLIN };

	return poll(&p, 1, 0) < 0 ? -errno : p.revents;
}

static inline bool is_block(const struct kvmm_event *ev, uint32_t type,
		     uint64_t handle, uint64_t id)
{
	uint8_t key[KVMM_KEY_LEN];

	kt_key(key, id);
	return ev->type == type && ev->handle == handle && !ev->value &&
	       !ev->flags && !memcmp(ev->key, key, sizeof(key));
}

static inline int store(struct kt *t, uint64_t id, uint32_t n)
{
	struct kvmm_block_ref refs[2 * FRAMES];

	return kt_store_each(t, id, n, refs);
}

#endif /* KVMM_EVENT_TEST_H */
