// SPDX-License-Identifier: MIT
/*
 * NUMA: a pool's memory is on the nodes that were asked for, or there is none;
 * with KVMM_POOL_NODES_PREFER what is elsewhere is counted.  Wants a machine of
 * two nodes with a processor each; one test wants three.
 */
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>

#include "kt_harness.h"

#define FRAMES	512			/* 32 MiB */
#define GROUP	"kvmm-numa"
#define NODE	"/sys/devices/system/node/node"

FIXTURE(numa) {
	long long oom_kills;
};

/* CPU 0 is of node 0, the last one of node 1. */
static int run_on(int node)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(node ? sysconf(_SC_NPROCESSORS_CONF) - 1 : 0, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
}

static int node_of_cpu(void)
{
	unsigned int cpu, node;

	return syscall(SYS_getcpu, &cpu, &node, NULL) ? -errno : (int)node;
}

/* Bytes of a node that nobody uses. */
static size_t node_free(int node)
{
	char path[64], line[256];
	size_t kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), NODE "%d/meminfo", node);
	f = fopen(path, "re");
	while (f && !kib && fgets(line, sizeof(line), f))
		sscanf(line, "Node %*d MemFree: %zu", &kib);
	if (f)
		fclose(f);
	return kib << 10;
}

FIXTURE_SETUP(numa)
{
	kt_wipe();
	if (access(NODE "1", F_OK) || access(NODE "2", F_OK) == 0)
		SKIP(_exit(255), "not a machine of two nodes");
	ASSERT_EQ(0, run_on(1));
	ASSERT_EQ(1, node_of_cpu());
	ASSERT_EQ(0, run_on(0));
	ASSERT_EQ(0, node_of_cpu());
	self->oom_kills = kt_file_field("/proc/vmstat", "oom_kill");
}

FIXTURE_TEARDOWN(numa)
{
	struct kvmm_info info;

	kt_wipe();
	EXPECT_EQ(0, kt_info(&info));
	EXPECT_EQ(0, info.pinned_bytes);
	EXPECT_EQ(self->oom_kills, kt_file_field("/proc/vmstat", "oom_kill"));
}

/* Pages of frames @first to before @last that are on @node; -1: an error. */
static long pages_on(struct kt *t, uint32_t first, uint32_t last, int node)
{
	size_t per = t->block_size / 4096, i;
	long found = 0;
	uint32_t f;

	for (f = first; f < last; f++) {
		void *pages[16];
		int status[16];

		for (i = 0; i < per; i++) {
			pages[i] = t->arena + (size_t)f * t->block_size +
				i * 4096;
			*(volatile char *)pages[i];
		}
		if (syscall(SYS_move_pages, 0, per, pages, NULL, status, 0))
			return -1;
		for (i = 0; i < per; i++) {
			if (status[i] < 0)
				return -1;
			found += status[i] == node;
		}
	}
	return found;
}

static int node_pool(struct kt *t, const char *name, uint64_t nodes,
		     uint32_t flags, uint32_t frames)
{
	struct kvmm_pool_create spec = kt_spec(name, KT_BLOCK, frames, 0);

	spec.nodes = nodes;
	spec.flags = flags;
	return kt_create_spec(t, &spec);
}

/* A pool that is mapped but has no memory yet. */
static int empty_pool(struct kt *t, const char *name, uint64_t nodes,
		      uint32_t flags, uint32_t frames)
{
	struct kvmm_pool_create spec = kt_spec(name, KT_BLOCK, frames, 0);
	int fd = kt_dev(O_RDWR);
	int ret;

	spec.nodes = nodes;
	spec.flags = flags;
	ret = fd < 0 ? fd : kt_ioctl(fd, KVMM_POOL_CREATE, &spec);
	close(fd);
	return ret ? ret : kt_join(t, name, 0);
}

