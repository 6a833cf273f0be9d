// SPDX-License-Identifier: MIT
/*
 * A swap area on a file system that fails under it: it is full, the disk below
 * it is full, it becomes read-only, it is shut down, the file is removed.  What
 * cannot be written stays in memory and says so, what cannot be read is a miss,
 * nobody waits for ever; and the file system can be unmounted afterwards.
 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "kt_harness.h"

#define FRAMES	16
#define SLOTS	32
#define N	8
#define IMAGE	"fsfail-image"
#define MEGABYTES 24

/* <linux/fs.h> and ext4's own header have no names for it in all versions */
#define SHUTDOWN		_IOR('X', 125, uint32_t)
#define SHUTDOWN_NOLOGFLUSH	2U

FIXTURE(fsfail) {
	struct kt t;
	struct kt_loop fs;	/* the area is on this one */
	struct kt_loop below;	/* which may be on this one */
	struct kvmm_block_ref refs[N];
	int fd;
};

/* A file of which no block has a place on the disk. */
static int sparse(struct kt_loop *l)
{
	int fd = kt_loop_file(l, "area", O_RDWR | O_CREAT | O_TRUNC);

	if (fd >= 0 && ftruncate(fd, SLOTS * (off_t)KT_BLOCK)) {
		close(fd);
		return -EIO;
	}
	return fd;
}

FIXTURE_SETUP(fsfail)
{
	char image[100];
	int ret;

	kt_wipe();
	ASSERT_NE(NULL, kt_disk_dir());
	snprintf(image, sizeof(image), "%s/" IMAGE, kt_disk_dir());
	ret = kt_loop(&self->fs, image, MEGABYTES, "errors=remount-ro");
	if (ret == -ENODEV)
		SKIP(_exit(255), "no loop device, or no mkfs.ext4");
	ASSERT_EQ(0, ret);
	self->fd = sparse(&self->fs);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, SLOTS));
	ASSERT_EQ(0, kt_store(&self->t, 1, N, self->refs));
}

/* Nothing of the file system is in use once the pool is gone. */
FIXTURE_TEARDOWN(fsfail)
{
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->fd);
	EXPECT_EQ(0, kt_loop_end(&self->fs));
	EXPECT_EQ(0, kt_loop_end(&self->below));
}

static int attach(FIXTURE_DATA(fsfail) *self)
{
	return kt_attach(&self->t, self->fd, 0, 0, 0, NULL);
}

/* Moves @n blocks from the @from-th on out of memory; how many went. */
static int out(FIXTURE_DATA(fsfail) *self, int from, int n)
{
	return kt_swap(&self->t, KVMM_SWAP_OUT, self->refs + from, n,
		       KVMM_SWAP_DROP);
}

/*
 * Writes fail from now on, reads where @gone.  Half of the blocks are out, and
 * the others shall go; then there is no room for more.
 */
static void failing(struct __test_metadata *_metadata,
		    FIXTURE_DATA(fsfail) *self, bool gone)
{
	struct kvmm_block_ref ref;
	struct kvmm_pool_stat st;
	int i, left = gone ? N / 2 : N;

	EXPECT_EQ(0, out(self, N / 2, N / 2));
	for (i = N / 2; i < N; i++) {
		EXPECT_EQ(-EIO, self->refs[i].result);
		EXPECT_EQ(KVMM_RESIDENT, kt_query1(&self->t,
						   self->refs[i].handle));
	}
	st = kt_stat_of(&self->t);
	EXPECT_EQ(1, st.degraded);
	EXPECT_LT(0, st.write_errors);
	EXPECT_EQ(0, st.pins);
	/* a hit is right, the others are misses */
	EXPECT_EQ(left, kt_load_all(&self->t, 1, N));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(gone ? N / 2 : 0, st.read_errors);
	EXPECT_EQ(0, st.checksum_errors);
	/* the pool is of use all the same, as one without an area */
	EXPECT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	for (i = 0; i < 2 * FRAMES; i++) {
		EXPECT_EQ(0, kt_store(&self->t, 100 + i, 1, &ref)) {
			TH_LOG("block %d", i);
		}
		EXPECT_EQ(1, kt_load(&self->t, 100 + i));
	}
	EXPECT_EQ(0, kt_stat_of(&self->t).pins);
}

/* With a good file system below it all is well again. */
static void good(struct __test_metadata *_metadata, FIXTURE_DATA(fsfail) *self)
{
	ASSERT_EQ(0, attach(self));
	EXPECT_EQ(0, kt_stat_of(&self->t).degraded);
	ASSERT_EQ(0, kt_reset(&self->t, NULL));
	ASSERT_EQ(0, kt_store(&self->t, 200, N, self->refs));
	EXPECT_EQ(N, out(self, 0, N));
	EXPECT_EQ(N, kt_load_all(&self->t, 200, N));
}

