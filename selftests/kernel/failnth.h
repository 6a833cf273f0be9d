/* SPDX-License-Identifier: MIT */
/*
 * Every allocation, and every copy from and to user memory, of every command
 * fails once: /proc/thread-self/fail-nth makes the Nth one of the thread's next
 * system call fail, for N from 1 until the call gets by without.  Each time the
 * call says so or has done all of it, nothing is lost, and the same call then
 * works.  Only on kernels with fault injection, see selftests/debug.
 *
 * What failnth*.c have in common: the fixture, and how one call is swept.
 */
#ifndef KVMM_FAILNTH_H
#define KVMM_FAILNTH_H

#include <fcntl.h>
#include <sys/mount.h>

#include "kt_harness.h"
#include "kt_ring.h"

#define FRAMES	16
#define SLOTS	16
#define N	4
#define POOL	"failnth"
#define AREA	"failnth-area"
#define OTHER	"other"		/* a pool that a command is about */
#define NTH	"/proc/thread-self/fail-nth"
#define DEBUG	"/sys/kernel/debug"
#define MOST	2000		/* allocations of one call */

FIXTURE(failnth) {
	struct kt t;		/* lives through a test */
	struct kt c;		/* gives the command */
	struct kt_ring r;
	struct kvmm_block_ref refs[N];
	int area;
	int fd;
	int nth;
};

static inline int put(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/* All allocations may fail, also those that can wait, without a word. */
static inline int arm(void)
{
	mount("none", DEBUG, "debugfs", 0, NULL);
	put(DEBUG "/fail_usercopy/verbose", "0");
	put(DEBUG "/fail_page_alloc/verbose", "0");
	put(DEBUG "/fail_page_alloc/ignore-gfp-wait", "N");
	put(DEBUG "/fail_page_alloc/ignore-gfp-highmem", "N");
	put(DEBUG "/fail_page_alloc/min-order", "0");
	put(DEBUG "/failslab/verbose", "0");
	return put(DEBUG "/failslab/ignore-gfp-wait", "N");
}

FIXTURE_SETUP(failnth)
{
	struct kvmm_pool_create spec = kt_spec(POOL, KT_BLOCK, FRAMES, SLOTS);

	kt_wipe();
	self->nth = open(NTH, O_RDWR | O_CLOEXEC);
	if (self->nth < 0 || arm())
		SKIP(_exit(255), "the kernel has no fault injection");
	ASSERT_NE(NULL, kt_disk_dir());
	self->area = kt_area_file(AREA, KT_BLOCK, SLOTS);
	ASSERT_LE(0, self->area);
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	ASSERT_EQ(0, kt_attach(&self->t, self->area, 0, 0, 0, NULL));
	self->c.fd = -1;
	self->fd = -1;
}

FIXTURE_TEARDOWN(failnth)
{
	if (self->c.fd >= 0)
		kt_close(&self->c);
	if (self->t.fd >= 0)
		KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->area);
	kt_area_unlink(AREA);
	close(self->nth);
}

/*
 * The Nth thing that can fail does; 0: none.  What is left of an earlier one may
 * make this call fail itself.
 */
static inline void fail_nth(FIXTURE_DATA(failnth) *self, unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n), i;

	for (i = 0; i < 3; i++)
		if (pwrite(self->nth, text, len, 0) == len)
			return;
	_exit(99);
}

/* Did it?  It is not going to any more. */
static inline bool has_failed(FIXTURE_DATA(failnth) *self)
{
	char text[16] = "1";
	ssize_t n = pread(self->nth, text, sizeof(text) - 1, 0);

	fail_nth(self, 0);
	/* it was this call that failed, so the other did not */
	return n > 0 && !atoi(text);
}

/*
 * One command.  @before makes what it needs; @call gives it, alone, and returns
 * its result; @after looks at what it did and undoes it.  0 or -errno.
 */
struct command {
	int (*before)(FIXTURE_DATA(failnth) *self);
	int (*call)(FIXTURE_DATA(failnth) *self);
	int (*after)(FIXTURE_DATA(failnth) *self, int ret);
};

/* What a call may say of a failure; some can do without what failed. */
static inline bool fair(int ret)
{
	return ret >= 0 || ret == -ENOMEM || ret == -EFAULT;
}

static inline void sweep(struct __test_metadata *_metadata,
			 FIXTURE_DATA(failnth) *self, const struct command *c)
{
	struct kvmm_pool_stat st;
	const char *wrong = NULL;
	bool failed = true;
	unsigned int n;
	int ret;

	for (n = 1; failed && n < MOST && !wrong; n++) {
		ASSERT_EQ(0, c->before(self)) {
			TH_LOG("before failure %u", n);
		}
		fail_nth(self, n);
		ret = c->call(self);
		failed = has_failed(self);
		EXPECT_TRUE(fair(ret)) {
			TH_LOG("failure %u: %d", n, ret);
		}
		if (!failed)
			EXPECT_LE(0, ret);
		ret = c->after(self, ret);
		ASSERT_EQ(0, ret) {
			TH_LOG("after failure %u", n);
		}
		if (self->t.fd < 0)
			continue;
		ASSERT_EQ(0, kt_wait_unpinned(&self->t)) {
			TH_LOG("failure %u: pins or moves stay", n);
		}
		ASSERT_EQ(0, kt_stat(&self->t, &st));
		wrong = kt_inconsistent(&st);
		EXPECT_EQ(NULL, wrong) {
			TH_LOG("failure %u: %s", n, wrong);
		}
		EXPECT_EQ(1, st.nr_clients);
	}
	EXPECT_FALSE(failed);
	/* or this tests nothing */
	EXPECT_LT(2, n);
	TH_LOG("%u failures", n - 2);
}

static inline int nothing(FIXTURE_DATA(failnth) *self)
{
	self->fd = -1;
	return 0;
}

/* A client of the pool, and its end. */
static inline int before_client(FIXTURE_DATA(failnth) *self)
{
	return kt_join(&self->c, POOL, 0);
}

static inline int after_client(FIXTURE_DATA(failnth) *self, int ret)
{
	(void)ret;
	kt_close(&self->c);
	return 0;
}

#endif /* KVMM_FAILNTH_H */
