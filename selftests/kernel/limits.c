// SPDX-License-Identifier: MIT
/*
 * Limits from outside: the module's parameters.  Whoever runs into one gets an
 * error and keeps what was there.
 */
#include <fcntl.h>

#include "kt_harness.h"

#define PARAM	"/sys/module/kvmm/parameters/"

FIXTURE(limits) {
	char max_pools[32], max_bytes[32];	/* as they were */
};

FIXTURE_SETUP(limits)
{
	kt_wipe();
	ASSERT_EQ(0, kt_file_get(PARAM "max_pools", self->max_pools, 32));
	ASSERT_EQ(0, kt_file_get(PARAM "max_bytes", self->max_bytes, 32));
}

FIXTURE_TEARDOWN(limits)
{
	struct kvmm_info info;

	EXPECT_EQ(0, kt_file_put(PARAM "max_pools", self->max_pools));
	EXPECT_EQ(0, kt_file_put(PARAM "max_bytes", self->max_bytes));
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

	ASSERT_EQ(0, kt_file_put(PARAM "max_pools", "10"));
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
	ASSERT_EQ(0, kt_file_put(PARAM "max_bytes", "10485760"));
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
	ASSERT_EQ(0, kt_file_put(PARAM "max_bytes", "0"));
	EXPECT_EQ(0, kt_populate(&t, 0, 256, &done));
	EXPECT_EQ(256, done);
	EXPECT_EQ((int)had, kt_load_all(&t, 1, had));
	kt_close(&t);
}

KT_MAIN
