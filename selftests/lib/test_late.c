// SPDX-License-Identifier: MIT
/*
 * A disk that does not answer: what the user backend tells by the deadline, and
 * that all is well again once it answers.  The disk hangs because transfers do,
 * or the completions of a ring are not seen: the linker wraps the calls (see
 * rules.mk).  The kernel backend has this tested in selftests/kernel.
 */
#include "lt.h"

#include <liburing.h>
#include <pthread.h>
#include <unistd.h>

#define NAME	"lt-late"
#define N	200		/* more than there are requests */
#define FEW	8
#define TIMEOUT	1000		/* ms; a busy machine is not a late disk */

ssize_t __real_pread(int fd, void *mem, size_t bytes, off_t at);
ssize_t __wrap_pread(int fd, void *mem, size_t bytes, off_t at);
ssize_t __real_pwrite(int fd, const void *mem, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *mem, size_t bytes, off_t at);
unsigned int __real_io_uring_peek_batch_cqe(struct io_uring *ring,
					    struct io_uring_cqe **cqes,
					    unsigned int count);
unsigned int __wrap_io_uring_peek_batch_cqe(struct io_uring *ring,
					    struct io_uring_cqe **cqes,
					    unsigned int count);

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static bool hung;

static void hang(bool on)
{
	pthread_mutex_lock(&gate);
	hung = on;
	pthread_cond_broadcast(&opened);
	pthread_mutex_unlock(&gate);
}

static void pass(void)
{
	pthread_mutex_lock(&gate);
	while (hung)
		pthread_cond_wait(&opened, &gate);
	pthread_mutex_unlock(&gate);
}

ssize_t __wrap_pread(int fd, void *mem, size_t bytes, off_t at)
{
	pass();
	return __real_pread(fd, mem, bytes, at);
}

ssize_t __wrap_pwrite(int fd, const void *mem, size_t bytes, off_t at)
{
	pass();
	return __real_pwrite(fd, mem, bytes, at);
}

unsigned int __wrap_io_uring_peek_batch_cqe(struct io_uring *ring,
					    struct io_uring_cqe **cqes,
					    unsigned int count)
{
	bool wait;

	pthread_mutex_lock(&gate);
	wait = hung;
	pthread_mutex_unlock(&gate);
	if (!wait)
		return __real_io_uring_peek_batch_cqe(ring, cqes, count);
	usleep(1000);
	return 0;
}

struct late {
	struct lt *lt;
	struct kvmm_pool *pool;
	struct kvmm_block_ref refs[N];
	char path[512];
};

static void attach(struct late *l, unsigned int timeout_ms)
{
	struct kvmm_swap_opts opts = {
		.size = sizeof(opts),
		.flags = KVMM_SWAP_CREATE | KVMM_SWAP_UNLINK,
		.path = l->path,
		.timeout_ms = timeout_ms,
	};

	assert_int_equal(kvmm_swap_attach(l->pool, &opts), N);
}

static void begin(struct late *l, struct lt *lt)
{
	l->lt = lt;
	strcpy(l->path, lt_path(lt));
	l->pool = lt_pool(lt, NAME, N, N, 0);
	attach(l, TIMEOUT);
	lt_store(l->pool, l->refs, 0, N, 0);
}

/* The disk answers: whatever was late ends, and all can be done anew. */
static void end(struct late *l)
{
	unsigned int i;

	hang(false);
	assert_int_equal(kvmm_swap_detach(l->pool, KVMM_SWAP_DISCARD), 0);
	assert_int_equal(lt_stat(l->pool).blocks[KVMM_WRITING], 0);
	assert_int_equal(lt_stat(l->pool).blocks[KVMM_READING], 0);
	attach(l, 0);
	assert_int_equal(lt_stat(l->pool).degraded, 0);
	assert_int_equal(kvmm_pool_reset(l->pool, NULL), 0);
	lt_store(l->pool, l->refs, 1000, N, 0);
	assert_int_equal(kvmm_swap_out(l->pool, l->refs, N, KVMM_SWAP_DROP), N);
	assert_int_equal(kvmm_swap_in(l->pool, l->refs, N, KVMM_SWAP_PIN), N);
	for (i = 0; i < N; i++)
		lt_check(kvmm_addr(l->pool, &l->refs[i]), 1000 + i, LT_BLOCK);
	lt_end(l->lt, l->pool, NAME);
}

static void late_writes(void **state)
{
	struct late l;
	struct kvmm_pool_stat st;
	unsigned int i;

	begin(&l, *state);
	hang(true);
	assert_int_equal(kvmm_swap_out(l.pool, l.refs, FEW, KVMM_SWAP_DROP), 0);
	for (i = 0; i < FEW; i++) {
		assert_int_equal(l.refs[i].result, -EIO);
		lt_check(kvmm_addr(l.pool, &l.refs[i]), i, LT_BLOCK);
	}
	st = lt_stat(l.pool);
	assert_int_equal(st.io_timeouts, FEW);
	assert_int_equal(st.degraded, 1);
	assert_int_equal(st.blocks[KVMM_WRITING], FEW);
	assert_int_equal(st.blocks[KVMM_RESIDENT], N - FEW);
	assert_int_equal(lt_find(l.pool, 0, KVMM_LOOKUP_PEEK, NULL),
			 KVMM_MEMORY);
	/* nobody waits a second time */
	assert_int_equal(kvmm_swap_out(l.pool, l.refs, N, KVMM_SWAP_DROP), 0);
	assert_int_equal(lt_stat(l.pool).io_timeouts, FEW);
	end(&l);
}

