// SPDX-License-Identifier: MIT
/*
 * Memory that is brought in in the background, on both backends: started,
 * waited for, told to end, and while clients close and the pool is destroyed.
 *
 * Whether it is still in progress when something is done to it depends on the
 * machine; such tests go on until they have seen it once.
 */
#include "lt.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define NAME	"lt-fill"
#define BLOCK	(256u << 10)
#define FRAMES	512u		/* 128 MiB */
#define TRIES	50

static struct kvmm_pool_opts big(int threads, unsigned int flags)
{
	struct kvmm_pool_opts o = {
		.size = sizeof(o),
		.flags = flags,
		.name = NAME,
		.block_size = BLOCK,
		.nr_frames = FRAMES,
		.populate_threads = threads,
	};

	return o;
}

static struct kvmm_pool *empty(struct lt *lt)
{
	struct kvmm_pool_opts o = big(-1, 0);

	return lt_create(lt, &o);
}

static unsigned int online(struct kvmm_pool *pool)
{
	return (unsigned int)lt_stat(pool).frames_online;
}

static void arguments(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = empty(lt), *ro, *none = NULL;
	struct kvmm_pool_opts o;

	assert_fails(kvmm_populate_start(pool, 0, 0, 0), EINVAL);
	assert_fails(kvmm_populate_start(pool, FRAMES, 1, 0), EINVAL);
	assert_fails(kvmm_populate_start(pool, 1, FRAMES, 0), EINVAL);
	assert_fails(kvmm_populate_start(pool, 1, ~0u, 0), EINVAL);
	assert_fails(kvmm_populate_start(pool, 0, 1, KVMM_MAX_WORKERS + 1),
		     EINVAL);
	assert_fails(kvmm_populate_wait(pool, -2), EINVAL);
	assert_int_equal(kvmm_pool_open(lt->kv, NAME, KVMM_POOL_RDONLY, &ro),
			 0);
	assert_fails(kvmm_populate_start(ro, 0, 1, 0), EACCES);
	assert_fails(kvmm_populate_cancel(ro), EACCES);
	/* with nothing in progress */
	assert_int_equal(kvmm_populate_wait(ro, -1), 0);
	assert_int_equal(kvmm_populate_wait(pool, 0), 0);
	assert_int_equal(kvmm_populate_left(ro), 0);
	assert_int_equal(kvmm_populate_cancel(pool), 0);
	assert_int_equal(online(pool), 0);
	kvmm_pool_close(ro);
	lt_end(lt, pool, NAME);

	o = big(-1, KVMM_POOL_POPULATE_ASYNC);
	assert_fails(kvmm_pool_create(lt->kv, &o, &none), EINVAL);
	o.populate_threads = KVMM_MAX_WORKERS + 1;
	assert_fails(kvmm_pool_create(lt->kv, &o, &none), EINVAL);
	assert_fails(kvmm_pool_open(lt->kv, NAME, 0, &none), ENOENT);
}

/* Reads the event that tells of the end. */
static struct kvmm_event told(struct kvmm_pool *pool)
{
	struct kvmm_event ev = { 0 };

	assert_int_equal(kvmm_event_read(pool, &ev, 1, 20000), 1);
	assert_int_equal(ev.type, KVMM_EVENT_POPULATED);
	return ev;
}

static void in_the_background(void **state)
{
	static const unsigned int threads[] = { 0, 1, 3, KVMM_MAX_WORKERS };
	struct lt *lt = *state;
	struct kvmm_event ev;
	unsigned int i;

	for (i = 0; i < 4; i++) {
		struct kvmm_pool *pool = empty(lt);

		assert_int_equal(kvmm_events(pool,
				 1ULL << KVMM_EVENT_POPULATED, 0), 0);
		assert_int_equal(kvmm_populate_start(pool, 0, FRAMES,
						     threads[i]), 0);
		assert_int_equal(kvmm_populate_wait(pool, -1), 0);
		assert_int_equal(kvmm_populate_left(pool), 0);
		assert_int_equal(online(pool), FRAMES);
		ev = told(pool);
		assert_int_equal(ev.flags, 0);
		assert_int_equal(ev.value, FRAMES);
		/* what is there is passed over */
		assert_int_equal(kvmm_populate_start(pool, 7, 100, 0), 0);
		assert_int_equal(kvmm_populate_wait(pool, 20000), 0);
		assert_int_equal(online(pool), FRAMES);
		lt_end(lt, pool, NAME);
	}
}