/* By workers, until they are done. */
static int populate_async(struct kt *t)
{
	struct kvmm_populate arg = {
		.size = sizeof(arg), .flags = KVMM_POPULATE_ASYNC,
		.count = t->nr_frames,
	};
	struct kvmm_pool_stat st;
	int ret = kt_ioctl(t->fd, KVMM_POPULATE, &arg);

	do {
		kt_sleep_ms(1);
		ret = ret ? ret : kt_stat(t, &st);
	} while (!ret && st.frames_populating);
	if (ret)
		return ret;
	return st.frames_online == t->nr_frames ? 0 : -ENOMEM;
}

static long long misplaced(struct kt *t)
{
	struct kvmm_pool_stat st;

	return kt_stat(t, &st) ? -1 : (long long)st.frames_misplaced;
}

/* Wherever the thread runs that populates. */
TEST_F(numa, one_node)
{
	uint32_t flags[] = { 0, KVMM_POOL_NODES_PREFER };
	char path[128], value[64], want[2];
	int cpu, node, i;
	struct kt t;

	for (i = 0; i < 8; i++) {
		cpu = i & 1;
		node = i >> 1 & 1;
		ASSERT_EQ(0, run_on(cpu));
		ASSERT_EQ(0, node_pool(&t, "one", 1ULL << node, flags[i >> 2],
				       FRAMES));
		EXPECT_EQ(FRAMES * 16, pages_on(&t, 0, FRAMES, node)) {
			TH_LOG("asked for node %d from %d", node, cpu);
		}
		EXPECT_EQ(0, misplaced(&t));
		snprintf(path, sizeof(path), KT_SYSFS "/pools/one/nodes");
		EXPECT_EQ(0, kt_file_get(path, value, sizeof(value)));
		snprintf(want, sizeof(want), "%d", node);
		EXPECT_STREQ(want, value);
		kt_close(&t);
		ASSERT_EQ(0, kt_destroy("one", 0));
	}
}

TEST_F(numa, in_turns)
{
	uint32_t flags[] = { 0, KVMM_POOL_NODES_PREFER };
	char value[64];
	long there;
	struct kt t;
	int i;

	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, node_pool(&t, "turns", 3, flags[i], FRAMES));
		there = pages_on(&t, 0, FRAMES, 1);
		EXPECT_LE(FRAMES * 16 / 4, there);
		EXPECT_GE(FRAMES * 16 * 3 / 4, there);
		EXPECT_EQ(FRAMES * 16 - there, pages_on(&t, 0, FRAMES, 0));
		EXPECT_EQ(0, misplaced(&t));
		EXPECT_EQ(0, kt_file_get(KT_SYSFS "/pools/turns/nodes", value,
					 sizeof(value)));
		EXPECT_STREQ("0-1", value);
		kt_close(&t);
		ASSERT_EQ(0, kt_destroy("turns", 0));
	}
}

/* Without nodes: that of who populates, whatever its policy is made for. */
TEST_F(numa, local)
{
	unsigned long zero = 1;
	char value[64];
	struct kt t;
	int node;

	for (node = 0; node < 2; node++) {
		ASSERT_EQ(0, run_on(node));
		ASSERT_EQ(0, node_pool(&t, "local", 0, 0, FRAMES));
		EXPECT_EQ(FRAMES * 16, pages_on(&t, 0, FRAMES, node));
		EXPECT_EQ(0, kt_file_get(KT_SYSFS "/pools/local/nodes", value,
					 sizeof(value)));
		EXPECT_STREQ("", value);
		kt_close(&t);
		ASSERT_EQ(0, kt_destroy("local", 0));
	}
	ASSERT_EQ(0, syscall(SYS_set_mempolicy, MPOL_BIND, &zero, 64));
	ASSERT_EQ(0, node_pool(&t, "local", 0, 0, FRAMES));
	EXPECT_EQ(FRAMES * 16, pages_on(&t, 0, FRAMES, 1));
	EXPECT_EQ(0, misplaced(&t));
	ASSERT_EQ(0, syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0));
	kt_close(&t);
}

