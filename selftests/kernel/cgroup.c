// SPDX-License-Identifier: MIT
/*
 * Memory cgroups: a pool's memory is charged to the group that its creator was
 * in, whoever brings it in; a limit on that group is an error, not a kill; and
 * the charge goes with the pool, also where the group went before.
 */
#include <fcntl.h>

#include "kt_harness.h"

#define OUTER	"kvmm-test"
#define INNER	OUTER "/inner"
#define MIB	(1LL << 20)

FIXTURE(cgroup) {
	long long dying;		/* groups that are gone but held */
};

FIXTURE_SETUP(cgroup)
{
	kt_wipe();
	if (kt_cgroup_make(OUTER))
		SKIP(return, "no cgroup v2");
	if (kt_cgroup_get(OUTER, "memory.current") < 0) {
		kt_cgroup_end(OUTER);
		SKIP(return, "no memory controller");
	}
	ASSERT_EQ(0, kt_cgroup_put(OUTER, "cgroup.subtree_control",
				   "+memory"));
	ASSERT_EQ(0, kt_cgroup_make(INNER));
	self->dying = kt_cgroup_field("", "cgroup.stat",
				      "nr_dying_descendants");
}

FIXTURE_TEARDOWN(cgroup)
{
	struct kvmm_info info;
	long long dying;
	int i;

	kt_wipe();
	EXPECT_EQ(0, kt_info(&info));
	EXPECT_EQ(0, info.pinned_bytes);
	kt_cgroup_end(INNER);
	EXPECT_EQ(0, kt_cgroup_end(OUTER));
	/* no pool that is gone holds a group */
	for (i = 0; i < 20000; i++) {
		dying = kt_cgroup_field("", "cgroup.stat",
					"nr_dying_descendants");
		if (dying <= self->dying)
			break;
		kt_sleep_ms(1);
	}
	EXPECT_GE(self->dying, dying);
}

/* A pool of @arg frames, made and not populated, in the inner group. */
static int make(void *arg)
{
	struct kvmm_pool_create spec = kt_spec("grouped", KT_BLOCK,
					       *(uint32_t *)arg, 0);
	int ret = kt_cgroup_join(INNER);
	int fd = kt_dev(O_RDWR);

	if (!ret)
		ret = fd < 0 ? fd : kt_ioctl(fd, KVMM_POOL_CREATE, &spec);
	return ret;
}

static int fill(uint32_t first, uint32_t count, uint32_t *done)
{
	struct kt t;
	int ret = kt_join(&t, "grouped", 0);

	if (ret)
		return ret;
	ret = kt_populate(&t, first, count, done);
	kt_close(&t);
	return ret;
}

static int make_and_fill(void *arg)
{
	int ret = make(arg);

	return ret ? ret : fill(0, *(uint32_t *)arg, NULL);
}

static long long charged(const char *group)
{
	return kt_cgroup_get(group, "memory.current");
}

/*
 * Charges are given back in the time of the kernel: what was freed may still be
 * on its way through the lists of a processor.
 */
static bool charged_less(const char *group, long long bytes)
{
	int i;

	for (i = 0; i < 10000; i++) {
		if (charged(group) < bytes)
			return true;
		kt_sleep_ms(1);
	}
	return false;
}

TEST_F(cgroup, creator)
{
	uint32_t frames = 512;			/* 32 MiB */

	ASSERT_EQ(0, kt_child(make_and_fill, &frames));
	/* until the pool is gone: its creator is */
	EXPECT_LE(32 * MIB, charged(INNER));
	EXPECT_EQ(0, kt_destroy("grouped", 0));
	EXPECT_TRUE(charged_less(INNER, 2 * MIB)) {
		TH_LOG("%lld bytes stayed", charged(INNER));
	}
}

/* Someone of another group brings it in: it is the creator's all the same. */
TEST_F(cgroup, another_client)
{
	uint32_t frames = 512;

	ASSERT_EQ(0, kt_child(make, &frames));
	EXPECT_GT(8 * MIB, charged(INNER));
	ASSERT_EQ(0, fill(0, 512, NULL));
	EXPECT_LE(32 * MIB, charged(INNER));
	EXPECT_EQ(0, kt_destroy("grouped", 0));
	EXPECT_TRUE(charged_less(INNER, 2 * MIB));
}

