// SPDX-License-Identifier: MIT
/*
 * I/O that is over before the call that submitted it has returned: the file
 * system still uses what belongs to it, so the block keeps moving, and the area
 * stays, until both are through.  The file is made to be so by kvmm_laggard
 * (laggard/).
 */
#include <fcntl.h>
#include <sys/ioctl.h>

#include "kt_harness.h"
#include "laggard/kvmm_laggard.h"

#define FRAMES	8
#define SLOTS	8
#define POOL	"laggard"
#define AREA	"laggard-area"
#define DEVICE	"/dev/kvmm-laggard"

FIXTURE(laggard) {
	struct kt t;
	struct kvmm_block_ref ref;
	int area;
	int dev;
};

FIXTURE_VARIANT(laggard) {
	unsigned long cmd;
	int moving;		/* state of the block meanwhile */
};

FIXTURE_VARIANT_ADD(laggard, read) {
	.cmd = KVMM_SWAP_IN, .moving = KVMM_READING,
};

FIXTURE_VARIANT_ADD(laggard, write) {
	.cmd = KVMM_SWAP_OUT, .moving = KVMM_WRITING,
};

FIXTURE_SETUP(laggard)
{
	struct kvmm_pool_create spec = kt_spec(POOL, KT_BLOCK, FRAMES, SLOTS);

	kt_wipe();
	self->dev = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (self->dev < 0)
		SKIP(_exit(255), "no " DEVICE);
	ASSERT_NE(NULL, kt_disk_dir());
	self->area = kt_area_file(AREA, KT_BLOCK, SLOTS);
	ASSERT_LE(0, self->area);
	ASSERT_EQ(0, ioctl(self->dev, LAGGARD_FILE, &self->area));
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	ASSERT_EQ(0, kt_attach(&self->t, self->area, 0, 0, 0, NULL));
	ASSERT_EQ(0, kt_store(&self->t, 1, 1, &self->ref));
	if (variant->cmd == KVMM_SWAP_IN)
		ASSERT_EQ(0, kt_swap1(&self->t, KVMM_SWAP_OUT,
				      self->ref.handle, KVMM_SWAP_DROP));
}

FIXTURE_TEARDOWN(laggard)
{
	ioctl(self->dev, LAGGARD_GO);
	EXPECT_EQ(0, kt_wait_unpinned(&self->t));
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->area);
	close(self->dev);
	kt_area_unlink(AREA);
}

struct order {
	uint64_t handle;
	unsigned long cmd;
};

static int moves(void *arg)
{
	struct order *o = arg;
	struct kt t;
	int ret = kt_join(&t, POOL, 0);

	return ret ? ret : kt_swap1(&t, o->cmd, o->handle, 0);
}

static int detaches(void *arg)
{
	struct kt t;
	int ret = kt_join(&t, arg, 0);

	return ret ? ret : kt_detach(&t, KVMM_SWAP_DISCARD);
}

TEST_F(laggard, both_are_through)
{
	struct order order = { self->ref.handle, variant->cmd };
	uint64_t deadline = kt_now_ms() + 15000;
	struct laggard_state st = { 0 };
	pid_t mover, detacher;

	ASSERT_EQ(0, ioctl(self->dev, LAGGARD_HOLD));
	mover = kt_spawn(moves, &order);
	ASSERT_LT(0, mover);
	while ((!st.inside || !st.ended) && kt_now_ms() < deadline) {
		kt_sleep_ms(1);
		ASSERT_EQ(0, ioctl(self->dev, LAGGARD_STATE, &st));
	}
	ASSERT_EQ(1, st.inside);
	ASSERT_EQ(1, st.ended);
	/* time enough to be done with it */
	kt_sleep_ms(300 * kt_slow());
	EXPECT_EQ(variant->moving, kt_query1(&self->t, self->ref.handle));
	/* nor is the file let go of */
	detacher = kt_spawn(detaches, POOL);
	ASSERT_LT(0, detacher);
	kt_sleep_ms(300 * kt_slow());
	EXPECT_EQ(variant->moving, kt_query1(&self->t, self->ref.handle));
	EXPECT_EQ(SLOTS, kt_stat_of(&self->t).nr_slots);
	ASSERT_EQ(0, ioctl(self->dev, LAGGARD_STATE, &st));
	EXPECT_EQ(1, st.inside);

	ASSERT_EQ(0, ioctl(self->dev, LAGGARD_GO));
	EXPECT_EQ(0, kt_reap(mover));
	EXPECT_EQ(0, kt_reap(detacher));
	ASSERT_EQ(0, ioctl(self->dev, LAGGARD_STATE, &st));
	EXPECT_EQ(0, st.bad);
	EXPECT_EQ(1, kt_load(&self->t, 1));
}

KT_MAIN