TEST_F(numa, no_such_node)
{
	struct kt t;

	EXPECT_EQ(-EINVAL, empty_pool(&t, "none", 1 << 2, 0, 1));
	EXPECT_EQ(-EINVAL, empty_pool(&t, "none", 1 << 2 | 1, 0, 1));
	EXPECT_EQ(-EINVAL, empty_pool(&t, "none", 1ULL << 63, 0, 1));
	EXPECT_EQ(-EINVAL, empty_pool(&t, "none", 1ULL << 63,
				      KVMM_POOL_NODES_PREFER, 1));
	EXPECT_EQ(-EINVAL, empty_pool(&t, "none", 0, KVMM_POOL_NODES_PREFER,
				      1));
}

/* More than the node has: an error, and all that came is where it should be. */
TEST_F(numa, full)
{
	uint32_t frames = (node_free(1) + (64 << 20)) / KT_BLOCK, done = 0;
	struct kvmm_pool_stat st;
	struct kt t;

	ASSERT_EQ(0, empty_pool(&t, "full", 1 << 1, 0, frames));
	EXPECT_EQ(-ENOMEM, kt_populate(&t, 0, frames, &done));
	EXPECT_LT(FRAMES, done);
	EXPECT_GT(frames, done);
	ASSERT_EQ(0, kt_stat(&t, &st));
	EXPECT_EQ(done, st.frames_online);
	EXPECT_EQ(0, st.frames_misplaced);
	EXPECT_EQ(FRAMES * 16, pages_on(&t, done - FRAMES, done, 1));
	EXPECT_TRUE(kt_sigbus(t.arena + (size_t)done * KT_BLOCK, true));
	kt_close(&t);
}

/* The same where another node will do. */
TEST_F(numa, prefer_full)
{
	uint32_t frames = (node_free(1) + (64 << 20)) / KT_BLOCK, f;
	long long wrong = 0;
	char value[64];
	struct kt t;

	ASSERT_EQ(0, node_pool(&t, "prefer", 1 << 1, KVMM_POOL_NODES_PREFER,
			       frames));
	for (f = 0; f < frames; f++)
		wrong += pages_on(&t, f, f + 1, 1) != 16;
	EXPECT_LT(0, wrong);
	EXPECT_GT(frames, wrong);
	EXPECT_EQ(wrong, misplaced(&t));
	EXPECT_EQ(0, kt_file_get(KT_SYSFS "/pools/prefer/frames_misplaced",
				 value, sizeof(value)));
	EXPECT_EQ(wrong, atoll(value));
	kt_close(&t);
}

/* Both nodes were asked for, and one of them is full: no frame is misplaced. */
TEST_F(numa, in_turns_full)
{
	uint32_t frames = (node_free(1) - (16 << 20)) / KT_BLOCK;
	struct kt t, u;

	ASSERT_EQ(0, node_pool(&t, "most", 1 << 1, KVMM_POOL_NODES_PREFER,
			       frames));
	ASSERT_EQ(0, node_pool(&u, "rest", 3, 0, 2 * FRAMES));
	EXPECT_EQ(0, misplaced(&u));
	kt_close(&u);
	kt_close(&t);
}

/* Any client can set a policy by mbind(): what it leads to is seen. */
TEST_F(numa, mbind)
{
	unsigned long zero = 1 << 0, one = 1 << 1;
	struct kt t;

	ASSERT_EQ(0, empty_pool(&t, "bound", 1 << 1, 0, FRAMES));
	ASSERT_EQ(0, syscall(SYS_mbind, t.arena, t.arena_size, MPOL_BIND,
			     &zero, 64, 0));
	EXPECT_EQ(-ENOMEM, kt_populate(&t, 0, FRAMES, NULL));
	EXPECT_EQ(0, misplaced(&t));
	ASSERT_EQ(0, syscall(SYS_mbind, t.arena, t.arena_size, MPOL_BIND,
			     &one, 64, 0));
	EXPECT_EQ(0, kt_populate(&t, 0, FRAMES, NULL));
	/* what is there can't be moved away */
	syscall(SYS_mbind, t.arena, t.arena_size, MPOL_BIND, &zero, 64,
		MPOL_MF_MOVE | MPOL_MF_STRICT);
	EXPECT_EQ(FRAMES * 16, pages_on(&t, 0, FRAMES, 1));
	kt_close(&t);
	ASSERT_EQ(0, kt_destroy("bound", 0));

	ASSERT_EQ(0, empty_pool(&t, "bound", 1 << 1, KVMM_POOL_NODES_PREFER,
				FRAMES));
	ASSERT_EQ(0, syscall(SYS_mbind, t.arena, t.arena_size, MPOL_BIND,
			     &zero, 64, 0));
	EXPECT_EQ(0, kt_populate(&t, 0, FRAMES, NULL));
	EXPECT_EQ(FRAMES, misplaced(&t));
	kt_close(&t);
}

