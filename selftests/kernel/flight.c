// SPDX-License-Identifier: MIT
/*
 * Commands in flight when something happens to who gave them, on a disk that
 * takes its time: a ring closed, a process stopped or killed, a pool destroyed,
 * an area detached, a block dropped, a second one who wants the same block.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include "kt_harness.h"
#include "kt_ring.h"

#define FRAMES	64
#define SLOTS	64
#define N	32		/* commands in flight */
#define POOL	"flight"

FIXTURE(flight) {
	struct kt t;
	struct kt_ring r;
	int disk;
	struct kvmm_block_ref refs[N];
	int from[2];
};

FIXTURE_SETUP(flight)
{
	struct kvmm_pool_create spec = kt_spec(POOL, KT_BLOCK, FRAMES, SLOTS);
	int ret;

	kt_wipe();
	ASSERT_EQ(0, pipe2(self->from, O_CLOEXEC));
	ret = kt_create_slow(&self->t, &spec, &self->disk);
	if (ret == -ENODEV)
		SKIP(_exit(255), "the kernel has no null_blk");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, kt_ring_init(&self->r, &self->t, N * 2, 0, false));
	ASSERT_EQ(0, kt_store(&self->t, 1, N, self->refs));
}

FIXTURE_TEARDOWN(flight)
{
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->disk);
	kt_nullb_end();
}

/* Gives N commands, one a block, and does not wait. */
static int give(struct kt_ring *r, struct kvmm_block_ref *refs, uint32_t op,
		uint32_t flags)
{
	int i, ret = 0;

	for (i = 0; i < N && !ret; i++)
		ret = kt_ring_one(r, op, refs[i].handle, flags, i);
	if (!ret)
		ret = kt_ring_submit(r);
	return ret == N ? 0 : ret ? ret : -EIO;
}

static int all_out(FIXTURE_DATA(flight) *self)
{
	return kt_swap(&self->t, KVMM_SWAP_OUT, self->refs, N,
		       KVMM_SWAP_DROP) == N ? 0 : -EIO;
}

/* The commands do not wait for each other, nor does giving them. */
TEST_F(flight, at_once)
{
	uint64_t start = kt_now_ms(), given, busy;
	int i;

	ASSERT_EQ(0, give(&self->r, self->refs, KVMM_URING_SWAP_OUT,
			  KVMM_SWAP_DROP));
	given = kt_now_ms();
	busy = kt_moving(&self->t);
	/* where giving takes as long as the disk, the first are through */
	if (kt_now_ms() - start < KT_DELAY_US / 1000)
		EXPECT_LT(N / 2, busy);
	for (i = 0; i < N; i++)
		EXPECT_EQ(1, kt_ring_wait(&self->r, NULL));
	/* one after the other would take N delays */
	EXPECT_GT(N * KT_DELAY_US / 1000 / 2, kt_now_ms() - start);
	EXPECT_GT(N * KT_DELAY_US / 1000 / 2, given - start);
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	kt_ring_exit(&self->r);
}

TEST_F(flight, ring_closed)
{
	ASSERT_EQ(0, give(&self->r, self->refs, KVMM_URING_SWAP_OUT,
			  KVMM_SWAP_DROP));
	kt_ring_exit(&self->r);
	ASSERT_EQ(0, kt_wait_unpinned(&self->t));
	EXPECT_EQ(N, kt_stat_of(&self->t).blocks[KVMM_SWAPPED]);
	ASSERT_EQ(0, kt_ring_init(&self->r, &self->t, N * 2, 0, false));
	ASSERT_EQ(0, give(&self->r, self->refs, KVMM_URING_SWAP_IN, 0));
	kt_ring_exit(&self->r);
	ASSERT_EQ(0, kt_wait_unpinned(&self->t));
	EXPECT_EQ(N, kt_stat_of(&self->t).blocks[KVMM_CLEAN]);
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
}

/* The file and the ring are closed together: pins taken on the way go too. */
TEST_F(flight, all_closed)
{
	struct kt watch;

	ASSERT_EQ(0, all_out(self));
	ASSERT_EQ(0, kt_join(&watch, POOL, 0));
	ASSERT_EQ(0, give(&self->r, self->refs, KVMM_URING_SWAP_IN,
			  KVMM_SWAP_PIN));
	kt_close(&self->t);
	kt_ring_exit(&self->r);
	ASSERT_EQ(0, kt_wait_unpinned(&watch));
	EXPECT_EQ(N, kt_load_all(&watch, 1, N));
	self->t = watch;
}

