// SPDX-License-Identifier: MIT
/*
 * Real device faults under load: a disk that fails writes, or reads, or gives
 * back other bytes; that is slower than the deadline; that hangs again and
 * again; that is pulled out; a file with holes.  Every time: what is found is
 * right, what is not is a miss, it is counted, nothing waits for ever, and with
 * a good disk all is as before.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>

#include "kt_harness.h"
#include "kt_ring.h"

#define FRAMES	32
#define SLOTS	64
#define N	16
#define POOL	"faults"

FIXTURE(faults) {
	struct kt t;
	int disk;
	struct kvmm_block_ref refs[N];
};

FIXTURE_SETUP(faults)
{
	struct kvmm_pool_create spec = kt_spec(POOL, KT_BLOCK, FRAMES, SLOTS);

	kt_wipe();
	self->disk = kt_dm();
	if (self->disk == -ENODEV)
		SKIP(_exit(255), "the kernel has no device mapper");
	ASSERT_LE(0, self->disk);
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	ASSERT_EQ(0, kt_attach_timeout(&self->t, self->disk, 0));
	ASSERT_EQ(0, kt_store(&self->t, 1, N, self->refs));
}

FIXTURE_TEARDOWN(faults)
{
	kt_dm_hang(false);
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->disk);
	kt_dm_end();
}

static int out(FIXTURE_DATA(faults) *self, int from, int n)
{
	return kt_swap(&self->t, KVMM_SWAP_OUT, self->refs + from, n,
		       KVMM_SWAP_DROP);
}

/* A deadline that short may pass while the disk is tried, on a busy machine. */
static int attach_soon(FIXTURE_DATA(faults) *self, uint32_t timeout_ms)
{
	int i, ret = -EBUSY;

	for (i = 0; i < 2000 && (ret == -EBUSY || ret == -ETIMEDOUT); i++) {
		kt_sleep_ms(i ? 10 : 0);
		ret = kt_attach_timeout(&self->t, self->disk, timeout_ms);
	}
	return ret;
}

/* With a good disk, everything. */
static int again(FIXTURE_DATA(faults) *self)
{
	struct kt *t = &self->t;
	int ret;

	ret = kt_dm_become("linear", "0");
	ret = ret ? ret : kt_wait_unpinned(t);
	ret = ret ? ret : kt_detach(t, KVMM_SWAP_DISCARD);
	ret = ret ? ret : kt_attach_timeout(t, self->disk, 0);
	ret = ret ? ret : kt_reset(t, NULL);
	ret = ret ? ret : kt_store(t, 1000, N, self->refs);
	if (ret || out(self, 0, N) != N)
		return ret ? ret : -EIO;
	if (kt_stat_of(t).degraded)
		return -EIO;
	return kt_load_all(t, 1000, N) == N ? 0 : -EBADMSG;
}

/* Writes fail, reads don't: nothing is lost, and what is out can be had. */
TEST_F(faults, writes_fail)
{
	struct kvmm_pool_stat st;
	int i;

	ASSERT_EQ(N / 2, out(self, 0, N / 2));
	if (kt_dm_become("flakey", "0 0 1000 1 error_writes"))
		SKIP(return, "the kernel has no dm-flakey");
	EXPECT_EQ(0, out(self, N / 2, N / 2));
	for (i = N / 2; i < N; i++) {
		EXPECT_EQ(-EIO, self->refs[i].result);
		EXPECT_EQ(KVMM_RESIDENT,
			  kt_query1(&self->t, self->refs[i].handle));
	}
	st = kt_stat_of(&self->t);
	EXPECT_EQ(1, st.degraded);
	EXPECT_LE(1, st.write_errors);
	EXPECT_EQ(0, st.read_errors);
	EXPECT_EQ(0, st.io_timeouts);
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	EXPECT_EQ(0, again(self));
}

