// SPDX-License-Identifier: MIT
/*
 * A disk that does not answer: what those who wait get at the deadline, what
 * becomes of the blocks, and that all is well again once it answers.  The disk
 * hangs for as long as a test wants, so the deadline can be short.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#include "kt_harness.h"
#include "kt_ring.h"

#define FRAMES	24
#define SLOTS	32
#define N	8
#define TIMEOUT	1500		/* ms; busy machines are slow */
#define POOL	"late"

FIXTURE(late) {
	struct kt t;
	int disk;
	struct kvmm_block_ref refs[N];
};

FIXTURE_SETUP(late)
{
	struct kvmm_pool_create spec = kt_spec(POOL, KT_BLOCK, FRAMES, SLOTS);

	kt_wipe();
	self->disk = kt_dm();
	if (self->disk == -ENODEV)
		SKIP(_exit(255), "the kernel has no device mapper");
	ASSERT_LE(0, self->disk);
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	ASSERT_EQ(0, kt_attach_timeout(&self->t, self->disk, TIMEOUT));
	ASSERT_EQ(0, kt_store(&self->t, 1, N, self->refs));
}

FIXTURE_TEARDOWN(late)
{
	kt_dm_hang(false);
	if (self->t.fd >= 0)
		EXPECT_EQ(0, kt_wait_unpinned(&self->t));
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->disk);
	kt_dm_end();
}

static int all_out(FIXTURE_DATA(late) *self, uint32_t flags)
{
	return kt_swap(&self->t, KVMM_SWAP_OUT, self->refs, N, flags);
}

/* Two slow rounds later the pool is as it was: everything can be done anew. */
static int again(FIXTURE_DATA(late) *self)
{
	struct kt *t = &self->t;
	int ret;

	ret = kt_wait_unpinned(t);
	ret = ret ? ret : kt_detach(t, KVMM_SWAP_DISCARD);
	ret = ret ? ret : kt_attach_timeout(t, self->disk, TIMEOUT * 100);
	if (ret || kt_stat_of(t).degraded)
		return ret ? ret : -EIO;
	ret = kt_reset(t, NULL);
	ret = ret ? ret : kt_store(t, 100, N, self->refs);
	if (ret || all_out(self, KVMM_SWAP_DROP) != N)
		return ret ? ret : -ENOSPC;
	return kt_load_all(t, 100, N) == N ? 0 : -EBADMSG;
}

/* Writes: -EIO by the deadline, and the blocks are in memory as before. */
TEST_F(late, write)
{
	struct kvmm_pool_stat st;
	uint64_t start = kt_now_ms();
	int i;

	ASSERT_EQ(0, kt_dm_hang(true));
	EXPECT_EQ(0, all_out(self, KVMM_SWAP_DROP));
	EXPECT_LE(TIMEOUT, kt_now_ms() - start);
	for (i = 0; i < N; i++)
		EXPECT_EQ(-EIO, self->refs[i].result);
	st = kt_stat_of(&self->t);
	EXPECT_EQ(N, st.io_timeouts);
	EXPECT_EQ(1, st.degraded);
	EXPECT_EQ(N, st.blocks[KVMM_WRITING]);
	EXPECT_EQ(0, st.write_errors);
	EXPECT_EQ(SLOTS - N, st.slots_free);
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	/* nobody waits for them a second time */
	EXPECT_EQ(0, all_out(self, KVMM_SWAP_DROP));
	EXPECT_EQ(N, kt_stat_of(&self->t).io_timeouts);
	EXPECT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(FRAMES - N, kt_stat_of(&self->t).frames_free);
	/* what arrives after all is good */
	ASSERT_EQ(0, kt_dm_hang(false));
	ASSERT_EQ(0, kt_wait_unpinned(&self->t));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(N, st.blocks[KVMM_CLEAN]);
	EXPECT_EQ(1, st.degraded);
	EXPECT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(N, kt_stat_of(&self->t).blocks[KVMM_SWAPPED]);
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	EXPECT_EQ(0, again(self));
}

