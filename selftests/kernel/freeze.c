// SPDX-License-Identifier: MIT
/*
 * A frozen file system under the area (fsfreeze, snapshots): writes are refused
 * at once and nobody hangs; reads go on; after the thaw all is as before.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>

#include "kt_harness.h"
#include "kt_ring.h"

#define FRAMES	16
#define SLOTS	32
#define AREA	"frozen-area"

FIXTURE(freeze) {
	struct kt t;
	int area, dir;
	pid_t rescue;
};

static int thaw(int dir)
{
	return ioctl(dir, FITHAW, 0) ? -errno : 0;
}

/* So that a test that hangs ends: the thaw comes anyway. */
static int thaw_later(void *arg)
{
	kt_sleep_ms(60000);
	return thaw(*(int *)arg);
}

FIXTURE_SETUP(freeze)
{
	kt_wipe();
	ASSERT_NE(NULL, kt_disk_dir());
	self->dir = open(kt_disk_dir(), O_RDONLY | O_DIRECTORY);
	ASSERT_LE(0, self->dir);
	thaw(self->dir);
	self->area = kt_area_file(AREA, KT_BLOCK, SLOTS);
	ASSERT_LE(0, self->area);
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, SLOTS));
	ASSERT_EQ(0, kt_attach(&self->t, self->area, 0, 0, 0, NULL));
	self->rescue = kt_spawn(thaw_later, &self->dir);
}

FIXTURE_TEARDOWN(freeze)
{
	thaw(self->dir);
	kill(self->rescue, SIGKILL);
	kt_reap(self->rescue);
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->area);
	kt_area_unlink(AREA);
	close(self->dir);
}

static uint64_t swapped(struct kt *t)
{
	struct kvmm_pool_stat st;

	return kt_stat(t, &st) ? ~0ULL : st.blocks[KVMM_SWAPPED];
}

TEST_F(freeze, swaps)
{
	struct kvmm_block_ref refs[FRAMES], more[8];
	struct kvmm_pool_stat st;
	struct kvmm_reclaim out;
	struct kt_ring r;
	uint64_t start;
	int i, ret;

	ASSERT_EQ(0, kt_ring_init(&r, &self->t, 8, 0, false));
	ASSERT_EQ(0, kt_store(&self->t, 1, 8, refs));
	ASSERT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 4,
			     KVMM_SWAP_DROP));
	ASSERT_EQ(0, ioctl(self->dir, FIFREEZE, 0));
	start = kt_now_ms();

	EXPECT_EQ(-EBUSY, kt_swap1(&self->t, KVMM_SWAP_OUT, refs[5].handle,
				   0));
	EXPECT_EQ(-EBUSY, kt_ring_do1(&r, KVMM_URING_SWAP_OUT, refs[6].handle,
				      0));
	EXPECT_EQ(KVMM_RESIDENT, kt_query1(&self->t, refs[6].handle));
	/* coming in needs no write */
	for (i = 0; i < 4; i++)
		EXPECT_EQ(1, kt_load(&self->t, 1 + i));
	/* making room does what it can, and ends */
	ret = kt_reclaim(&self->t, 0, &out);
	EXPECT_TRUE(!ret || ret == -EBUSY || ret == -EAGAIN) {
		TH_LOG("%d", ret);
	}
	EXPECT_EQ(4, kt_load_all(&self->t, 5, 4));
	ret = kt_alloc(&self->t, more, 8);
	if (!ret)
		kt_batch(&self->t, KVMM_UNPIN, more, 8, NULL);
	EXPECT_GT(20000, kt_now_ms() - start);

	ASSERT_EQ(0, thaw(self->dir));
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(0, st.degraded);
	EXPECT_EQ(0, st.write_errors);
	ASSERT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(8, swapped(&self->t));
	EXPECT_EQ(8, kt_load_all(&self->t, 1, 8));
	kt_ring_exit(&r);
}

/* The pool can be ended, and the file system unmounted later. */
TEST_F(freeze, destroy)
{
	struct kvmm_block_ref refs[4];
	uint64_t start;

	ASSERT_EQ(0, kt_store(&self->t, 1, 4, refs));
	ASSERT_EQ(0, kt_reclaim(&self->t, 2, NULL));
	ASSERT_EQ(0, ioctl(self->dir, FIFREEZE, 0));
	start = kt_now_ms();
	EXPECT_EQ(0, kt_destroy(self->t.name, KVMM_POOL_FORCE));
	EXPECT_GT(20000, kt_now_ms() - start);
	kt_close(&self->t);
	ASSERT_EQ(0, thaw(self->dir));
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, 4, 4));
	EXPECT_EQ(0, kt_attach(&self->t, self->area, 0, 0, 0, NULL));
}

/* Freezing waits for writes in flight, not for the area to be let go. */
static int freezes(void *arg)
{
	return ioctl(*(int *)arg, FIFREEZE, 0) ? -errno : 0;
}

TEST_F(freeze, while_writing)
{
	struct kvmm_block_ref refs[FRAMES];
	int round;
	pid_t pid;

	for (round = 0; round < 3; round++) {
		ASSERT_EQ(0, kt_store(&self->t, 1 + round * 10, 8, refs));
		pid = kt_spawn(freezes, &self->dir);
		kt_swap(&self->t, KVMM_SWAP_OUT, refs, 8, KVMM_SWAP_DROP);
		EXPECT_EQ(0, kt_reap(pid));
		EXPECT_EQ(8, kt_load_all(&self->t, 1 + round * 10, 8));
		ASSERT_EQ(0, thaw(self->dir));
		ASSERT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	}
	EXPECT_EQ(24, swapped(&self->t));
}

KT_MAIN
