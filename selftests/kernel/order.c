// SPDX-License-Identifier: MIT
/*
 * Who goes when room is wanted: the order of use seen through reclaim, chains,
 * ends of requests, hints, time that runs out, and frames that rest after the
 * death of who was filling them.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>

#include "kt_harness.h"

#define FRAMES	32

FIXTURE(order) {
	struct kt t;
};

FIXTURE_SETUP(order)
{
	struct kvmm_pool_create spec = kt_spec("order", 4096, FRAMES, 0);

	kt_wipe();
	spec.flags = KVMM_POOL_MANUAL_CLOCK;
	spec.quarantine_ms = 5000;
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	ASSERT_EQ(0, kt_clock(&self->t, 1000));
}

FIXTURE_TEARDOWN(order)
{
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
}

/* Bit N set: block 1 + N is there. */
static uint32_t there(struct kt *t, uint32_t n)
{
	struct kvmm_block_ref refs[32];
	uint32_t i, mask = 0;

	if (kt_lookup(t, 1, n, KVMM_LOOKUP_PEEK, refs) < 0)
		return 0xdeadbeef;
	for (i = 0; i < n; i++)
		mask |= (uint32_t)(refs[i].result == KVMM_MEMORY) << i;
	return mask;
}

/* Stores 1 to @n, each by a call of its own: 1 is the oldest. */
static int store_each(struct kt *t, uint32_t n, struct kvmm_block_ref *refs)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < n && !ret; i++)
		ret = kt_store(t, 1 + i, 1, refs + i);
	return ret;
}

TEST_F(order, oldest_first)
{
	struct kvmm_block_ref refs[8];
	struct kvmm_reclaim out;

	ASSERT_EQ(0, store_each(&self->t, 8, refs));
	ASSERT_EQ(0, kt_reclaim(&self->t, 5, &out));
	EXPECT_EQ(5, out.in_use);
	EXPECT_EQ(3, out.purged);
	EXPECT_EQ(0, out.evicted);
	EXPECT_EQ(0xf8, there(&self->t, 8));
	ASSERT_EQ(0, kt_reclaim(&self->t, 5, &out));
	EXPECT_EQ(0, out.purged);
}

TEST_F(order, touch)
{
	struct kvmm_block_ref refs[8], pair[2], found;

	ASSERT_EQ(0, store_each(&self->t, 8, refs));
	/* 1 is made the youngest, 2 just older */
	pair[0] = refs[0];
	pair[1] = refs[1];
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_TOUCH, pair, 2, NULL));
	EXPECT_EQ(0, pair[0].result);
	EXPECT_EQ(refs[0].frame, pair[0].frame);
	/* a hit touches, a peek does not */
	ASSERT_EQ(1, kt_lookup(&self->t, 3, 1, 0, &found));
	ASSERT_EQ(1, kt_lookup(&self->t, 4, 1, KVMM_LOOKUP_PEEK, &found));
	ASSERT_EQ(0, kt_reclaim(&self->t, 3, NULL));
	EXPECT_EQ(0x07, there(&self->t, 8));
	ASSERT_EQ(0, kt_reclaim(&self->t, 2, NULL));
	EXPECT_EQ(0x05, there(&self->t, 8));
	EXPECT_EQ(-ESTALE, kt_touch1(&self->t, refs[1].handle));
}

/* Of a chain the deepest goes first, so what stays is a prefix. */
TEST_F(order, chain)
{
	struct kvmm_block_ref refs[8];

	ASSERT_EQ(0, kt_store(&self->t, 1, 8, refs));
	ASSERT_EQ(0, kt_reclaim(&self->t, 6, NULL));
	EXPECT_EQ(0x3f, there(&self->t, 8));
	EXPECT_EQ(6, kt_lookup(&self->t, 1, 8, KVMM_LOOKUP_PREFIX, refs));
	ASSERT_EQ(0, kt_reclaim(&self->t, 2, NULL));
	EXPECT_EQ(0x03, there(&self->t, 8));
}

/* Room for a new block is made by the coldest one. */
TEST_F(order, alloc_takes_coldest)
{
	struct kvmm_block_ref refs[FRAMES], more[4];
	struct kvmm_pool_stat st;

	ASSERT_EQ(0, store_each(&self->t, FRAMES, refs));
	ASSERT_EQ(0, kt_pin1(&self->t, refs[1].handle));
	ASSERT_EQ(0, kt_touch1(&self->t, refs[2].handle));
	ASSERT_EQ(0, kt_alloc(&self->t, more, 3));
	/* 1, 4 and 5 had to go: 2 is pinned, 3 was used */
	EXPECT_EQ(0xffffffff & ~0x19U, there(&self->t, FRAMES));
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(3, st.purged);
	EXPECT_EQ(0, kt_unpin1(&self->t, refs[1].handle));
	EXPECT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, more, 3, NULL));
}