/* Reads: misses by the deadline; the frames are not reused before the end. */
TEST_F(late, read)
{
	struct kvmm_block_ref refs[FRAMES];
	struct kvmm_pool_stat st;
	int i;

	ASSERT_EQ(N, all_out(self, KVMM_SWAP_DROP));
	ASSERT_EQ(0, kt_dm_hang(true));
	EXPECT_EQ(0, kt_swap(&self->t, KVMM_SWAP_IN, self->refs, N,
			     KVMM_SWAP_PIN));
	for (i = 0; i < N; i++) {
		EXPECT_EQ(-ESTALE, self->refs[i].result);
		EXPECT_EQ(-ESTALE, kt_query1(&self->t, self->refs[i].handle));
		EXPECT_EQ(-ESTALE, kt_unpin1(&self->t, self->refs[i].handle));
		EXPECT_EQ(KVMM_MISS, kt_where1(&self->t, 1 + i, NULL));
	}
	st = kt_stat_of(&self->t);
	EXPECT_EQ(N, st.io_timeouts);
	EXPECT_EQ(0, st.read_errors);
	EXPECT_EQ(1, st.degraded);
	EXPECT_EQ(0, st.pins);
	EXPECT_EQ(N, st.blocks[KVMM_READING]);
	/* all other frames can be had; the keys are free */
	ASSERT_EQ(0, kt_store(&self->t, 1, FRAMES - N, refs));
	EXPECT_EQ(FRAMES - N, kt_load_all(&self->t, 1, FRAMES - N));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_PIN, refs, FRAMES - N, NULL));
	EXPECT_EQ(-EAGAIN, kt_alloc(&self->t, self->refs, 1));
	EXPECT_EQ(-ETIMEDOUT, kt_alloc_wait(&self->t, self->refs, 1, 20,
					    NULL));
	/* the device may write until it is through */
	ASSERT_EQ(0, kt_dm_hang(false));
	for (i = 0; i < 20000 && kt_stat_of(&self->t).blocks[KVMM_READING]; i++)
		kt_sleep_ms(1);
	EXPECT_EQ(N, kt_stat_of(&self->t).frames_free);
	EXPECT_EQ(0, kt_stat_of(&self->t).swap_ins);
	for (i = 0; i < FRAMES - N; i++)
		EXPECT_TRUE(kt_good(&self->t, refs[i].frame, 1 + i));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, FRAMES - N, NULL));
	EXPECT_EQ(0, again(self));
}

/* The same by io_uring: each completion comes, whether one block or many. */
TEST_F(late, uring)
{
	struct kvmm_swap_cmd cmd = {
		.addr = (uintptr_t)self->refs, .count = N / 2,
		.flags = KVMM_SWAP_DROP,
	};
	struct kt_ring r;
	int i;

	ASSERT_EQ(0, kt_ring_init(&r, &self->t, 32, 0, false));
	ASSERT_EQ(0, kt_dm_hang(true));
	ASSERT_NE(NULL, kt_ring_cmd(&r, KVMM_URING_SWAP_OUT, &cmd, 0));
	for (i = N / 2; i < N; i++)
		ASSERT_EQ(0, kt_ring_one(&r, KVMM_URING_SWAP_OUT,
					 self->refs[i].handle, 0, i));
	ASSERT_EQ(1 + N / 2, kt_ring_submit(&r));
	for (i = 0; i < 1 + N / 2; i++)
		EXPECT_EQ(-EIO, kt_ring_wait(&r, NULL));
	/* the ring can go while the device still has the blocks */
	kt_ring_exit(&r);
	EXPECT_EQ(N, kt_stat_of(&self->t).blocks[KVMM_WRITING]);
	ASSERT_EQ(0, kt_dm_hang(false));
	EXPECT_EQ(0, again(self));

	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	ASSERT_EQ(0, kt_attach_timeout(&self->t, self->disk, TIMEOUT));
	ASSERT_EQ(N, all_out(self, KVMM_SWAP_DROP));
	ASSERT_EQ(0, kt_ring_init(&r, &self->t, 32, 0, false));
	ASSERT_EQ(0, kt_dm_hang(true));
	for (i = 0; i < N; i++)
		ASSERT_EQ(0, kt_ring_one(&r, KVMM_URING_SWAP_IN,
					 self->refs[i].handle, KVMM_SWAP_PIN,
					 i));
	ASSERT_EQ(N, kt_ring_submit(&r));
	for (i = 0; i < N; i++)
		EXPECT_EQ(-ESTALE, kt_ring_wait(&r, NULL));
	kt_ring_exit(&r);
	ASSERT_EQ(0, kt_dm_hang(false));
	EXPECT_EQ(0, again(self));
}

static int joins(void *arg)
{
	FIXTURE_DATA(late) *self = arg;
	struct kt t;
	int ret = kt_join(&t, POOL, 0);

	if (!ret)
		ret = kt_swap1(&t, KVMM_SWAP_IN, self->refs[0].handle, 0);
	return ret;
}

/* Who waits for another's read gets what that one gets. */
TEST_F(late, joined)
{
	pid_t pid[2];
	int i;

	ASSERT_EQ(N, all_out(self, KVMM_SWAP_DROP));
	ASSERT_EQ(0, kt_dm_hang(true));
	for (i = 0; i < 2; i++) {
		pid[i] = kt_spawn(joins, self);
		ASSERT_LT(0, pid[i]);
	}
	for (i = 0; i < 2; i++)
		EXPECT_EQ(-ESTALE, kt_reap(pid[i]));
	EXPECT_EQ(1, kt_stat_of(&self->t).io_timeouts);
	ASSERT_EQ(0, kt_dm_hang(false));
	EXPECT_EQ(0, again(self));
}

/* What does not hang is not touched: only some of a command's blocks do. */
TEST_F(late, some)
{
	struct kvmm_block_ref refs[N];
	int i;

	ASSERT_EQ(N / 2, kt_swap(&self->t, KVMM_SWAP_OUT, self->refs, N / 2,
				 KVMM_SWAP_DROP));
	ASSERT_EQ(0, kt_dm_hang(true));
	memcpy(refs, self->refs, sizeof(refs));
	EXPECT_EQ(N / 2, kt_swap(&self->t, KVMM_SWAP_IN, refs, N,
				 KVMM_SWAP_PIN));
	for (i = 0; i < N; i++)
		EXPECT_EQ(i < N / 2 ? -ESTALE : 0, refs[i].result);
	for (i = N / 2; i < N; i++)
		EXPECT_EQ(0, kt_unpin1(&self->t, refs[i].handle));
	ASSERT_EQ(0, kt_dm_hang(false));
	EXPECT_EQ(0, again(self));
}