/* No place for as much as the block that an area is tried with. */
TEST_F(fsfail, full_at_attach)
{
	ASSERT_EQ(0, kt_loop_fill(&self->fs));
	EXPECT_EQ(-ENOSPC, attach(self));
	EXPECT_EQ(0, kt_stat_of(&self->t).nr_slots);
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	kt_loop_empty(&self->fs);
	good(_metadata, self);
}

TEST_F(fsfail, full_later)
{
	ASSERT_EQ(0, attach(self));
	ASSERT_EQ(N / 2, out(self, 0, N / 2));
	ASSERT_EQ(0, kt_loop_fill(&self->fs));
	failing(_metadata, self, false);
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	kt_loop_empty(&self->fs);
	good(_metadata, self);
}

/* Its disk is a file, and there is no room for that to grow. */
TEST_F(fsfail, full_below)
{
	char image[128];

	close(self->fd);
	self->below = self->fs;
	memset(&self->fs, 0, sizeof(self->fs));
	snprintf(image, sizeof(image), "%s/inner", self->below.dir);
	ASSERT_EQ(0, kt_loop(&self->fs, image, MEGABYTES / 2, NULL));
	self->fd = sparse(&self->fs);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, attach(self));
	ASSERT_EQ(N / 2, out(self, 0, N / 2));
	sync();
	ASSERT_EQ(0, kt_loop_fill(&self->below));
	failing(_metadata, self, false);
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
}

/* Nobody can make it read-only while it has an area. */
TEST_F(fsfail, held)
{
	unsigned long flags = MS_REMOUNT | MS_RDONLY;

	ASSERT_EQ(0, attach(self));
	close(self->fd);
	self->fd = -1;
	EXPECT_EQ(-1, mount(NULL, self->fs.dir, NULL, flags, NULL));
	EXPECT_EQ(EBUSY, errno);
	EXPECT_EQ(-1, umount(self->fs.dir));
	EXPECT_EQ(EBUSY, errno);
	ASSERT_EQ(N, out(self, 0, N));
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	EXPECT_EQ(0, mount(NULL, self->fs.dir, NULL, flags, NULL));
}

/*
 * It makes itself read-only: there is an error on the disk.  Some kernels then
 * shut it down.
 */
TEST_F(fsfail, read_only)
{
	char path[128];
	int ret;

	ASSERT_EQ(0, attach(self));
	ASSERT_EQ(N / 2, out(self, 0, N / 2));
	snprintf(path, sizeof(path), "/sys/fs/ext4/%s/trigger_fs_error",
		 self->fs.dev);
	ASSERT_EQ(0, kt_file_put(path, "1"));
	ret = kt_loop_file(&self->fs, "new", O_RDWR | O_CREAT);
	ASSERT_TRUE(ret == -EROFS || ret == -EIO) {
		TH_LOG("%d", ret);
	}
	failing(_metadata, self, ret == -EIO);
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	/* a block that has its place is tried: an area is one or is not */
	if (!attach(self))
		ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	EXPECT_EQ(0, kt_stat_of(&self->t).nr_slots);
}

/* It is shut down: neither reads nor writes. */
TEST_F(fsfail, shut_down)
{
	uint32_t how = SHUTDOWN_NOLOGFLUSH;

	ASSERT_EQ(0, attach(self));
	ASSERT_EQ(N / 2, out(self, 0, N / 2));
	ASSERT_EQ(0, ioctl(self->fd, SHUTDOWN, &how));
	failing(_metadata, self, true);
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	EXPECT_EQ(-EIO, attach(self));
}

/* The pool is destroyed with an area that fails. */
TEST_F(fsfail, shut_down_and_destroyed)
{
	uint32_t how = SHUTDOWN_NOLOGFLUSH;

	ASSERT_EQ(0, attach(self));
	ASSERT_EQ(N / 2, out(self, 0, N / 2));
	ASSERT_EQ(0, ioctl(self->fd, SHUTDOWN, &how));
	EXPECT_EQ(0, out(self, N / 2, N / 2));
}

/* An area has no need of a name, and its space comes back with its end. */
TEST_F(fsfail, removed)
{
	char path[128];
	struct statvfs before, after;

	ASSERT_EQ(0, statvfs(self->fs.dir, &before));
	ASSERT_EQ(0, attach(self));
	close(self->fd);
	self->fd = -1;
	snprintf(path, sizeof(path), "%s/area", self->fs.dir);
	ASSERT_EQ(0, unlink(path));
	ASSERT_EQ(N, out(self, 0, N));
	EXPECT_EQ(N, kt_load_all(&self->t, 1, N));
	ASSERT_EQ(0, statvfs(self->fs.dir, &after));
	EXPECT_GT(before.f_bfree, after.f_bfree);
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	ASSERT_EQ(0, statvfs(self->fs.dir, &after));
	EXPECT_LE(before.f_bfree, after.f_bfree);
}

KT_MAIN