static void late_reads(void **state)
{
	struct late l;
	struct kvmm_pool_stat st;
	unsigned int i;

	begin(&l, *state);
	assert_int_equal(kvmm_swap_out(l.pool, l.refs, FEW, KVMM_SWAP_DROP),
			 FEW);
	hang(true);
	assert_int_equal(kvmm_swap_in(l.pool, l.refs, FEW, KVMM_SWAP_PIN), 0);
	for (i = 0; i < FEW; i++) {
		assert_int_equal(l.refs[i].result, -ESTALE);
		assert_int_equal(lt_find(l.pool, i, KVMM_LOOKUP_PEEK, NULL),
				 KVMM_MISS);
	}
	st = lt_stat(l.pool);
	assert_int_equal(st.io_timeouts, FEW);
	assert_int_equal(st.degraded, 1);
	assert_int_equal(st.pins, 0);
	assert_int_equal(st.blocks[KVMM_READING], FEW);
	assert_int_equal(st.frames_free, 0);
	end(&l);
}

/* All requests are late: calls go on, with what can be done without. */
static void no_request_left(void **state)
{
	struct kvmm_block_ref more[FEW];
	struct kvmm_pool_stat st;
	struct kvmm_reclaim rc;
	unsigned int i;
	struct late l;

	begin(&l, *state);
	assert_int_equal(kvmm_swap_out(l.pool, l.refs, N - FEW,
				       KVMM_SWAP_DROP), N - FEW);
	hang(true);
	assert_int_equal(kvmm_swap_in(l.pool, l.refs, N, KVMM_SWAP_PIN), 0);
	st = lt_stat(l.pool);
	assert_true(st.io_timeouts > FEW);
	assert_int_equal(st.io_timeouts, st.blocks[KVMM_READING]);
	assert_int_equal(st.pins, 0);
	for (i = 0; i < N; i++)
		assert_true(l.refs[i].result ==
			    (i < st.io_timeouts ? -ESTALE : -EAGAIN));
	assert_int_equal(kvmm_swap_in(l.pool, &l.refs[N - FEW - 1], 1, 0), 0);
	assert_int_equal(l.refs[N - FEW - 1].result, -EAGAIN);
	assert_int_equal(kvmm_swap_out(l.pool, &l.refs[N - 1], 1, 0), 0);
	assert_int_equal(l.refs[N - 1].result, -EIO);
	/* room is made by purging */
	assert_int_equal(kvmm_reclaim(l.pool, 0, &rc), 0);
	assert_int_equal(rc.purged, FEW);
	assert_int_equal(rc.in_use, st.io_timeouts);
	assert_int_equal(kvmm_alloc(l.pool, more, FEW, 1, 1000), FEW);
	assert_int_equal(kvmm_unpin(l.pool, more, FEW), FEW);
	end(&l);
}

static void *joins(void *arg)
{
	struct late *l = arg;
	struct kvmm_block_ref ref = { .handle = l->refs[0].handle };

	kvmm_swap_out(l->pool, &ref, 1, 0);
	return (void *)(intptr_t)ref.result;
}

/* Two that want the same block get the same answer. */
static void joined(void **state)
{
	struct kvmm_block_ref ref;
	pthread_t thread;
	struct late l;
	void *result;

	begin(&l, *state);
	hang(true);
	ref = l.refs[0];
	assert_int_equal(pthread_create(&thread, NULL, joins, &l), 0);
	assert_int_equal(kvmm_swap_out(l.pool, &ref, 1, 0), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal(ref.result, -EIO);
	assert_int_equal((intptr_t)result, -EIO);
	assert_int_equal(lt_stat(l.pool).io_timeouts, 1);
	end(&l);
}

/* Written for who asks later: found late by whoever comes by. */
static void nobody_waits(void **state)
{
	struct kvmm_block_ref refs[FEW];
	struct late l;
	unsigned int i;
	long got = 0;

	begin(&l, *state);
	hang(true);
	assert_int_equal(kvmm_alloc(l.pool, refs, FEW, 1, 0), -EAGAIN);
	assert_int_not_equal(lt_stat(l.pool).blocks[KVMM_WRITING], 0);
	for (i = 0; i < 20000 && got <= 0; i++) {
		usleep(1000);
		got = kvmm_alloc(l.pool, refs, 1, 1, 0);
	}
	assert_int_equal(got, 1);
	assert_int_not_equal(lt_stat(l.pool).io_timeouts, 0);
	assert_int_equal(kvmm_unpin(l.pool, refs, 1), 1);
	end(&l);
}

static void bad_deadline(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 4, 4, 0);
	struct kvmm_swap_opts opts = {
		.size = sizeof(opts),
		.flags = KVMM_SWAP_CREATE | KVMM_SWAP_UNLINK,
		.path = lt_path(lt),
		.timeout_ms = KVMM_MAX_IO_TIMEOUT_MS + 1,
	};

	assert_fails(kvmm_swap_attach(pool, &opts), EINVAL);
	opts.timeout_ms--;
	assert_int_equal(kvmm_swap_attach(pool, &opts), 4);
	lt_end(lt, pool, NAME);
}

int main(void)
{
	static const struct lt_test tests[] = {
		LT_TEST_ON(late_writes, LT_USER),
		LT_TEST_ON(late_reads, LT_USER),
		LT_TEST_ON(no_request_left, LT_USER),
		LT_TEST_ON(joined, LT_USER),
		LT_TEST_ON(nobody_waits, LT_USER),
		LT_TEST(bad_deadline),
	};

	return LT_RUN("late", tests);
}