TEST_F(order, reclaim_spares)
{
	struct kvmm_block_ref refs[8], filling[2];
	struct kvmm_reclaim out;

	ASSERT_EQ(0, store_each(&self->t, 8, refs));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_PIN, refs, 3, NULL));
	ASSERT_EQ(0, kt_alloc(&self->t, filling, 2));
	ASSERT_EQ(0, kt_reclaim(&self->t, 0, &out));
	EXPECT_EQ(5, out.in_use);
	EXPECT_EQ(0x07, there(&self->t, 8));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 3, NULL));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, filling, 2, NULL));
}

TEST_F(order, request_end)
{
	struct kvmm_request_end arg = { .size = sizeof(arg) };
	struct kvmm_block_ref chain[4], other[4];
	struct kvmm_pool_stat st;

	ASSERT_EQ(0, kt_store(&self->t, 1, 4, chain));
	ASSERT_EQ(0, kt_store(&self->t, 5, 4, other));
	arg.handle = chain[3].handle;
	arg.output_tokens = 123;
	ASSERT_EQ(0, kt_ioctl(self->t.fd, KVMM_REQUEST_END, &arg));
	EXPECT_EQ(4, arg.done);
	/* the chain is the youngest now, its deepest block the oldest of it */
	ASSERT_EQ(0, kt_reclaim(&self->t, 3, NULL));
	EXPECT_EQ(0x07, there(&self->t, 8));
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(1, st.requests);
	EXPECT_EQ(123, st.output_tokens);
	EXPECT_EQ(-ESTALE, kt_ioctl(self->t.fd, KVMM_REQUEST_END, &arg));
	/* a parent that is gone ends the walk */
	ASSERT_EQ(0, kt_drop1(&self->t, chain[1].handle));
	arg.handle = chain[2].handle;
	ASSERT_EQ(0, kt_ioctl(self->t.fd, KVMM_REQUEST_END, &arg));
	EXPECT_EQ(1, arg.done);
}

TEST_F(order, hint)
{
	struct kvmm_hint arg = { .size = sizeof(arg) };
	struct kvmm_block_ref old[4], chain[4];

	ASSERT_EQ(0, kt_store(&self->t, 5, 4, old));
	ASSERT_EQ(0, kt_store(&self->t, 1, 4, chain));
	arg.handle = chain[3].handle;
	arg.permille = 1001;
	EXPECT_EQ(-EINVAL, kt_ioctl(self->t.fd, KVMM_HINT, &arg));
	arg.permille = 500;
	EXPECT_EQ(0, kt_ioctl(self->t.fd, KVMM_HINT, &arg));
	EXPECT_EQ(0, arg.done);
	ASSERT_EQ(0, kt_reclaim(&self->t, 7, NULL));
	EXPECT_EQ(0x7f, there(&self->t, 8));
	/* it will not come back: it goes before what is older */
	arg.permille = 0;
	EXPECT_EQ(0, kt_ioctl(self->t.fd, KVMM_HINT, &arg));
	EXPECT_EQ(4, arg.done);
	ASSERT_EQ(0, kt_reclaim(&self->t, 3, NULL));
	EXPECT_EQ(0x70, there(&self->t, 8));
	EXPECT_EQ(-ESTALE, kt_ioctl(self->t.fd, KVMM_HINT, &arg));
}

