// SPDX-License-Identifier: MIT
/*
 * Limits from outside: the module's parameters.  Whoever runs into one gets an
 * error and keeps what was there.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "kt_harness.h"

#define PARAM	"/sys/module/kvmm/parameters/"

#define MIB	(1U << 20)
#define USER	1000

static const char *const params[] = {
	"max_pools", "max_bytes", "max_user_bytes", "max_user_pools",
	"create_gid",
};

#define NR_PARAMS	(sizeof(params) / sizeof(params[0]))

FIXTURE(limits) {
	char was[NR_PARAMS][32];
	struct stat dev;
};

static int set(const char *param, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), PARAM "%s", param);
	return kt_file_put(path, value);
}

FIXTURE_SETUP(limits)
{
	char path[128];
	size_t i;

	kt_wipe();
	ASSERT_EQ(0, stat(KT_DEVICE, &self->dev));
	ASSERT_EQ(0, chmod(KT_DEVICE, 0666));
	for (i = 0; i < NR_PARAMS; i++) {
		snprintf(path, sizeof(path), PARAM "%s", params[i]);
		ASSERT_EQ(0, kt_file_get(path, self->was[i], 32));
	}
}

FIXTURE_TEARDOWN(limits)
{
	struct kvmm_info info;
	size_t i;

	chmod(KT_DEVICE, self->dev.st_mode & 07777);
	for (i = 0; i < NR_PARAMS; i++)
		EXPECT_EQ(0, set(params[i], self->was[i]));
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

	ASSERT_EQ(0, set("max_pools", "10"));
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

static int make(const struct kvmm_pool_create *spec)
{
	struct kvmm_pool_create arg = *spec;
	int fd = kt_dev(O_RDWR);
	int ret = fd < 0 ? fd : kt_ioctl(fd, KVMM_POOL_CREATE, &arg);

	close(fd);
	return ret;
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

	ASSERT_EQ(0, kt_create(&t, KT_BLOCK, 64, 0));
	/* 4 MiB are in use: 6 more, of the 16 that are wanted */
	ASSERT_EQ(0, set("max_bytes", "10485760"));
	EXPECT_EQ(-ENOMEM, make(&spec));
	/* what failed to come in did not stay */
	ASSERT_EQ(0, kt_info(&info));
	EXPECT_EQ(1, info.nr_pools);
	EXPECT_EQ(4 << 20, info.pinned_bytes);

	t = (struct kt) { .fd = kt_dev(O_RDWR), .block_size = KT_BLOCK,
			  .nr_frames = 256 };
	/* there was room for it when it was made */
	ASSERT_EQ(0, set("max_bytes", "0"));
	ASSERT_EQ(0, kt_ioctl(t.fd, KVMM_POOL_CREATE, &spec));
	ASSERT_EQ(0, set("max_bytes", "10485760"));
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
	ASSERT_EQ(0, set("max_bytes", "0"));
	EXPECT_EQ(0, kt_populate(&t, 0, 256, &done));
	EXPECT_EQ(256, done);
	EXPECT_EQ((int)had, kt_load_all(&t, 1, had));
	kt_close(&t);
}

/* Without a number it is a share of the machine's memory. */
TEST_F(limits, share_of_memory)
{
	struct kvmm_pool_create spec = kt_spec("share", 2 * MIB, 1, 0);
	unsigned long long total, max;
	char value[64];

	total = kt_file_field("/proc/meminfo", "MemTotal:") << 10;
	ASSERT_EQ(0, set("max_bytes", "0"));
	ASSERT_EQ(0, kt_file_get(KT_SYSFS "/max_bytes", value, 64));
	max = strtoull(value, NULL, 0);
	EXPECT_LE(total / 100 * 79, max);
	EXPECT_GE(total / 100 * 81, max);
	/* refused when it is made, not when there is no memory for anyone */
	spec.nr_frames = max / (2 * MIB) + 1;
	EXPECT_EQ(-ENOMEM, make(&spec));
	spec.nr_frames = max / (2 * MIB);
	EXPECT_EQ(0, make(&spec));
	EXPECT_EQ(0, kt_destroy("share", 0));
	ASSERT_EQ(0, set("max_bytes", "12345678"));
	ASSERT_EQ(0, kt_file_get(KT_SYSFS "/max_bytes", value, 64));
	EXPECT_STREQ("12345678", value);
	ASSERT_EQ(0, set("max_bytes", "18446744073709551615"));
	spec.nr_frames = total / (2 * MIB) + 1;
	EXPECT_EQ(0, make(&spec));
}