static void a_part(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = empty(lt);

	assert_int_equal(kvmm_populate_start(pool, 40, 100, 2), 0);
	assert_int_equal(kvmm_populate_wait(pool, -1), 0);
	assert_int_equal(online(pool), 100);
	assert_int_equal(kvmm_pool_populate(pool, 40, 100), 100);
	assert_int_equal(online(pool), 100);
	/* frames that were online were counted and not done again */
	assert_int_equal(kvmm_populate_start(pool, 0, FRAMES, 2), 0);
	assert_int_equal(kvmm_populate_wait(pool, -1), 0);
	assert_int_equal(online(pool), FRAMES);
	lt_end(lt, pool, NAME);
}

static void at_creation(void **state)
{
	struct kvmm_pool_opts o = big(0, KVMM_POOL_POPULATE_ASYNC);
	struct kvmm_block_ref *refs = calloc(FRAMES, sizeof(*refs));
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_create(lt, &o);
	unsigned int n = 0, i;
	long got;

	/* The pool works with what has come: each frame once. */
	while (n < FRAMES) {
		got = kvmm_alloc(pool, refs + n, FRAMES - n, 1, 0);
		assert_true(got > 0 || got == -ENOSPC || got == -EAGAIN);
		for (i = 0; got > 0 && i < (unsigned int)got; i++)
			lt_fill(kvmm_addr(pool, &refs[n + i]), n + i, 4096);
		n += got > 0 ? (unsigned int)got : 0;
	}
	assert_int_equal(kvmm_populate_wait(pool, -1), 0);
	assert_int_equal(online(pool), FRAMES);
	for (i = 0; i < FRAMES; i++)
		lt_check(kvmm_addr(pool, &refs[i]), i, 4096);
	lt_end(lt, pool, NAME);
	free(refs);

	/* What can't fit is told at once, and leaves no pool. */
	o.block_size = KVMM_MAX_BLOCK_SIZE;
	o.nr_frames = 1 << 14;
	assert_fails(kvmm_pool_create(lt->kv, &o, &pool), ENOMEM);
	assert_fails(kvmm_pool_open(lt->kv, NAME, 0, &pool), ENOENT);
}

static void told_to_end(void **state)
{
	struct lt *lt = *state;
	unsigned int i, had, seen = 0;

	for (i = 0; i < TRIES && !seen; i++) {
		struct kvmm_pool *pool = empty(lt), *other;
		struct kvmm_block_ref refs[4];
		struct kvmm_event ev;
		unsigned int k;
		int err;

		assert_int_equal(kvmm_pool_populate(pool, FRAMES - 4, 4), 4);
		lt_store(pool, refs, 1, 4, 0);
		assert_int_equal(kvmm_pool_open(lt->kv, NAME, 0, &other), 0);
		assert_int_equal(kvmm_events(pool,
				 1ULL << KVMM_EVENT_POPULATED, 0), 0);
		assert_int_equal(kvmm_populate_start(pool, 0, FRAMES, 1), 0);
		/* anyone who may write can tell it */
		assert_int_equal(kvmm_populate_cancel(other), 0);
		assert_int_equal(kvmm_populate_left(pool), 0);
		err = kvmm_populate_wait(pool, -1);
		/* and that is kept until the next one */
		assert_int_equal(kvmm_populate_wait(pool, -1), err);
		ev = told(pool);
		assert_int_equal(ev.flags, -err);
		had = online(pool);
		assert_int_equal(ev.value, had);
		if (err) {
			assert_int_equal(err, -ECANCELED);
			assert_true(had < FRAMES);
			seen++;
		} else {
			assert_int_equal(had, FRAMES);
		}
		/* What came stays, and the rest can come. */
		assert_int_equal(kvmm_populate_start(pool, 0, FRAMES, 0), 0);
		assert_int_equal(kvmm_populate_wait(pool, -1), 0);
		assert_int_equal(online(pool), FRAMES);
		assert_int_equal(told(pool).flags, 0);
		for (k = 0; k < 4; k++) {
			assert_int_equal(lt_find(other, 1 + k, KVMM_LOOKUP_PIN,
						 &refs[k]), KVMM_MEMORY);
			lt_check(kvmm_addr(other, &refs[k]), 1 + k, LT_BLOCK);
		}
		kvmm_pool_close(other);
		lt_end(lt, pool, NAME);
	}
	assert_int_equal(seen, 1);
}