TEST_F(order, expiry)
{
	struct kvmm_publish_entry e;
	struct kvmm_block_ref refs[3];
	struct kvmm_pool_stat st;
	uint32_t i;

	ASSERT_EQ(0, kt_alloc(&self->t, refs, 3));
	for (i = 0; i < 3; i++) {
		kt_fill(&self->t, refs[i].frame, 1 + i);
		e = kt_entry(&self->t, refs[i].handle, 1 + i);
		e.expiry_ms = i * 1000;		/* 0 is for ever */
		ASSERT_EQ(0, kt_publish(&self->t, &e, 1, 0));
		ASSERT_EQ(0, e.result);
	}
	ASSERT_EQ(0, kt_clock(&self->t, 1900));
	EXPECT_EQ(3, kt_load_all(&self->t, 1, 3));
	/* the hit refreshed it */
	ASSERT_EQ(0, kt_clock(&self->t, 2800));
	EXPECT_EQ(1, kt_load(&self->t, 2));
	/* and a peek does not */
	ASSERT_EQ(0, kt_clock(&self->t, 3700));
	EXPECT_EQ(KVMM_MEMORY, kt_where1(&self->t, 2, NULL));
	ASSERT_EQ(0, kt_clock(&self->t, 3850));
	EXPECT_EQ(KVMM_MISS, kt_where1(&self->t, 2, NULL));
	EXPECT_EQ(0, kt_load(&self->t, 2));
	EXPECT_EQ(1, kt_load(&self->t, 3));
	ASSERT_EQ(0, kt_clock(&self->t, 100000));
	EXPECT_EQ(0, kt_load(&self->t, 3));
	EXPECT_EQ(1, kt_load(&self->t, 1));
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_LE(2, st.expired);
	/* pinned blocks that expired keep their bytes */
	ASSERT_EQ(0, kt_alloc(&self->t, refs, 1));
	kt_fill(&self->t, refs[0].frame, 9);
	e = kt_entry(&self->t, refs[0].handle, 9);
	e.expiry_ms = 10;
	ASSERT_EQ(0, kt_publish(&self->t, &e, 1, KVMM_PUBLISH_KEEP));
	ASSERT_EQ(0, kt_clock(&self->t, 200000));
	EXPECT_EQ(0, kt_load(&self->t, 9));
	ASSERT_EQ(0, kt_store(&self->t, 100, 20,
			      (struct kvmm_block_ref[20]) {}));
	EXPECT_TRUE(kt_good(&self->t, refs[0].frame, 9));
	EXPECT_EQ(0, kt_unpin1(&self->t, refs[0].handle));
}

static int fill_and_die(void *arg)
{
	struct kvmm_block_ref refs[10];
	struct kt t;
	int ret = kt_join(&t, "order", 0);

	(void)arg;
	if (!ret)
		ret = kt_alloc(&t, refs, 10);
	return ret;
}

/* What a dead client was filling rests before it is used again. */
TEST_F(order, quarantine)
{
	struct kvmm_block_ref refs[FRAMES];
	struct kvmm_pool_stat st;
	uint32_t done;
	int ret;

	ASSERT_EQ(0, kt_child(fill_and_die, NULL));
	ASSERT_EQ(0, kt_wait_unpinned(&self->t));
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(10, st.frames_quarantined);
	EXPECT_EQ(FRAMES - 10, st.frames_free);
	EXPECT_EQ(1, st.clients_dead);
	KT_CONSISTENT(&self->t);
	ret = kt_alloc_wait(&self->t, refs, FRAMES, 0, &done);
	EXPECT_TRUE(ret == -ENOSPC || ret == -EAGAIN);
	EXPECT_EQ(FRAMES - 10, done);
	ASSERT_EQ(0, kt_clock(&self->t, 5900));
	ret = kt_alloc_wait(&self->t, refs + done, 1, 0, NULL);
	EXPECT_TRUE(ret == -ENOSPC || ret == -EAGAIN);
	ASSERT_EQ(0, kt_clock(&self->t, 6100));
	EXPECT_EQ(0, kt_alloc(&self->t, refs + done, 10));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, FRAMES, NULL));
	/* given up by a living client: no rest */
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(0, st.frames_quarantined);
	EXPECT_EQ(FRAMES, st.frames_free);
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* A wait is as long as was asked for, or until a signal comes. */
TEST_F(order, waits)
{
	struct sigaction act = { .sa_handler = on_alarm };
	struct itimerval soon = { .it_value.tv_usec = 300000 };
	struct kvmm_block_ref refs[FRAMES + 1];
	uint64_t start;
	uint32_t done;

	/* nothing is to be had until the clock moves */
	ASSERT_EQ(0, kt_child(fill_and_die, NULL));
	ASSERT_EQ(0, kt_wait_unpinned(&self->t));
	ASSERT_EQ(0, kt_alloc(&self->t, refs, FRAMES - 10));
	start = kt_now_ms();
	EXPECT_EQ(-ETIMEDOUT, kt_alloc_wait(&self->t, refs + FRAMES - 10, 5,
					    400, &done));
	EXPECT_EQ(0, done);
	EXPECT_LE(390, kt_now_ms() - start);
	EXPECT_GT(5000, kt_now_ms() - start);

	ASSERT_EQ(0, sigaction(SIGALRM, &act, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &soon, NULL));
	start = kt_now_ms();
	EXPECT_EQ(-EINTR, kt_alloc_wait(&self->t, refs + FRAMES - 10, 5,
					20000, &done));
	EXPECT_EQ(0, done);
	EXPECT_GT(10000, kt_now_ms() - start);

	/* what was had before the wait ended is told */
	ASSERT_EQ(0, kt_unpin1(&self->t, refs[0].handle));
	EXPECT_EQ(-ETIMEDOUT, kt_alloc_wait(&self->t, refs + FRAMES - 10, 5,
					    100, &done));
	EXPECT_EQ(1, done);
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs + 1, FRAMES - 10,
			      NULL));
}

KT_MAIN