static int destroys(void *arg)
{
	return kt_destroy(arg, KVMM_POOL_FORCE);
}

static int detaches(void *arg)
{
	struct kt t;
	int ret = kt_join(&t, arg, 0);

	return ret ? ret : kt_detach(&t, KVMM_SWAP_DISCARD);
}

/* A pool ends with the device; who waits for that can be killed. */
TEST_F(late, destroy)
{
	struct kvmm_info info;
	pid_t pid;
	int i;

	ASSERT_EQ(0, kt_dm_hang(true));
	EXPECT_EQ(0, all_out(self, 0));
	/* one who waits for the area holds up nobody who wants all to end */
	pid = kt_spawn(detaches, POOL);
	ASSERT_LT(0, pid);
	kt_sleep_ms(50);
	ASSERT_EQ(0, kill(pid, SIGKILL));
	EXPECT_EQ(-ECHILD, kt_reap(pid));
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	pid = kt_spawn(detaches, POOL);
	ASSERT_LT(0, pid);
	kt_sleep_ms(50);
	i = kt_spawn(destroys, POOL);
	ASSERT_LT(0, i);
	EXPECT_EQ(-ENODEV, kt_reap(pid));
	ASSERT_EQ(0, kill(i, SIGKILL));
	EXPECT_EQ(-ECHILD, kt_reap(i));
	/* it ends all the same, but not before the device is through */
	EXPECT_EQ(-ENODEV, kt_where1(&self->t, 1, NULL));
	kt_close(&self->t);
	EXPECT_EQ(-ENOENT, kt_destroy(POOL, 0));
	ASSERT_EQ(0, kt_info(&info));
	EXPECT_EQ(1, info.nr_pools);
	EXPECT_NE(0, syscall(SYS_delete_module, "kvmm", O_NONBLOCK));
	ASSERT_EQ(0, kt_dm_hang(false));
	for (i = 0; i < 20000 && info.nr_pools; i++) {
		kt_sleep_ms(1);
		ASSERT_EQ(0, kt_info(&info));
	}
	EXPECT_EQ(0, info.nr_pools);
	EXPECT_EQ(0, info.pinned_bytes);
	/* the disk is free for others */
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, SLOTS));
	EXPECT_EQ(0, kt_attach_timeout(&self->t, self->disk, 0));
}

/* A disk that hangs when it is tried: no area, and the disk is free later. */
TEST_F(late, attach)
{
	int i, ret;

	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	ASSERT_EQ(0, kt_dm_hang(true));
	EXPECT_EQ(-ETIMEDOUT, kt_attach_timeout(&self->t, self->disk,
						TIMEOUT));
	EXPECT_EQ(-EBUSY, kt_attach_timeout(&self->t, self->disk, TIMEOUT));
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	ASSERT_EQ(0, kt_dm_hang(false));
	ret = -EBUSY;
	for (i = 0; i < 20000 && ret == -EBUSY; i++) {
		kt_sleep_ms(1);
		ret = kt_attach_timeout(&self->t, self->disk, TIMEOUT);
	}
	EXPECT_EQ(0, ret);
	EXPECT_EQ(0, again(self));
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	EXPECT_EQ(-EINVAL, kt_attach_timeout(&self->t, self->disk,
					     KVMM_MAX_IO_TIMEOUT_MS + 1));
}

/* Late, and then it fails. */
TEST_F(late, fails)
{
	struct kvmm_pool_stat st;

	ASSERT_EQ(N / 2, kt_swap(&self->t, KVMM_SWAP_OUT, self->refs, N / 2,
				 KVMM_SWAP_DROP));
	ASSERT_EQ(0, kt_dm_hang(true));
	EXPECT_EQ(0, kt_swap(&self->t, KVMM_SWAP_OUT, self->refs + N / 2,
			     N / 2, KVMM_SWAP_DROP));
	EXPECT_EQ(0, kt_swap(&self->t, KVMM_SWAP_IN, self->refs, N / 2, 0));
	ASSERT_EQ(0, kt_dm_become("error", ""));
	ASSERT_EQ(0, kt_wait_unpinned(&self->t));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(N, st.io_timeouts);
	EXPECT_EQ(N / 2, st.write_errors);
	EXPECT_EQ(0, st.read_errors);
	EXPECT_EQ(N / 2, st.blocks[KVMM_RESIDENT]);
	EXPECT_EQ(SLOTS, st.slots_free);
	EXPECT_EQ(N / 2, kt_load_all(&self->t, 1, N));
	ASSERT_EQ(0, kt_dm_become("linear", "0"));
	EXPECT_EQ(0, again(self));
}

KT_MAIN