/* Workers are where the nodes are. */
TEST_F(numa, workers)
{
	struct kt t;
	int node;

	for (node = 0; node < 2; node++) {
		ASSERT_EQ(0, run_on(!node));
		ASSERT_EQ(0, empty_pool(&t, "crew", 1 << node, 0, FRAMES));
		ASSERT_EQ(0, populate_async(&t));
		EXPECT_EQ(FRAMES * 16, pages_on(&t, 0, FRAMES, node));
		kt_close(&t);
		ASSERT_EQ(0, kt_destroy("crew", 0));

		ASSERT_EQ(0, empty_pool(&t, "crew", 0, 0, FRAMES));
		ASSERT_EQ(0, populate_async(&t));
		EXPECT_EQ(FRAMES * 16, pages_on(&t, 0, FRAMES, !node));
		kt_close(&t);
		ASSERT_EQ(0, kt_destroy("crew", 0));
	}
}

static int in_cpuset(void *arg)
{
	struct kt *t = arg;
	int ret = kt_cgroup_join(GROUP);

	if (ret)
		return ret;
	/* none of the nodes asked for is allowed to who asks */
	ret = empty_pool(t, "strict", 1 << 1, 0, FRAMES);
	if (ret != -EINVAL)
		return ret ? ret : -EPROTO;
	/* made by someone else: allowed to him, not to who populates */
	ret = kt_join(t, "outer", 0);
	if (ret)
		return ret;
	ret = kt_populate(t, 0, FRAMES, NULL);
	kt_close(t);
	if (ret != -ENOMEM)
		return ret ? ret : -EPROTO;
	/* a preference is not an error, but it is seen what became of it */
	ret = node_pool(t, "moved", 1 << 1, KVMM_POOL_NODES_PREFER, FRAMES);
	if (ret)
		return ret;
	if (misplaced(t) != FRAMES ||
	    pages_on(t, 0, FRAMES, 0) != FRAMES * 16)
		return -EBADMSG;
	kt_close(t);
	/* nor do workers that run on another node take its memory */
	ret = run_on(1);
	if (!ret)
		ret = empty_pool(t, "crew", 0, 0, FRAMES);
	if (!ret)
		ret = populate_async(t);
	if (ret)
		return ret;
	return pages_on(t, 0, FRAMES, 0) == FRAMES * 16 ? 0 : -EBADE;
}

/* The kernel drops a policy whose nodes a cpuset forbids, and says nothing. */
TEST_F(numa, cpuset)
{
	struct kvmm_pool_stat st;
	struct kt t, u;

	if (kt_cgroup_make(GROUP))
		SKIP(return, "no cgroup v2");
	if (kt_cgroup_put(GROUP, "cpuset.mems", "0")) {
		kt_cgroup_end(GROUP);
		SKIP(return, "no cpuset controller");
	}
	ASSERT_EQ(0, empty_pool(&t, "outer", 1 << 1, 0, FRAMES));
	EXPECT_EQ(0, kt_child(in_cpuset, &u));
	ASSERT_EQ(0, kt_stat(&t, &st));
	EXPECT_EQ(0, st.frames_online);
	/* from outside it comes from where it should */
	EXPECT_EQ(0, kt_populate(&t, 0, FRAMES, NULL));
	EXPECT_EQ(FRAMES * 16, pages_on(&t, 0, FRAMES, 1));
	EXPECT_EQ(0, misplaced(&t));
	kt_close(&t);
	kt_wipe();
	EXPECT_EQ(0, kt_cgroup_end(GROUP));
}