/* A group with less memory than the pool wants. */
static void too_big(struct __test_metadata *_metadata, uint32_t done)
{
	struct kvmm_block_ref refs[32];
	struct kvmm_pool_stat st;
	struct kt t;

	EXPECT_LE(256, done);
	EXPECT_GE(384, done);
	EXPECT_EQ(0, kt_cgroup_field(INNER, "memory.events", "oom_kill"));
	EXPECT_GE(24 * MIB, charged(INNER));
	ASSERT_EQ(0, kt_join(&t, "grouped", 0));
	ASSERT_EQ(0, kt_stat(&t, &st));
	EXPECT_EQ(done, st.frames_online);
	/* what did not come whole is not there */
	EXPECT_TRUE(kt_sigbus(t.arena + (size_t)done * KT_BLOCK, true));
	/* what is there works */
	ASSERT_EQ(0, kt_store(&t, 1, 32, refs));
	EXPECT_EQ(32, kt_load_all(&t, 1, 32));
	/* and with the limit lifted, the rest comes too */
	EXPECT_EQ(0, kt_cgroup_put(INNER, "memory.max", "max"));
	EXPECT_EQ(0, kt_populate(&t, 0, 1024, NULL));
	EXPECT_EQ(32, kt_load_all(&t, 1, 32));
	kt_close(&t);
}

struct limited {
	uint32_t frames;
	uint32_t *done;		/* shared */
};

static int make_and_overfill(void *arg)
{
	struct limited *l = arg;
	int ret = make(&l->frames);

	return ret ? ret : fill(0, l->frames, l->done);
}

TEST_F(cgroup, limit)
{
	struct limited l = { .frames = 1024 };

	l.done = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)l.done);
	ASSERT_EQ(0, kt_cgroup_put(INNER, "memory.max", "25165824"));
	EXPECT_EQ(-ENOMEM, kt_child(make_and_overfill, &l));
	too_big(_metadata, *l.done);
	munmap(l.done, 4096);
}

TEST_F(cgroup, limit_another_client)
{
	uint32_t frames = 1024, done = 0;

	ASSERT_EQ(0, kt_cgroup_put(INNER, "memory.max", "25165824"));
	ASSERT_EQ(0, kt_child(make, &frames));
	EXPECT_EQ(-ENOMEM, fill(0, frames, &done));
	too_big(_metadata, done);
}

/* The group is deleted before the pool: its parent takes the charge over. */
TEST_F(cgroup, group_goes_first)
{
	uint32_t frames = 512;

	ASSERT_EQ(0, kt_child(make, &frames));
	ASSERT_EQ(0, fill(0, 256, NULL));
	ASSERT_EQ(0, kt_cgroup_end(INNER));
	EXPECT_LE(16 * MIB, charged(OUTER));
	EXPECT_EQ(0, fill(256, 256, NULL));
	EXPECT_LE(32 * MIB, charged(OUTER));
	/* the limits above it hold on */
	EXPECT_EQ(0, kt_destroy("grouped", 0));
	EXPECT_TRUE(charged_less(OUTER, 2 * MIB)) {
		TH_LOG("%lld bytes stayed", charged(OUTER));
	}
}

TEST_F(cgroup, limit_above_a_deleted_group)
{
	uint32_t frames = 1024, done = 0;

	ASSERT_EQ(0, kt_child(make, &frames));
	ASSERT_EQ(0, kt_cgroup_end(INNER));
	ASSERT_EQ(0, kt_cgroup_put(OUTER, "memory.max", "25165824"));
	EXPECT_EQ(-ENOMEM, fill(0, frames, &done));
	EXPECT_LE(256, done);
	EXPECT_GE(384, done);
	EXPECT_EQ(0, kt_cgroup_field(OUTER, "memory.events", "oom_kill"));
}

/* More bookkeeping than there is memory: refused, and nothing was taken for it. */
static int make_vast(void *arg)
{
	struct kvmm_pool_create spec = kt_spec("vast", 4096, KVMM_MAX_BLOCKS,
					       0);
	int ret = kt_cgroup_join(INNER);
	int fd = kt_dev(O_RDWR);

	(void)arg;
	spec.nr_elastic = spec.nr_frames;
	if (!ret)
		ret = fd < 0 ? fd : kt_ioctl(fd, KVMM_POOL_CREATE, &spec);
	return ret;
}

TEST_F(cgroup, refused_first)
{
	if (kt_cgroup_get(INNER, "memory.peak") < 0)
		SKIP(return, "no memory.peak");
	EXPECT_EQ(-ENOMEM, kt_child(make_vast, NULL));
	EXPECT_GT(8 * MIB, kt_cgroup_get(INNER, "memory.peak"));
}

KT_MAIN
