// SPDX-License-Identifier: MIT
/*
 * Memory errors of before: someone's huge page was struck and freed as a whole,
 * and the kernel hands it out anew, the bad page with the good ones.  It does not
 * get into a pool.
 *
 * It is a pool's memory that is struck, while only a pipe has it any more, for
 * the kernel hands that out to pools first.  Some kernels look at what they hand
 * out, and keep it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include "kt_harness.h"
#include "kt_poison.h"

#define HUGE	(2 << 20)
#define UNIT	(HUGE / KT_BLOCK)	/* frames of a huge page */
#define MANY	10			/* more than are set aside for one */

FIXTURE(olderror) {
	struct kt t;
	struct kvmm_pool_stat st;
	long long kept;
};

FIXTURE_SETUP(olderror)
{
	cpu_set_t set;

	kt_wipe();
	self->t.fd = -1;
	if (!kt_can_strike())
		SKIP(_exit(255), "no memory errors in this kernel");
	/* what is freed goes to who asks on the same CPU */
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	ASSERT_EQ(0, sched_setaffinity(0, sizeof(set), &set));
	self->kept = kt_kept();
	ASSERT_LE(0, self->kept);
}

FIXTURE_TEARDOWN(olderror)
{
	if (self->t.fd >= 0) {
		KT_CONSISTENT(&self->t);
		KT_FINISH(&self->t);
	}
}

/* Frees @n huge pages, at most MANY, with an error in page pages[i] of each. */
static int leave_behind(const unsigned int *pages, unsigned int n)
{
	struct kt t = { .fd = -1 };
	uint64_t at[MANY] = {};
	unsigned int i;
	int ends[2];
	int ret;

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	ret = kt_create(&t, KT_BLOCK, n * UNIT, 0);
	for (i = 0; i < n && !ret; i++) {
		struct iovec iov = {
			t.arena + (size_t)i * HUGE + pages[i] * 4096, 1
		};

		*(volatile unsigned char *)iov.iov_base;
		at[i] = kt_address(iov.iov_base);
		if (vmsplice(ends[1], &iov, 1, 0) != 1)
			ret = -errno;
	}
	kt_close(&t);
	if (!ret)
		ret = kt_destroy(t.name, 0);
	for (i = 0; i < n && !ret; i++)
		kt_strike(at[i]);
	close(ends[0]);
	close(ends[1]);
	return ret;
}

/* A pool of one huge page that has no memory yet. */
static int empty_pool(struct kt *t)
{
	struct kvmm_pool_create spec = kt_spec("old", KT_BLOCK, UNIT, 0);
	int fd = kt_dev(O_RDWR);
	int ret = fd < 0 ? fd : kt_ioctl(fd, KVMM_POOL_CREATE, &spec);

	close(fd);
	return ret ? ret : kt_join(t, "old", 0);
}

/* The first page of a huge page, one in it, the last: none is handed out. */
TEST_F(olderror, set_aside)
{
	static const unsigned int pages[] = { 0, 7, 511 };
	struct kvmm_block_ref refs[2 * UNIT];

	ASSERT_EQ(0, leave_behind(pages, 3));
	ASSERT_EQ(self->kept, kt_kept());
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, 2 * UNIT, 0));
	ASSERT_EQ(0, kt_marked(&self->t));
	/* it is no frame's error */
	ASSERT_EQ(0, kt_alloc(&self->t, refs, 2 * UNIT));
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 2 * UNIT, NULL));
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	ASSERT_EQ(0, self->st.frames_poisoned);
	ASSERT_EQ(2 * UNIT, self->st.frames_online);
	if (kt_kept() == self->kept)
		SKIP(return, "the kernel hands out no such page");
	/* nor are they there for the next one; some the kernel may have found */
	EXPECT_GE(3 * HUGE, kt_kept() - self->kept);
}

/*
 * So many in a row that it is no accident: an error, of which nothing stays, and
 * the next try goes on behind them.
 */
TEST_F(olderror, too_many)
{
	struct kvmm_info info;
	unsigned int pages[MANY], i;
	long long kept;
	int ret;

	for (i = 0; i < MANY; i++)
		pages[i] = i % 2 * 50 * i;
	ASSERT_EQ(0, leave_behind(pages, MANY));
	ASSERT_EQ(0, empty_pool(&self->t));
	ret = kt_populate(&self->t, 0, UNIT, NULL);
	kept = kt_kept() - self->kept;
	if (!ret) {
		ASSERT_EQ(0, kt_marked(&self->t));
		ASSERT_GT(MANY * HUGE, kept);
		SKIP(return, "the kernel hands out no such pages in a row");
	}
	EXPECT_EQ(-EIO, ret);
	EXPECT_LT(HUGE, kept);
	EXPECT_GT(MANY * HUGE, kept);
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(0, self->st.frames_online);
	EXPECT_EQ(0, self->st.frames_poisoned);
	ASSERT_EQ(0, kt_info(&info));
	EXPECT_EQ(0, info.pinned_bytes);
	EXPECT_TRUE(kt_sigbus(self->t.arena, true));

	ASSERT_EQ(0, kt_populate(&self->t, 0, UNIT, NULL));
	EXPECT_EQ(0, kt_marked(&self->t));
	EXPECT_GE(MANY * HUGE, kt_kept() - self->kept);
}

KT_MAIN