/* Gives commands on a ring of its own and never looks at them again. */
static int gives_and_waits(FIXTURE_DATA(flight) *self, uint32_t op,
			   uint32_t flags, unsigned int setup)
{
	struct kt_ring r;
	struct kt t;
	int ret = kt_join(&t, POOL, 0);

	if (!ret)
		ret = kt_ring_init(&r, &t, N * 2, setup, false);
	if (!ret)
		ret = give(&r, self->refs, op, flags);
	if (ret)
		return ret;
	if (write(self->from[1], "x", 1) != 1)
		return -EPIPE;
	for (;;)
		pause();
}

static int stopped_reader(void *arg)
{
	return gives_and_waits(arg, KVMM_URING_SWAP_IN, KVMM_SWAP_PIN,
			       IORING_SETUP_DEFER_TASKRUN |
			       IORING_SETUP_SINGLE_ISSUER);
}

static int stopped_writer(void *arg)
{
	return gives_and_waits(arg, KVMM_URING_SWAP_OUT, KVMM_SWAP_DROP, 0);
}

/*
 * A process that gave commands and is stopped, or never reaps them, keeps
 * nobody from the blocks; when it is killed its pins go.
 */
TEST_F(flight, stopped)
{
	int (*who[2])(void *) = { stopped_writer, stopped_reader };
	uint64_t start;
	pid_t pid;
	char c;
	int i, k;

	kt_ring_exit(&self->r);
	for (i = 0; i < 2; i++) {
		pid = kt_spawn(who[i], self);
		ASSERT_EQ(1, read(self->from[0], &c, 1));
		ASSERT_EQ(0, kill(pid, SIGSTOP));
		start = kt_now_ms();
		while (kt_moving(&self->t) && kt_now_ms() - start < 10000)
			kt_sleep_ms(5);
		EXPECT_EQ(0, kt_moving(&self->t)) {
			TH_LOG("blocks stay busy while %s is stopped",
			       i ? "a reader" : "a writer");
		}
		if (!i) {
			EXPECT_EQ(N, kt_stat_of(&self->t).blocks[KVMM_SWAPPED]);
		} else {
			EXPECT_EQ(N, kt_stat_of(&self->t).pins);
			for (k = 0; k < N; k++)
				EXPECT_EQ(1, kt_load(&self->t, 1 + k));
		}
		ASSERT_EQ(0, kill(pid, SIGKILL));
		EXPECT_EQ(-ECHILD, kt_reap(pid));
		ASSERT_EQ(0, kt_wait_unpinned(&self->t));
		KT_CONSISTENT(&self->t);
	}
}

/* Who finds a block being read joins, and gets what was asked for. */
TEST_F(flight, joins)
{
	struct kvmm_block_ref refs[N];
	int i, pending = 0, way = 0;

	ASSERT_EQ(0, all_out(self));
	ASSERT_EQ(0, give(&self->r, self->refs, KVMM_URING_SWAP_IN, 0));
	ASSERT_EQ(N, kt_lookup(&self->t, 1, N, KVMM_LOOKUP_PIN, refs));
	for (i = 0; i < N; i++) {
		pending += refs[i].result == KVMM_PENDING;
		/* whether it is there yet is its pin's business */
		way += refs[i].result == KVMM_PENDING ||
			refs[i].result == KVMM_MEMORY;
	}
	EXPECT_EQ(N, way);
	EXPECT_LT(0, pending);
	EXPECT_EQ(N, kt_swap(&self->t, KVMM_SWAP_IN, refs, N, 0));
	for (i = 0; i < N; i++)
		EXPECT_TRUE(kt_good(&self->t, refs[i].frame, 1 + i));
	EXPECT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, N, NULL));
	for (i = 0; i < N; i++)
		EXPECT_EQ(1, kt_ring_wait(&self->r, NULL));
	EXPECT_EQ(N, kt_stat_of(&self->t).swap_ins);
	EXPECT_LT(0, kt_stat_of(&self->t).hits_pending);
	kt_ring_exit(&self->r);
}