/* Everything fails: what is in memory stays, all else is a miss. */
TEST_F(faults, all_fails)
{
	struct kvmm_block_ref more[4];
	struct kvmm_pool_stat st;

	ASSERT_EQ(N / 2, out(self, 0, N / 2));
	ASSERT_EQ(0, kt_dm_become("error", ""));
	EXPECT_EQ(0, kt_load_all(&self->t, 1, N / 2));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(N / 2, st.read_errors);
	/* a read that fails says nothing of writing */
	EXPECT_EQ(0, st.degraded);
	EXPECT_EQ(0, out(self, N / 2, N / 2));
	EXPECT_EQ(1, kt_stat_of(&self->t).degraded);
	EXPECT_EQ(N / 2, kt_load_all(&self->t, 1 + N / 2, N / 2));
	EXPECT_EQ(SLOTS, kt_stat_of(&self->t).slots_free);
	/* room is made by purging */
	EXPECT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(0, kt_store(&self->t, 500, 4, more));
	EXPECT_EQ(4, kt_load_all(&self->t, 500, 4));
	EXPECT_EQ(0, again(self));
}

/* Writes a little to slots of the disk below, from the first on. */
static int scribble(int n)
{
	static unsigned char junk[4096] __attribute__((aligned(4096)));
	int fd = open(kt_disk_dev(), O_RDWR | O_DIRECT | O_CLOEXEC);
	int i, ret = 0;

	if (fd < 0)
		return -errno;
	kt_fill_mem(junk, sizeof(junk), 4711);
	for (i = 0; i < n && !ret; i++)
		if (pwrite(fd, junk, sizeof(junk), i * (off_t)KT_BLOCK +
			   (i % 16) * 4096) != sizeof(junk))
			ret = -EIO;
	close(fd);
	return ret;
}

/* Other bytes come back than were written: never found, always a miss. */
TEST_F(faults, lies)
{
	struct kvmm_pool_stat st;

	ASSERT_EQ(N, out(self, 0, N));
	ASSERT_EQ(0, scribble(N / 2));
	EXPECT_EQ(N / 2, kt_load_all(&self->t, 1, N));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(N / 2, st.checksum_errors);
	EXPECT_EQ(0, st.read_errors);
	EXPECT_EQ(0, again(self));
}

/* Writes that go nowhere, and are said to be done: misses. */
TEST_F(faults, forgets)
{
	if (kt_dm_become("flakey", "0 0 1000 1 drop_writes"))
		SKIP(return, "the kernel has no dm-flakey");
	EXPECT_EQ(N, out(self, 0, N));
	ASSERT_EQ(0, kt_dm_become("linear", "0"));
	EXPECT_EQ(0, kt_load_all(&self->t, 1, N));
	EXPECT_EQ(N, kt_stat_of(&self->t).checksum_errors);
	EXPECT_EQ(0, again(self));
}

/* Slower than the deadline, but it comes: as late as any, and well again. */
TEST_F(faults, slow)
{
	struct kvmm_pool_stat st;

	ASSERT_EQ(0, kt_detach(&self->t, 0));
	ASSERT_EQ(0, attach_soon(self, 100));
	if (kt_dm_become("delay", "0 1500"))
		SKIP(return, "the kernel has no dm-delay");
	EXPECT_EQ(0, out(self, 0, N));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(N, st.io_timeouts);
	EXPECT_EQ(1, st.degraded);
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	ASSERT_EQ(0, kt_wait_unpinned(&self->t));
	EXPECT_EQ(N, kt_stat_of(&self->t).blocks[KVMM_CLEAN]);
	/* patience is all it takes */
	ASSERT_EQ(0, kt_detach(&self->t, 0));
	ASSERT_EQ(0, kt_attach_timeout(&self->t, self->disk, 60000));
	EXPECT_EQ(N, out(self, 0, N));
	EXPECT_EQ(N, kt_stat_of(&self->t).io_timeouts);
	EXPECT_EQ(0, again(self));
}

static bool stop;

struct loader {
	FIXTURE_DATA(faults) *self;
	unsigned int seed;
	int hits, bad;
};