/* ---- a machine of three nodes ---- */

FIXTURE(numa3) {
	int unused;
};

FIXTURE_SETUP(numa3)
{
	kt_wipe();
	if (access(NODE "2", F_OK))
		SKIP(_exit(255), "not a machine of three nodes");
}

FIXTURE_TEARDOWN(numa3)
{
	kt_wipe();
}

static long long pinned(void)
{
	struct kvmm_info info;

	return kt_info(&info) ? -1 : (long long)info.pinned_bytes;
}

/*
 * One of two that take turns is full: the kernel goes on where nobody has asked
 * for it, but there is room on the other.  Until both are full.
 */
TEST_F(numa3, turns_go_on)
{
	uint32_t frames = (node_free(1) - (16 << 20)) / KT_BLOCK, done = 0;
	struct kt t, u;

	ASSERT_EQ(0, node_pool(&t, "most", 1 << 1, KVMM_POOL_NODES_PREFER,
			       frames));
	ASSERT_EQ(0, node_pool(&u, "rest", 3, 0, 2 * FRAMES));
	EXPECT_EQ(0, misplaced(&u));
	EXPECT_EQ(0, pages_on(&u, 0, 2 * FRAMES, 2));
	/* most of it is on the one that has room */
	EXPECT_LE(FRAMES * 16, pages_on(&u, 0, 2 * FRAMES, 0));
	kt_close(&u);
	ASSERT_EQ(0, kt_destroy("rest", 0));

	frames = (node_free(0) + (64 << 20)) / KT_BLOCK;
	ASSERT_EQ(0, empty_pool(&u, "rest", 3, 0, frames));
	EXPECT_EQ(-ENOMEM, kt_populate(&u, 0, frames, &done));
	EXPECT_LT(FRAMES, done);
	EXPECT_GT(frames, done);
	EXPECT_EQ(0, pages_on(&u, done - FRAMES, done, 2));
	kt_close(&u);
	kt_close(&t);
	ASSERT_EQ(0, kt_destroy("rest", 0));
	ASSERT_EQ(0, kt_destroy("most", 0));
	EXPECT_EQ(0, pinned());
}

/*
 * The same where they are preferred: both are used up before any memory is
 * elsewhere, and then there is enough of it.
 */
TEST_F(numa3, prefer_both)
{
	uint32_t frames = (node_free(1) - (16 << 20)) / KT_BLOCK, f;
	long long wrong = 0;
	struct kt t, u;
	size_t had;

	ASSERT_EQ(0, node_pool(&t, "most", 1 << 1, KVMM_POOL_NODES_PREFER,
			       frames));
	ASSERT_EQ(0, node_pool(&u, "rest", 3, KVMM_POOL_NODES_PREFER,
			       2 * FRAMES));
	EXPECT_EQ(0, misplaced(&u));
	EXPECT_EQ(0, pages_on(&u, 0, 2 * FRAMES, 2));
	EXPECT_LE(FRAMES * 16, pages_on(&u, 0, 2 * FRAMES, 0));
	kt_close(&u);
	ASSERT_EQ(0, kt_destroy("rest", 0));

	had = node_free(0);
	frames = (had + (64 << 20)) / KT_BLOCK;
	ASSERT_EQ(0, node_pool(&u, "rest", 3, KVMM_POOL_NODES_PREFER, frames));
	for (f = 0; f < frames; f++)
		wrong += pages_on(&u, f, f + 1, 2) != 0;
	EXPECT_LT(0, wrong);
	/* but for what the kernel keeps for itself */
	EXPECT_GT(had / 4, node_free(0));
	EXPECT_EQ(wrong, misplaced(&u));
	kt_close(&u);
	kt_close(&t);
	ASSERT_EQ(0, kt_destroy("rest", 0));
	ASSERT_EQ(0, kt_destroy("most", 0));
	EXPECT_EQ(0, pinned());
}

KT_MAIN