/* While being written a block is readable, and can be wanted again. */
TEST_F(flight, read_while_written)
{
	struct kvmm_block_ref refs[N];
	int i;

	ASSERT_EQ(0, give(&self->r, self->refs, KVMM_URING_SWAP_OUT,
			  KVMM_SWAP_DROP));
	EXPECT_LT(0, kt_moving(&self->t));
	ASSERT_EQ(N, kt_lookup(&self->t, 1, N, KVMM_LOOKUP_PIN, refs));
	for (i = 0; i < N; i++) {
		if (refs[i].result == KVMM_MEMORY)
			EXPECT_TRUE(kt_good(&self->t, refs[i].frame, 1 + i));
	}
	for (i = 0; i < N; i++)
		kt_ring_wait(&self->r, NULL);
	/* pinned meanwhile: it stayed */
	for (i = 0; i < N; i++) {
		if (refs[i].result != KVMM_MEMORY)
			continue;
		EXPECT_TRUE(kt_good(&self->t, refs[i].frame, 1 + i));
		EXPECT_EQ(KVMM_CLEAN, kt_query1(&self->t, refs[i].handle));
		EXPECT_EQ(0, kt_unpin1(&self->t, refs[i].handle));
	}
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	kt_ring_exit(&self->r);
}

/* Dropped on the way: it misses at once, its frame and slot follow. */
TEST_F(flight, dropped)
{
	struct kvmm_pool_stat st;
	int i;

	ASSERT_EQ(0, give(&self->r, self->refs, KVMM_URING_SWAP_OUT, 0));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_DROP, self->refs, N, NULL));
	EXPECT_EQ(0, kt_load_all(&self->t, 1, N));
	for (i = 0; i < N; i++)
		kt_ring_wait(&self->r, NULL);
	ASSERT_EQ(0, kt_wait_unpinned(&self->t));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(FRAMES, st.frames_free);
	EXPECT_EQ(SLOTS, st.slots_free);

	ASSERT_EQ(0, kt_store(&self->t, 1, N, self->refs));
	ASSERT_EQ(0, all_out(self));
	ASSERT_EQ(0, give(&self->r, self->refs, KVMM_URING_SWAP_IN,
			  KVMM_SWAP_PIN));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_DROP, self->refs, N, NULL));
	EXPECT_EQ(0, kt_load_all(&self->t, 1, N));
	for (i = 0; i < N; i++) {
		if (kt_ring_wait(&self->r, NULL) == 1)
			continue;
	}
	/* the pins that were taken are ours to drop, if they are there */
	kt_batch(&self->t, KVMM_UNPIN, self->refs, N, NULL);
	ASSERT_EQ(0, kt_wait_unpinned(&self->t));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(FRAMES, st.frames_free);
	EXPECT_EQ(SLOTS, st.slots_free);
	kt_ring_exit(&self->r);
}

/* Detaching waits for what is in flight. */
TEST_F(flight, detach)
{
	ASSERT_EQ(0, give(&self->r, self->refs, KVMM_URING_SWAP_OUT, 0));
	EXPECT_EQ(0, kt_detach(&self->t, 0));
	EXPECT_EQ(0, kt_moving(&self->t));
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	kt_ring_exit(&self->r);
	ASSERT_EQ(0, kt_attach(&self->t, self->disk, 0, 0, 0, NULL));
	ASSERT_EQ(0, all_out(self));
	ASSERT_EQ(0, kt_ring_init(&self->r, &self->t, N * 2, 0, false));
	ASSERT_EQ(0, give(&self->r, self->refs, KVMM_URING_SWAP_IN, 0));
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	EXPECT_EQ(0, kt_moving(&self->t));
	EXPECT_LE(0, kt_load_all(&self->t, 1, N));
	kt_ring_exit(&self->r);
}

/* So does destroying; the commands end. */
static void nothing(int sig)
{
	(void)sig;
}

/* A detach that a signal ends leaves an area that works as before. */
TEST_F(flight, detach_interrupted)
{
	struct itimerval soon = {
		.it_value.tv_sec = KT_DELAY_US / 4 / 1000000,
		.it_value.tv_usec = KT_DELAY_US / 4 % 1000000,
	};
	struct sigaction sa = { .sa_handler = nothing };
	int ret;

	ASSERT_EQ(0, sigaction(SIGALRM, &sa, NULL));
	ASSERT_EQ(0, give(&self->r, self->refs, KVMM_URING_SWAP_OUT, 0));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &soon, NULL));
	ret = kt_detach(&self->t, 0);
	if (!ret)
		SKIP(kt_ring_exit(&self->r); return,
		     "the disk was faster than the signal");
	EXPECT_EQ(-EINTR, ret);
	kt_ring_exit(&self->r);
	EXPECT_EQ(0, all_out(self));
	EXPECT_EQ(N, kt_stat_of(&self->t).blocks[KVMM_SWAPPED]);
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
}