static void *loads(void *arg)
{
	struct loader *l = arg;
	struct kvmm_block_ref ref;
	struct kt t;
	int ret;

	if (kt_join(&t, POOL, 0)) {
		l->bad = -EIO;
		return NULL;
	}
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && !l->bad) {
		uint64_t id = 1 + rand_r(&l->seed) / 7 % (2 * FRAMES);

		ret = kt_load(&t, id);
		l->hits += ret == 1;
		if (ret == -EBADMSG || ret == -EFAULT)
			l->bad = ret;
		if (ret == 0 || ret == -ENOSPC || ret == -EAGAIN) {
			if (ret)
				kt_reclaim(&t, FRAMES / 2, NULL);
			ret = kt_store(&t, id, 1, &ref);
			if (!ret)
				kt_swap1(&t, KVMM_SWAP_OUT, ref.handle,
					 rand_r(&l->seed) & 64 ?
					 KVMM_SWAP_DROP : 0);
		}
	}
	kt_close(&t);
	return NULL;
}

/* It hangs and comes back while several want blocks: all that is hit is right. */
TEST_F_TIMEOUT(faults, hangs_again_and_again, 600)
{
	struct loader l[3] = { { 0 } };
	pthread_t thread[3];
	int i, hits = 0;

	ASSERT_EQ(0, kt_detach(&self->t, 0));
	stop = false;
	for (i = 0; i < 3; i++) {
		l[i].self = self;
		l[i].seed = 7 + i;
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, loads, &l[i]));
	}
	for (i = 0; i < 6; i++) {
		ASSERT_EQ(0, attach_soon(self, 40));
		kt_sleep_ms(100);
		ASSERT_EQ(0, kt_dm_hang(true));
		kt_sleep_ms(120);
		if (i == 4)
			ASSERT_EQ(0, kt_dm_become("error", ""));
		ASSERT_EQ(0, kt_dm_hang(false));
		kt_sleep_ms(30);
		EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
		if (i == 4)
			ASSERT_EQ(0, kt_dm_become("linear", "0"));
		KT_CONSISTENT(&self->t);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, pthread_join(thread[i], NULL));
		EXPECT_EQ(0, l[i].bad);
		hits += l[i].hits;
	}
	EXPECT_LT(0, hits);
	ASSERT_EQ(0, kt_attach_timeout(&self->t, self->disk, 0));
	EXPECT_EQ(0, again(self));
}

/* Its blocks are given back behind the pool's back: they are misses. */
TEST_F(faults, holes)
{
	int fd;

	ASSERT_NE(NULL, kt_disk_dir());
	fd = kt_area_file("holes", KT_BLOCK, SLOTS);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, kt_detach(&self->t, 0));
	ASSERT_EQ(0, kt_attach_timeout(&self->t, fd, 0));
	ASSERT_EQ(N, out(self, 0, N));
	ASSERT_EQ(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       0, (N / 2) * KT_BLOCK));
	EXPECT_EQ(N / 2, kt_load_all(&self->t, 1, N));
	EXPECT_EQ(N / 2, kt_stat_of(&self->t).checksum_errors);
	/* and can be written again */
	ASSERT_EQ(0, kt_reset(&self->t, NULL));
	ASSERT_EQ(0, kt_store(&self->t, 1, N, self->refs));
	EXPECT_EQ(N, out(self, 0, N));
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	close(fd);
	kt_area_unlink("holes");
	EXPECT_EQ(0, kt_attach_timeout(&self->t, self->disk, 0));
}

/* Pulled out while it is in use: as a disk that fails, and can be let go of. */
TEST_F(faults, removed)
{
	struct kvmm_pool_stat st;
	int fd = kt_nullb(16, 0);

	if (fd == -ENODEV)
		SKIP(return, "the kernel has no null_blk");
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, kt_detach(&self->t, 0));
	ASSERT_EQ(0, kt_attach_timeout(&self->t, fd, 0));
	ASSERT_EQ(N / 2, out(self, 0, N / 2));
	kt_nullb_end();
	EXPECT_EQ(0, out(self, N / 2, N / 2));
	EXPECT_EQ(N / 2, kt_load_all(&self->t, 1, N));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(1, st.degraded);
	EXPECT_LT(0, st.write_errors);
	EXPECT_EQ(N / 2, st.read_errors);
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	close(fd);
	EXPECT_EQ(0, kt_attach_timeout(&self->t, self->disk, 0));
	EXPECT_EQ(0, again(self));
}

KT_MAIN
