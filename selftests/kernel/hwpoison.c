// SPDX-License-Identifier: MIT
/*
 * Memory errors: a frame that one has struck is not handed out, not written to
 * the area, and its block is a miss.  The errors are the kernel's own simulated
 * ones; what it says about them is expected.
 */
#include <fcntl.h>
#include <signal.h>

#include "kt_harness.h"

#define FRAMES	64			/* of 64 KiB: two huge pages */
#define AREA	"poison-area"

#ifndef MADV_HWPOISON
#define MADV_HWPOISON	100
#endif

FIXTURE(hwpoison) {
	struct kt t;
	struct kvmm_pool_stat st;
	struct kvmm_block_ref refs[FRAMES + 1];
};

FIXTURE_SETUP(hwpoison)
{
	kt_wipe();
	self->t.fd = -1;
}

FIXTURE_TEARDOWN(hwpoison)
{
	if (self->t.fd >= 0) {
		KT_CONSISTENT(&self->t);
		KT_FINISH(&self->t);
	}
	kt_area_unlink(AREA);
}

struct victim {
	struct kt *t;
	uint32_t frame;
};

static void told(int sig)
{
	(void)sig;
}

/*
 * In a process of its own: who has the page mapped may be told by a signal, and
 * is since 6.11, where a huge page can't be split.
 */
static int strike(void *arg)
{
	struct victim *v = arg;
	unsigned char *at = v->t->arena + (size_t)v->frame * v->t->block_size;
	struct sigaction act = { .sa_handler = told };

	sigaction(SIGBUS, &act, NULL);
	*(volatile unsigned char *)at;
	/* the page can't be taken away, which is no failure of the mark */
	if (madvise(at, 4096, MADV_HWPOISON) && errno != EBUSY &&
	    errno != EHWPOISON && errno != EIO)
		return -errno;
	return 0;
}

static int poison(struct kt *t, uint32_t frame)
{
	struct victim v = { t, frame };

	return kt_child(strike, &v);
}

#define POISON(frame) do {						\
	int ret_ = poison(&self->t, frame);				\
									\
	if (ret_ == -EINVAL)						\
		SKIP(return, "no memory errors in this kernel");	\
	ASSERT_EQ(0, ret_);						\
} while (0)

/* Every frame can be had once, but for @bad. */
static void all_but(struct __test_metadata *_metadata,
		    FIXTURE_DATA(hwpoison) *self, uint32_t frames, uint32_t bad)
{
	uint32_t done = 0, i;
	int round;

	for (round = 0; round < 2; round++) {
		EXPECT_EQ(-ENOSPC, kt_alloc_wait(&self->t, self->refs, frames,
						 0, &done));
		EXPECT_EQ(frames - 1, done);
		for (i = 0; i < done; i++)
			EXPECT_NE(bad, self->refs[i].frame);
		ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, self->refs, done,
				      NULL));
	}
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(1, self->st.frames_poisoned);
	EXPECT_EQ(frames - 1, self->st.frames_online);
	EXPECT_EQ(frames - 1, self->st.frames_free);
	/* nor does populating bring it back */
	EXPECT_EQ(0, kt_populate(&self->t, 0, frames, NULL));
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(frames - 1, self->st.frames_online);
}

TEST_F(hwpoison, not_handed_out)
{
	char value[32];

	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 0));
	POISON(5);
	all_but(_metadata, self, FRAMES, 5);
	{
		char path[128];

		snprintf(path, sizeof(path), KT_SYSFS
			 "/pools/%s/frames_poisoned", self->t.name);
		EXPECT_EQ(0, kt_file_get(path, value, sizeof(value)));
		EXPECT_STREQ("1", value);
	}
}

/* Pages that are not huge: the kernel takes them from who has them mapped. */
TEST_F(hwpoison, small_pages)
{
	ASSERT_EQ(0, kt_create(&self->t, 4096, 16, 0));
	POISON(7);
	all_but(_metadata, self, 16, 7);
}

/* The last page of a large frame. */
TEST_F(hwpoison, anywhere_in_a_frame)
{
	struct kt t = {};

	ASSERT_EQ(0, kt_create(&self->t, 1 << 20, 4, 0));
	t = self->t;
	t.arena += (1 << 20) - 4096;
	{
		struct victim v = { &t, 2 };
		int ret = kt_child(strike, &v);

		if (ret == -EINVAL)
			SKIP(return, "no memory errors in this kernel");
		ASSERT_EQ(0, ret);
	}
	all_but(_metadata, self, 4, 2);
}

TEST_F(hwpoison, not_written)
{
	uint32_t bad;
	int fd, i;

	if (!kt_disk_dir())
		SKIP(return, "no disk to test on");
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 16));
	fd = kt_area_file(AREA, KT_BLOCK, 16);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, kt_attach(&self->t, fd, 16, 0, 0, NULL));
	close(fd);
	ASSERT_EQ(0, kt_store(&self->t, 1, 8, self->refs));
	/* one is in its slot already, and its frame breaks, too */
	ASSERT_EQ(0, kt_swap1(&self->t, KVMM_SWAP_OUT, self->refs[6].handle,
			      0));
	bad = self->refs[3].frame;
	POISON(bad);
	EXPECT_EQ(7, kt_swap(&self->t, KVMM_SWAP_OUT, self->refs, 8,
			     KVMM_SWAP_DROP));
	for (i = 0; i < 8; i++)
		EXPECT_EQ(i == 3 ? -ESTALE : 0, self->refs[i].result);
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(7 * KT_BLOCK, self->st.swap_out_bytes);
	EXPECT_EQ(0, self->st.degraded);
	EXPECT_EQ(0, self->st.write_errors);
	EXPECT_EQ(9, self->st.slots_free);
	EXPECT_EQ(1, self->st.frames_poisoned);
	/* a miss, and the others are as they were */
	EXPECT_EQ(KVMM_MISS, kt_where1(&self->t, 4, NULL));
	EXPECT_EQ(3, kt_load_all(&self->t, 1, 3));
	EXPECT_EQ(4, kt_load_all(&self->t, 5, 4));
	/* its key can be had again, in another frame */
	ASSERT_EQ(0, kt_store(&self->t, 4, 1, self->refs));
	EXPECT_NE(bad, self->refs[0].frame);
	EXPECT_EQ(1, kt_load(&self->t, 4));
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
}

/* Nobody has come upon it yet: it must not go to the system as if it were good. */
TEST_F(hwpoison, not_given_back)
{
	struct kvmm_pool_create spec =
		kt_elastic_spec("poisoned", KT_BLOCK, 4, 2, 0);
	uint32_t unit = spec.nr_frames / 4;

	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	POISON(3 * unit + 5);
	ASSERT_EQ(0, kt_squeeze());
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(unit, self->st.given_back);
	EXPECT_EQ(3 * unit, self->st.frames_online);
}

KT_MAIN