static void one_at_a_time(void **state)
{
	struct lt *lt = *state;
	unsigned int i, seen = 0;

	for (i = 0; i < TRIES && seen < 2; i++) {
		struct kvmm_pool *pool = empty(lt), *ro;
		int busy, late;
		long left;

		assert_int_equal(kvmm_pool_open(lt->kv, NAME, KVMM_POOL_RDONLY,
						&ro), 0);
		assert_int_equal(kvmm_populate_start(pool, 0, FRAMES, 1), 0);
		busy = kvmm_populate_start(pool, 0, 1, 1);
		late = kvmm_populate_wait(ro, 0);
		left = kvmm_populate_left(pool);
		assert_true(left >= 0 && left <= (long)FRAMES);
		if (busy) {
			assert_int_equal(busy, -EBUSY);
			seen = !seen ? 1 : seen;
		}
		if (busy && late) {
			assert_int_equal(late, -ETIMEDOUT);
			assert_int_equal(kvmm_populate_wait(ro, 1),
					 -ETIMEDOUT);
			seen = 2;
		}
		/* Who did not start it can wait for it as well. */
		assert_int_equal(kvmm_populate_wait(ro, -1), 0);
		if (busy)
			assert_int_equal(online(pool), FRAMES);
		assert_int_equal(kvmm_populate_wait(pool, -1), 0);
		kvmm_pool_close(ro);
		lt_end(lt, pool, NAME);
	}
	assert_int_equal(seen, 2);
}

static void outlives_its_client(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool_opts o = big(1, KVMM_POOL_POPULATE_ASYNC);
	struct kvmm_pool *pool = lt_create(lt, &o);

	kvmm_pool_close(pool);
	assert_int_equal(kvmm_pool_open(lt->kv, NAME, KVMM_POOL_RDONLY, &pool),
			 0);
	assert_int_equal(kvmm_populate_wait(pool, -1), 0);
	assert_int_equal(online(pool), FRAMES);
	assert_int_equal(lt_stat(pool).nr_clients, 1);
	kvmm_pool_close(pool);
	assert_int_equal(kvmm_pool_destroy(lt->kv, NAME, 0), 0);
}

static void *waits(void *arg)
{
	struct kvmm_pool *pool = arg;

	return (void *)(long)kvmm_populate_wait(pool, -1);
}

static void destroyed_meanwhile(void **state)
{
	const struct timespec ms = { .tv_nsec = 1000000 };
	struct lt *lt = *state;
	unsigned int i, seen = 0;

	for (i = 0; i < TRIES && !seen; i++) {
		struct kvmm_pool_opts o = big(2, KVMM_POOL_POPULATE_ASYNC);
		struct kvmm_pool *pool = lt_create(lt, &o);
		pthread_t thread;
		void *ret;

		assert_int_equal(pthread_create(&thread, NULL, waits, pool), 0);
		if (i % 2)
			nanosleep(&ms, NULL);
		assert_int_equal(kvmm_pool_destroy(lt->kv, NAME,
						   KVMM_POOL_FORCE), 0);
		assert_int_equal(pthread_join(thread, &ret), 0);
		assert_true(!ret || (long)ret == -ENODEV);
		seen += !!ret;
		assert_fails(kvmm_populate_start(pool, 0, 1, 1), ENODEV);
		assert_fails(kvmm_populate_wait(pool, -1), ENODEV);
		assert_fails(kvmm_populate_cancel(pool), ENODEV);
		assert_fails(kvmm_populate_left(pool), ENODEV);
		kvmm_pool_close(pool);
	}
	assert_int_equal(seen, 1);
}

struct create {
	struct kvmm *kv;
	bool none;	/* no memory yet */
	bool done;
	int err;
};

