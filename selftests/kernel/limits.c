// SPDX-License-Identifier: MIT
/*
 * Limits from outside: the module's parameters and memory cgroups.  Whoever
 * runs into one gets an error, keeps what was there, and is not killed.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "kt_harness.h"

#define PARAM	"/sys/module/kvmm/parameters/"
#define CGROUP	"/sys/fs/cgroup/kvmm-test"

FIXTURE(limits) {
	char max_pools[32], max_bytes[32];	/* as they were */
};

static int get(const char *path, char *value, size_t size)
{
	int fd = open(path, O_RDONLY);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, value, size - 1);
	close(fd);
	if (n < 0)
		return -errno;
	value[n] = 0;
	value[strcspn(value, "\n")] = 0;
	return 0;
}

static int put(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

FIXTURE_SETUP(limits)
{
	kt_wipe();
	ASSERT_EQ(0, get(PARAM "max_pools", self->max_pools, 32));
	ASSERT_EQ(0, get(PARAM "max_bytes", self->max_bytes, 32));
}

FIXTURE_TEARDOWN(limits)
{
	struct kvmm_info info;

	EXPECT_EQ(0, put(PARAM "max_pools", self->max_pools));
	EXPECT_EQ(0, put(PARAM "max_bytes", self->max_bytes));
	kt_wipe();
	EXPECT_EQ(0, kt_info(&info));
	EXPECT_EQ(0, info.nr_pools);
	EXPECT_EQ(0, info.pinned_bytes);
}

TEST_F(limits, pools)
{
	struct kvmm_pool_create spec;
	struct kvmm_pool_entry list[16];
	char name[16];
	int n, ret, fd;

	ASSERT_EQ(0, put(PARAM "max_pools", "10"));
	for (n = 0; n <= KVMM_MAX_POOLS; n++) {
		snprintf(name, sizeof(name), "p%d", n);
		spec = kt_spec(name, 4096, 1, 0);
		fd = kt_dev(O_RDWR);
		ASSERT_LE(0, fd);
		ret = kt_ioctl(fd, KVMM_POOL_CREATE, &spec);
		close(fd);
		if (ret)
			break;
	}
	EXPECT_EQ(-EUSERS, ret);
	EXPECT_EQ(10, n);
	EXPECT_EQ(10, kt_list(list, 16));
	/* with one fewer there is room for one more */
	EXPECT_EQ(0, kt_destroy("p3", 0));
	fd = kt_dev(O_RDWR);
	spec = kt_spec("more", 4096, 1, 0);
	EXPECT_EQ(0, kt_ioctl(fd, KVMM_POOL_CREATE, &spec));
	close(fd);
}

/* Memory of all pools together: what does not fit is not had, and said. */
TEST_F(limits, bytes)
{
	struct kvmm_pool_create spec = kt_spec("limited", KT_BLOCK, 256, 0);
	struct kvmm_block_ref refs[256];
	struct kvmm_pool_stat st;
	struct kvmm_info info;
	uint32_t done = 0, had;
	struct kt t;
	int ret;

	ASSERT_EQ(0, kt_create(&t, KT_BLOCK, 64, 0));
	/* 4 MiB are in use: 6 more, of the 16 that are wanted */
	ASSERT_EQ(0, put(PARAM "max_bytes", "10485760"));
	ret = kt_create_spec(&t, &spec);
	EXPECT_EQ(-ENOMEM, ret);
	/* what failed to come in did not stay */
	ASSERT_EQ(0, kt_info(&info));
	EXPECT_EQ(1, info.nr_pools);
	EXPECT_EQ(4 << 20, info.pinned_bytes);

	t = (struct kt) { .fd = kt_dev(O_RDWR), .block_size = KT_BLOCK,
			  .nr_frames = 256 };
	spec = kt_spec("limited", KT_BLOCK, 256, 0);
	ASSERT_EQ(0, kt_ioctl(t.fd, KVMM_POOL_CREATE, &spec));
	EXPECT_EQ(-ENOMEM, kt_populate(&t, 0, 256, &done));
	ASSERT_EQ(0, kt_stat(&t, &st));
	EXPECT_EQ(done, st.frames_online);
	EXPECT_GE(96, done);
	EXPECT_LE(64, done);
	ASSERT_EQ(0, kt_info(&info));
	EXPECT_GE(10 << 20, info.pinned_bytes);
	/* what is there works */
	t.arena_size = 256UL * KT_BLOCK;
	t.arena = mmap(NULL, t.arena_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		       t.fd, 0);
	ASSERT_NE(MAP_FAILED, (void *)t.arena);
	had = done;
	ASSERT_EQ(0, kt_store(&t, 1, had, refs));
	EXPECT_EQ((int)had, kt_load_all(&t, 1, had));
	/* and with the limit lifted, so does the rest */
	ASSERT_EQ(0, put(PARAM "max_bytes", "0"));
	EXPECT_EQ(0, kt_populate(&t, 0, 256, &done));
	EXPECT_EQ(256, done);
	EXPECT_EQ((int)had, kt_load_all(&t, 1, had));
	kt_close(&t);
}

/* In a cgroup with less memory than the pool wants. */
static int too_big_for_cgroup(void *arg)
{
	struct kvmm_pool_create spec = kt_spec("grouped", KT_BLOCK, 1024, 0);
	struct kvmm_block_ref refs[32];
	struct kvmm_pool_stat st;
	uint32_t done = 0;
	struct kt t = { .fd = kt_dev(O_RDWR), .block_size = KT_BLOCK,
			.nr_frames = 1024 };
	int ret;

	(void)arg;
	ret = put(CGROUP "/cgroup.procs", "0");
	if (!ret)
		ret = kt_ioctl(t.fd, KVMM_POOL_CREATE, &spec);
	if (ret)
		return ret;
	ret = kt_populate(&t, 0, 1024, &done);
	if (ret != -ENOMEM)
		return ret ? ret : -EPROTO;
	if (kt_stat(&t, &st) || st.frames_online != done || done < 32)
		return -EPROTO;
	t.arena_size = 1024UL * KT_BLOCK;
	t.arena = mmap(NULL, t.arena_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		       t.fd, 0);
	if (t.arena == MAP_FAILED)
		return -errno;
	ret = kt_store(&t, 1, 32, refs);
	if (ret)
		return ret;
	return kt_load_all(&t, 1, 32) == 32 ? 0 : -EBADMSG;
}

static long long event(const char *name)
{
	char text[512], *at;
	int fd = open(CGROUP "/memory.events", O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return -1;
	text[n] = 0;
	at = strstr(text, name);
	return at ? atoll(at + strlen(name)) : -1;
}

TEST_F(limits, cgroup)
{
	char used[32];

	if (mkdir(CGROUP, 0755) && errno != EEXIST)
		SKIP(return, "no cgroup v2");
	if (put(CGROUP "/memory.max", "25165824")) {
		rmdir(CGROUP);
		SKIP(return, "no memory controller");
	}
	EXPECT_EQ(0, kt_child(too_big_for_cgroup, NULL));
	EXPECT_EQ(0, event("oom_kill "));
	/* charged to who brought it in, until the pool is gone */
	ASSERT_EQ(0, get(CGROUP "/memory.current", used, sizeof(used)));
	EXPECT_LE(32 * KT_BLOCK, atoll(used));
	EXPECT_EQ(0, kt_destroy("grouped", 0));
	ASSERT_EQ(0, get(CGROUP "/memory.current", used, sizeof(used)));
	EXPECT_GT(16 * KT_BLOCK, atoll(used));
	EXPECT_EQ(0, rmdir(CGROUP));
}

KT_MAIN