struct wanted {
	const char *name;
	uint32_t frames;	/* of 64 KiB */
	bool populate;
};

static int user_makes(void *arg)
{
	const struct wanted *w = arg;
	struct kvmm_pool_create spec = kt_spec(w->name, KT_BLOCK, w->frames,
					       0);
	struct kt t;

	spec.mode = 0666;
	return w->populate ? kt_create_spec(&t, &spec) : make(&spec);
}

static int as_user(uid_t uid, const char *name, uint32_t frames, bool populate)
{
	struct wanted w = { name, frames, populate };

	return kt_child_as(uid, USER, 0, user_makes, &w);
}

/* What the pools of a user hold, whoever brings it in. */
TEST_F(limits, user_bytes)
{
	struct wanted w = { "root", 256, true };
	struct kvmm_pool_stat st;
	uint32_t done = 0;
	struct kt t;

	ASSERT_EQ(0, set("create_gid", "1000"));
	ASSERT_EQ(0, set("max_user_bytes", "8388608"));	/* 128 frames */
	EXPECT_EQ(-ENOMEM, as_user(USER, "more", 129, false));
	ASSERT_EQ(0, as_user(USER, "late", 128, false));
	ASSERT_EQ(0, as_user(USER, "first", 96, true));
	EXPECT_EQ(-ENOMEM, as_user(USER, "more", 33, false));
	ASSERT_EQ(0, as_user(USER, "small", 16, true));
	/* root can't bring in for him what he may not have */
	ASSERT_EQ(0, kt_join(&t, "late", 0));
	EXPECT_EQ(-ENOMEM, kt_populate(&t, 0, 128, &done));
	EXPECT_EQ(0, done);
	EXPECT_EQ(0, kt_populate(&t, 0, 16, NULL));
	EXPECT_EQ(-ENOMEM, kt_populate(&t, 16, 1, NULL));
	/* another user has a limit of his own, root has none */
	EXPECT_EQ(0, as_user(USER + 1, "other", 128, true));
	EXPECT_EQ(0, user_makes(&w));
	/* what is given back can be had again */
	ASSERT_EQ(0, kt_destroy("first", 0));
	EXPECT_EQ(0, kt_populate(&t, 16, 16, NULL));
	EXPECT_EQ(0, kt_populate(&t, 32, 80, NULL));
	EXPECT_EQ(-ENOMEM, kt_populate(&t, 112, 1, NULL));
	ASSERT_EQ(0, set("max_user_bytes", "0"));
	EXPECT_EQ(0, kt_populate(&t, 0, 128, NULL));
	ASSERT_EQ(0, kt_stat(&t, &st));
	EXPECT_EQ(128, st.frames_online);
	kt_close(&t);
}

TEST_F(limits, user_pools)
{
	struct wanted w[] = { { "r0", 1, false }, { "r1", 1, false },
			      { "r2", 1, false } };
	int i;

	ASSERT_EQ(0, set("create_gid", "1000"));
	ASSERT_EQ(0, set("max_user_pools", "2"));
	EXPECT_EQ(0, as_user(USER, "u0", 1, false));
	EXPECT_EQ(0, as_user(USER, "u1", 1, false));
	EXPECT_EQ(-EUSERS, as_user(USER, "u2", 1, false));
	EXPECT_EQ(0, as_user(USER + 1, "v0", 1, false));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, user_makes(&w[i]));
	/* one that failed, or is gone, does not count */
	EXPECT_EQ(0, kt_destroy("u0", 0));
	EXPECT_EQ(-EEXIST, as_user(USER, "u1", 1, false));
	EXPECT_EQ(0, as_user(USER, "u2", 1, false));
	EXPECT_EQ(-EUSERS, as_user(USER, "u3", 1, false));
}

KT_MAIN