TEST_F(flight, destroy)
{
	int i, ret;

	ASSERT_EQ(0, give(&self->r, self->refs, KVMM_URING_SWAP_OUT,
			  KVMM_SWAP_DROP));
	EXPECT_EQ(0, kt_destroy(POOL, KVMM_POOL_FORCE));
	for (i = 0; i < N; i++) {
		ret = kt_ring_wait(&self->r, NULL);
		EXPECT_TRUE(ret == 1 || ret == -ENODEV || ret == -ESTALE) {
			TH_LOG("%d", ret);
		}
	}
	EXPECT_EQ(-ENODEV, kt_ring_do1(&self->r, KVMM_URING_SWAP_IN,
				       self->refs[0].handle, 0));
	kt_ring_exit(&self->r);
	kt_close(&self->t);
	/* the disk is nobody's now */
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, 4, 4));
	EXPECT_EQ(0, kt_attach(&self->t, self->disk, 0, 0, 0, NULL));
}

/* Brings the blocks in, pinned; -EBADMSG where one came in to no frame. */
static int load_pinned(void *data)
{
	FIXTURE_DATA(flight) *self = data;
	int i, ret;

	ret = kt_swap(&self->t, KVMM_SWAP_IN, self->refs, N, KVMM_SWAP_PIN);
	for (i = 0; i < N; i++)
		if (!self->refs[i].result &&
		    self->refs[i].frame == KVMM_NO_FRAME)
			return -EBADMSG;
	return ret;
}

/* A pool that goes while blocks come in: none of them is said to be there. */
TEST_F(flight, destroy_waiting)
{
	pid_t pid;

	ASSERT_EQ(0, all_out(self));
	pid = kt_spawn(load_pinned, self);
	ASSERT_LT(0, pid);
	while (!kt_moving(&self->t))
		kt_sleep_ms(1);
	EXPECT_EQ(0, kt_destroy(POOL, KVMM_POOL_FORCE));
	EXPECT_EQ(-ENODEV, kt_reap(pid));
	kt_ring_exit(&self->r);
	kt_close(&self->t);
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, 4, 4));
}

/* A reset on the way: the new epoch finds nothing of the old one. */
TEST_F(flight, reset)
{
	struct kvmm_pool_stat st;
	int i;

	ASSERT_EQ(0, give(&self->r, self->refs, KVMM_URING_SWAP_OUT,
			  KVMM_SWAP_DROP));
	ASSERT_EQ(0, kt_reset(&self->t, NULL));
	EXPECT_EQ(0, kt_load_all(&self->t, 1, N));
	ASSERT_EQ(0, kt_store(&self->t, 1, N, self->refs));
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	for (i = 0; i < N; i++)
		kt_ring_wait(&self->r, NULL);
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	ASSERT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(N, st.blocks[KVMM_CLEAN]);
	kt_ring_exit(&self->r);
}

/*
 * A ring that polls for completions: older kernels refuse these commands there,
 * newer ones complete them as elsewhere, and a wait that has nothing to poll
 * returns at once.
 */
TEST_F(flight, iopoll)
{
	enum kvmm_state then = KVMM_RESIDENT;
	uint64_t start = kt_now_ms();
	struct kt_ring r;
	int ret;

	ASSERT_EQ(0, kt_ring_init(&r, &self->t, 4, IORING_SETUP_IOPOLL,
				  false));
	ASSERT_EQ(0, kt_ring_one(&r, KVMM_URING_SWAP_OUT,
				 self->refs[0].handle, 0, 0));
	ret = kt_ring_submit(&r);
	if (ret == 1) {
		do {
			kt_sleep_ms(1);
			ret = kt_ring_wait(&r, NULL);
		} while (ret == -ETIME && kt_now_ms() - start < 30000);
	}
	if (ret == 1)
		then = KVMM_CLEAN;
	else
		EXPECT_EQ(-EOPNOTSUPP, ret);
	kt_ring_exit(&r);
	kt_ring_exit(&self->r);
	EXPECT_EQ((int)then, kt_query1(&self->t, self->refs[0].handle));
}

KT_MAIN