static void *creates(void *arg)
{
	struct create *c = arg;
	struct kvmm_pool_opts o = big(c->none ? -1 : 2, 0);
	struct kvmm_pool *pool;

	c->err = kvmm_pool_create(c->kv, &o, &pool);
	if (!c->err)
		kvmm_pool_close(pool);
	__atomic_store_n(&c->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Who finds the pool gone that it was making leaves the next one alone. */
static void replaced_meanwhile(void **state)
{
	struct kvmm_pool_opts o = big(-1, 0);
	struct lt *lt = *state;
	unsigned int i, seen = 0;

	o.nr_frames = 1;
	for (i = 0; i < TRIES && seen < 3; i++) {
		struct create c = { .kv = lt->kv };
		struct kvmm_pool *pool, *again;
		pthread_t thread;

		assert_int_equal(pthread_create(&thread, NULL, creates, &c), 0);
		while (kvmm_pool_open(lt->kv, NAME, KVMM_POOL_RDONLY, &pool))
			sched_yield();
		kvmm_pool_close(pool);
		assert_int_equal(kvmm_pool_destroy(lt->kv, NAME,
						   KVMM_POOL_FORCE), 0);
		pool = lt_create(lt, &o);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_true(!c.err || c.err == -ENODEV);
		seen += !!c.err;
		assert_int_equal(kvmm_pool_open(lt->kv, NAME, 0, &again), 0);
		kvmm_pool_close(again);
		lt_end(lt, pool, NAME);
	}
	assert_int_equal(seen, 3);
}

/* Nor is it said that there was no memory, however early it went. */
static void destroyed_at_once(void **state)
{
	struct lt *lt = *state;
	unsigned int i;

	for (i = 0; i < TRIES; i++) {
		struct create c = { .kv = lt->kv, .none = true };
		pthread_t thread;
		int err;

		assert_int_equal(pthread_create(&thread, NULL, creates, &c), 0);
		do {
			err = kvmm_pool_destroy(lt->kv, NAME, KVMM_POOL_FORCE);
		} while (err == -ENOENT &&
			 !__atomic_load_n(&c.done, __ATOMIC_ACQUIRE));
		assert_int_equal(pthread_join(thread, NULL), 0);
		if (err == -ENOENT)
			err = kvmm_pool_destroy(lt->kv, NAME, KVMM_POOL_FORCE);
		assert_int_equal(err, 0);
		if (c.err)
			assert_int_equal(c.err, -ENODEV);
	}
}

/* The end of the library's use ends what is in progress. */
static void closed_meanwhile(void **state)
{
	struct lt *lt = *state;
	struct kvmm *kv = lt_open(lt, 0);
	struct kvmm_pool_opts o = big(2, KVMM_POOL_POPULATE_ASYNC);
	struct kvmm_pool *pool;

	assert_int_equal(kvmm_pool_create(kv, &o, &pool), 0);
	kvmm_pool_close(pool);
	kvmm_close(kv);
}

#define WAITERS	4

/* Several wait for one, and each is told how it ended. */
static void many_wait(void **state)
{
	struct lt *lt = *state;
	unsigned int i, k, seen = 0;

	for (i = 0; i < TRIES && !seen; i++) {
		struct kvmm_pool *pool = empty(lt);
		pthread_t thread[WAITERS];
		void *ret[WAITERS];

		assert_int_equal(kvmm_populate_start(pool, 0, FRAMES, 1), 0);
		for (k = 0; k < WAITERS; k++)
			assert_int_equal(pthread_create(&thread[k], NULL, waits,
							pool), 0);
		assert_int_equal(kvmm_populate_cancel(pool), 0);
		for (k = 0; k < WAITERS; k++)
			assert_int_equal(pthread_join(thread[k], &ret[k]), 0);
		for (k = 1; k < WAITERS; k++)
			assert_ptr_equal(ret[k], ret[0]);
		seen += (long)ret[0] == -ECANCELED;
		assert_int_equal(lt_stat(pool).nr_clients, 1);
		lt_end(lt, pool, NAME);
	}
	assert_int_equal(seen, 1);
}

/* The caller of a populate that it waits for is told, too. */
static void *populates(void *arg)
{
	return (void *)kvmm_pool_populate(arg, 0, FRAMES);
}

static void counted_and_cancelled(void **state)
{
	struct lt *lt = *state;
	unsigned int i, seen = 0;

	for (i = 0; i < TRIES && !seen; i++) {
		struct kvmm_pool *pool = empty(lt);
		pthread_t thread;
		void *ret;
		long left;

		assert_int_equal(pthread_create(&thread, NULL, populates, pool),
				 0);
		do {
			left = kvmm_populate_left(pool);
		} while (!left && online(pool) < FRAMES);
		assert_int_equal(kvmm_populate_cancel(pool), 0);
		assert_int_equal(kvmm_populate_left(pool), 0);
		assert_int_equal(pthread_join(thread, &ret), 0);
		if ((long)ret < 0)
			assert_int_equal((long)ret, -ECANCELED);
		seen += (long)ret < (long)FRAMES;
		lt_end(lt, pool, NAME);
	}
	assert_int_equal(seen, 1);
}

int main(void)
{
	static const struct lt_test tests[] = {
		LT_TEST(arguments),
		LT_TEST(in_the_background),
		LT_TEST(a_part),
		LT_TEST(at_creation),
		LT_TEST(told_to_end),
		LT_TEST(one_at_a_time),
		LT_TEST(outlives_its_client),
		LT_TEST(destroyed_meanwhile),
		LT_TEST(replaced_meanwhile),
		LT_TEST(destroyed_at_once),
		LT_TEST_ON(closed_meanwhile, LT_USER),
		LT_TEST(many_wait),
		LT_TEST(counted_and_cancelled),
	};

	return LT_RUN("populate", tests);
}
