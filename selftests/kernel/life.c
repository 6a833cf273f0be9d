// SPDX-License-Identifier: MIT
/*
 * Life of the module: it can't be unloaded while a pool or an open file needs
 * it, leaves nothing behind when it is, and can be loaded again.  KVMM_KO names
 * the module's file.  Runs last: it takes the device away for a moment.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "kt_harness.h"

static const char *module_file(void)
{
	const char *file = getenv("KVMM_KO");

	return file && !access(file, R_OK) ? file : NULL;
}

static int unload(void)
{
	return syscall(SYS_delete_module, "kvmm", O_NONBLOCK) ? -errno : 0;
}

static int load(const char *args)
{
	int fd = open(module_file(), O_RDONLY | O_CLOEXEC), i, ret;

	if (fd < 0)
		return -errno;
	ret = syscall(SYS_finit_module, fd, args, 0) ? -errno : 0;
	close(fd);
	/* the device node appears a moment later */
	for (i = 0; !ret && i < 1000 && access(KT_DEVICE, F_OK); i++)
		kt_sleep_ms(1);
	return ret;
}

static bool loaded(void)
{
	return !access("/sys/module/kvmm", F_OK);
}

FIXTURE(life) {
	int unused;
};

FIXTURE_SETUP(life)
{
	kt_wipe();
	ASSERT_NE(NULL, module_file()) {
		TH_LOG("KVMM_KO does not name the module");
	}
	ASSERT_EQ(0, geteuid());
}

/* Whatever happened: the next program finds the module. */
FIXTURE_TEARDOWN(life)
{
	if (!loaded())
		EXPECT_EQ(0, load(""));
}

TEST_F(life, held_by_pool)
{
	struct kt t;

	ASSERT_EQ(0, kt_create(&t, 4096, 64, 0));
	EXPECT_GT(0, unload());
	/* nobody has it open or mapped; it exists */
	kt_close(&t);
	EXPECT_GT(0, unload());
	EXPECT_TRUE(loaded());
	EXPECT_EQ(0, kt_destroy(t.name, 0));
}

TEST_F(life, held_by_file)
{
	int fd = kt_dev(O_RDONLY);

	ASSERT_LE(0, fd);
	EXPECT_GT(0, unload());
	close(fd);
	EXPECT_TRUE(loaded());
}

/* A mapping of a pool that is gone needs nothing of the module. */
TEST_F(life, mapping_outlives)
{
	struct kt t;

	ASSERT_EQ(0, kt_create(&t, 4096, 64, 0));
	ASSERT_EQ(0, kt_destroy(t.name, KVMM_POOL_FORCE));
	close(t.fd);
	t.fd = -1;
	ASSERT_EQ(0, unload());
	EXPECT_FALSE(loaded());
	EXPECT_TRUE(kt_sigbus(t.arena, true));
	munmap(t.arena, t.arena_size);
	ASSERT_EQ(0, load(""));
}

TEST_F(life, again_and_again)
{
	struct kvmm_block_ref refs[16];
	struct kvmm_info info;
	struct kt t;
	int i, area;

	for (i = 0; i < 5; i++) {
		ASSERT_EQ(0, kt_info(&info));
		EXPECT_EQ(0, info.nr_pools);
		EXPECT_EQ(0, info.pinned_bytes);
		ASSERT_EQ(0, kt_create(&t, KT_BLOCK, 16, 16));
		if (kt_disk_dir()) {
			area = kt_area_file("life", KT_BLOCK, 16);
			ASSERT_LE(0, area);
			ASSERT_EQ(0, kt_attach(&t, area, 0, 0, 0, NULL));
			close(area);
		}
		ASSERT_EQ(0, kt_store(&t, 1, 16, refs));
		ASSERT_EQ(0, kt_reclaim(&t, kt_disk_dir() ? 0 : 16, NULL));
		EXPECT_EQ(16, kt_load_all(&t, 1, 16));
		KT_FINISH(&t);
		ASSERT_EQ(0, unload());
		EXPECT_NE(0, access(KT_DEVICE, F_OK));
		EXPECT_NE(0, access(KT_SYSFS, F_OK));
		ASSERT_EQ(0, load(""));
	}
	if (kt_disk_dir())
		kt_area_unlink("life");
}

KT_MAIN
