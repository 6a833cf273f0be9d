// SPDX-License-Identifier: MIT
/*
 * Swap areas: what can be one, and what becomes of the blocks when it is
 * scribbled over, cut off, full, or fails.  The answer is always a miss, or an
 * error, and never wrong bytes.
 */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "kt_harness.h"

#define FRAMES	16
#define SLOTS	32
#define AREA	"area"
#define BYTES	(SLOTS * (uint64_t)KT_BLOCK)

FIXTURE(area) {
	struct kt t;
	int fd;			/* a good file */
};

FIXTURE_SETUP(area)
{
	kt_wipe();
	ASSERT_NE(NULL, kt_disk_dir());
	self->fd = kt_area_file(AREA, KT_BLOCK, SLOTS);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, SLOTS));
}

FIXTURE_TEARDOWN(area)
{
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->fd);
	kt_area_unlink(AREA);
}

static int attach(struct kt *t, int fd)
{
	return kt_attach(t, fd, 0, 0, 0, NULL);
}

static int open_in_dir(const char *name, int flags)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", kt_disk_dir(), name);
	return open(path, flags | O_CLOEXEC, 0600);
}

/* Tries @fd as an area, which must give @must, and closes it. */
#define NO_AREA(must, open_it) do {					\
	int fd_ = open_it;						\
									\
	ASSERT_LE(0, fd_) {						\
		TH_LOG("%s", #open_it);					\
	}								\
	EXPECT_EQ(must, attach(&self->t, fd_)) {			\
		TH_LOG("%s", #open_it);					\
	}								\
	close(fd_);							\
} while (0)

static int pipe_end(void)
{
	int fds[2];

	if (pipe(fds))
		return -1;
	close(fds[0]);
	return fds[1];
}

static int tmpfs_file(void)
{
	int fd = open("/dev/shm/area", O_RDWR | O_CREAT, 0600);

	unlink("/dev/shm/area");
	return ftruncate(fd, BYTES) ? -1 : fd;
}

static int memfd(void)
{
	int fd = memfd_create("area", MFD_CLOEXEC);

	return ftruncate(fd, BYTES) ? -1 : fd;
}

static int empty_file(void)
{
	return open_in_dir("empty", O_RDWR | O_CREAT | O_TRUNC);
}

static int small_file(uint64_t bytes)
{
	int fd = empty_file();

	return ftruncate(fd, bytes) ? -1 : fd;
}

TEST_F(area, not_an_area)
{
	EXPECT_EQ(-EBADF, attach(&self->t, -1));
	EXPECT_EQ(-EBADF, attach(&self->t, 12345));
	NO_AREA(-EBADF, pipe_end());
	NO_AREA(-EINVAL, socket(AF_UNIX, SOCK_STREAM, 0));
	NO_AREA(-EINVAL, open("/dev/zero", O_RDWR));
	NO_AREA(-EINVAL, kt_dev(O_RDWR));
	NO_AREA(-EBADF, open_in_dir(".", O_RDONLY | O_DIRECTORY));
	NO_AREA(-EBADF, open_in_dir(AREA, O_RDONLY));
	NO_AREA(-EBADF, open_in_dir(AREA, O_WRONLY));
	NO_AREA(-EBADF, open_in_dir(AREA, O_PATH));
	NO_AREA(-EOPNOTSUPP, tmpfs_file());
	NO_AREA(-EOPNOTSUPP, memfd());
	NO_AREA(-ENOSPC, empty_file());
	NO_AREA(-ENOSPC, small_file(KT_BLOCK - 1));
	EXPECT_EQ(0, kt_stat_of(&self->t).nr_slots);
	/* none of them left the pool, or the file, in use */
	EXPECT_EQ(0, attach(&self->t, self->fd));
	EXPECT_EQ(SLOTS, kt_stat_of(&self->t).nr_slots);
	kt_area_unlink("empty");
}

TEST_F(area, geometry)
{
	uint32_t got = 0;
	int fd;

	EXPECT_EQ(-EINVAL, kt_attach(&self->t, self->fd, 0, 512, 0, NULL));
	EXPECT_EQ(-EINVAL, kt_attach(&self->t, self->fd, 0, 4096, 0, NULL));
	EXPECT_EQ(-EINVAL, kt_attach(&self->t, self->fd, 0, KT_BLOCK + 1, 0,
				     NULL));
	EXPECT_EQ(-ENOSPC, kt_attach(&self->t, self->fd, 0, BYTES, 0, NULL));
	EXPECT_EQ(-ENOSPC, kt_attach(&self->t, self->fd, 0, BYTES * 2, 0,
				     NULL));
	EXPECT_GT(0, kt_attach(&self->t, self->fd, 0, 1ULL << 63, 0, NULL));
	EXPECT_GT(0, kt_attach(&self->t, self->fd, 0, -(uint64_t)KT_BLOCK, 0,
			       NULL));
	/* as many as were asked for */
	EXPECT_EQ(0, kt_attach(&self->t, self->fd, 5, 0, 0, &got));
	EXPECT_EQ(5, got);
	EXPECT_EQ(5, kt_stat_of(&self->t).nr_slots);
	EXPECT_EQ(-EBUSY, attach(&self->t, self->fd));
	EXPECT_EQ(0, kt_detach(&self->t, 0));
	/* as many as fit behind the offset */
	EXPECT_EQ(0, kt_attach(&self->t, self->fd, 0, 30 * KT_BLOCK, 0, &got));
	EXPECT_EQ(2, got);
	EXPECT_EQ(0, kt_detach(&self->t, 0));
	/* a partial block at the end is no slot */
	fd = small_file(3 * KT_BLOCK + 4096);
	EXPECT_EQ(0, kt_attach(&self->t, fd, 0, 0, 0, &got));
	EXPECT_EQ(3, got);
	EXPECT_EQ(0, kt_detach(&self->t, 0));
	close(fd);
	/* no more than the pool has room for */
	fd = small_file(BYTES * 2);
	EXPECT_EQ(0, kt_attach(&self->t, fd, 0, 0, 0, &got));
	EXPECT_EQ(SLOTS, got);
	EXPECT_EQ(0, kt_detach(&self->t, 0));
	close(fd);
	kt_area_unlink("empty");
}

/* One area serves one pool, whatever name or offset it is given under. */
TEST_F(area, claimed)
{
	struct kvmm_pool_create spec = kt_spec("rival", KT_BLOCK, 4, 4);
	struct kt u;
	int fd;

	ASSERT_EQ(0, kt_create_spec(&u, &spec));
	ASSERT_EQ(0, kt_attach(&self->t, self->fd, 8, 0, 0, NULL));
	EXPECT_EQ(-EBUSY, attach(&u, self->fd));
	fd = open_in_dir(AREA, O_RDWR);
	EXPECT_EQ(-EBUSY, kt_attach(&u, fd, 0, 16 * KT_BLOCK, 0, NULL));
	close(fd);
	EXPECT_EQ(0, kt_detach(&self->t, 0));
	EXPECT_EQ(0, attach(&u, self->fd));
	EXPECT_EQ(-EBUSY, attach(&self->t, self->fd));
	/* the end of the pool lets go of it */
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("rival", 0));
	EXPECT_EQ(0, attach(&self->t, self->fd));
}

TEST_F(area, disk_claimed)
{
	struct kvmm_pool_create spec = kt_spec("rival", KT_BLOCK, 4, 4);
	struct kt u;
	int fd, excl;

	if (!kt_disk_dev())
		SKIP(return, "no spare disk");
	fd = open(kt_disk_dev(), O_RDWR);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, kt_create_spec(&u, &spec));
	/* in use by somebody else */
	excl = open(kt_disk_dev(), O_RDWR | O_EXCL);
	ASSERT_LE(0, excl);
	EXPECT_EQ(-EBUSY, attach(&self->t, fd));
	close(excl);
	ASSERT_EQ(0, attach(&self->t, fd));
	EXPECT_EQ(-EBUSY, attach(&u, fd));
	EXPECT_EQ(-1, open(kt_disk_dev(), O_RDWR | O_EXCL));
	EXPECT_EQ(EBUSY, errno);
	EXPECT_EQ(0, kt_detach(&self->t, 0));
	excl = open(kt_disk_dev(), O_RDWR | O_EXCL);
	EXPECT_LE(0, excl);
	close(excl);
	close(fd);
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("rival", 0));
}

/* Appending would put data anywhere but in its slot. */
TEST_F(area, append)
{
	int fd = open_in_dir(AREA, O_RDWR | O_APPEND);
	struct kvmm_block_ref refs[4];
	off_t size = lseek(fd, 0, SEEK_END);

	if (!attach(&self->t, fd)) {
		ASSERT_EQ(0, kt_store(&self->t, 1, 4, refs));
		ASSERT_EQ(0, kt_reclaim(&self->t, 0, NULL));
		EXPECT_EQ(4, kt_load_all(&self->t, 1, 4));
	}
	EXPECT_EQ(size, lseek(fd, 0, SEEK_END));
	close(fd);
}

/* Stores 1 to @n and leaves them in the area only. */
static int store_swapped(struct kt *t, uint32_t n, struct kvmm_block_ref *refs)
{
	int ret = kt_store(t, 1, n, refs);

	if (!ret)
		ret = kt_reclaim(t, 0, NULL);
	if (!ret && kt_stat_of(t).blocks[KVMM_SWAPPED] != n)
		ret = -ENODATA;
	return ret;
}

/* Somebody writes to the area: each block it hit is a miss. */
TEST_F(area, scribbled)
{
	struct kvmm_block_ref refs[8], in;
	struct kvmm_pool_stat st;
	unsigned char byte = 0;
	uint64_t at;
	int i, hits;

	ASSERT_EQ(0, attach(&self->t, self->fd));
	ASSERT_EQ(0, store_swapped(&self->t, 8, refs));
	/* one bit, somewhere in every second slot of the file */
	for (i = 0; i < SLOTS; i += 2) {
		at = i * (uint64_t)KT_BLOCK + 777 * i + 5;
		ASSERT_EQ(1, pread(self->fd, &byte, 1, at));
		byte ^= 0x10;
		ASSERT_EQ(1, pwrite(self->fd, &byte, 1, at));
	}
	ASSERT_EQ(0, fsync(self->fd));
	hits = kt_load_all(&self->t, 1, 8);
	EXPECT_LE(0, hits);
	st = kt_stat_of(&self->t);
	EXPECT_EQ(8, hits + st.checksum_errors);
	EXPECT_LT(0, st.checksum_errors);
	EXPECT_EQ(0, st.pins);
	EXPECT_EQ(0, st.read_errors);
	/* what was lost stays lost, what was found is found again */
	EXPECT_EQ(hits, kt_load_all(&self->t, 1, 8));
	EXPECT_EQ(8, hits + kt_stat_of(&self->t).checksum_errors);
	EXPECT_EQ(0, kt_stat_of(&self->t).degraded);
	KT_CONSISTENT(&self->t);

	/* and a swap-in by handle says so */
	ASSERT_EQ(0, kt_store(&self->t, 50, 1, &in));
	ASSERT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	for (at = 0; at < BYTES; at += 4096)
		ASSERT_EQ(1, pwrite(self->fd, "!", 1, at + 9));
	ASSERT_EQ(0, fsync(self->fd));
	EXPECT_EQ(-ESTALE, kt_swap1(&self->t, KVMM_SWAP_IN, in.handle,
				    KVMM_SWAP_PIN));
	EXPECT_EQ(-ESTALE, kt_query1(&self->t, in.handle));
	EXPECT_EQ(0, kt_stat_of(&self->t).pins);
}

/* The file is cut off: what was there is a miss, what comes is kept. */
TEST_F(area, truncated)
{
	struct kvmm_block_ref refs[8];
	struct kvmm_pool_stat st;

	ASSERT_EQ(0, attach(&self->t, self->fd));
	ASSERT_EQ(0, store_swapped(&self->t, 8, refs));
	ASSERT_EQ(0, ftruncate(self->fd, 0));
	EXPECT_EQ(0, kt_load_all(&self->t, 1, 8));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(8, st.read_errors + st.checksum_errors);
	EXPECT_EQ(0, st.pins);
	EXPECT_EQ(0, st.blocks[KVMM_SWAPPED]);
	ASSERT_EQ(0, kt_store(&self->t, 50, 4, refs));
	ASSERT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(4, kt_load_all(&self->t, 50, 4));
}

/* A hole was punched, or the file is cut inside a block. */
TEST_F(area, cut_inside)
{
	struct kvmm_block_ref refs[8];
	int hits;

	ASSERT_EQ(0, attach(&self->t, self->fd));
	ASSERT_EQ(0, store_swapped(&self->t, 8, refs));
	ASSERT_EQ(0, ftruncate(self->fd, 3 * KT_BLOCK + 8192));
	ASSERT_EQ(0, fallocate(self->fd, FALLOC_FL_PUNCH_HOLE |
			       FALLOC_FL_KEEP_SIZE, KT_BLOCK, 4096));
	hits = kt_load_all(&self->t, 1, 8);
	EXPECT_LE(0, hits);
	EXPECT_GE(2, hits);
}

/* The disk is full: nothing is lost that is in memory, and it says so. */
TEST_F(area, full_disk)
{
	struct kvmm_block_ref refs[8], more;
	struct kvmm_pool_stat st;
	int sparse, filler, ret;

	sparse = small_file(BYTES);
	ASSERT_EQ(0, attach(&self->t, sparse));
	/* one slot was tried; the others have no place on the disk */
	filler = open_in_dir("filler", O_RDWR | O_CREAT | O_TRUNC);
	ASSERT_LE(0, filler);
	ASSERT_EQ(0, kt_fill_disk(filler));
	ASSERT_EQ(0, kt_store(&self->t, 1, 8, refs));
	ret = kt_swap(&self->t, KVMM_SWAP_OUT, refs, 8, KVMM_SWAP_DROP);
	EXPECT_LE(0, ret);
	EXPECT_GT(8, ret);
	st = kt_stat_of(&self->t);
	EXPECT_EQ(1, st.degraded);
	EXPECT_LT(0, st.write_errors);
	EXPECT_EQ(8, kt_load_all(&self->t, 1, 8));
	EXPECT_EQ(-EIO, kt_swap1(&self->t, KVMM_SWAP_OUT, refs[7].handle, 0));
	/* it goes on without: room is made by purging */
	EXPECT_EQ(0, kt_reclaim(&self->t, 2, NULL));
	EXPECT_EQ(0, kt_store(&self->t, 100, 1, &more));
	EXPECT_EQ(1, kt_load(&self->t, 100));
	close(filler);
	kt_area_unlink("filler");
	/* with room on the disk, and attached anew, all is well again */
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	EXPECT_EQ(0, attach(&self->t, sparse));
	EXPECT_EQ(0, kt_stat_of(&self->t).degraded);
	ASSERT_EQ(0, kt_store(&self->t, 200, 4, refs));
	EXPECT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 4,
			     KVMM_SWAP_DROP));
	EXPECT_EQ(4, kt_load_all(&self->t, 200, 4));
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	close(sparse);
	kt_area_unlink("empty");
}

/* The disk fails: writes say so and lose nothing, reads are misses. */
TEST_F(area, disk_fails)
{
	struct kvmm_block_ref refs[8];
	struct kvmm_pool_stat st;
	int fd = kt_nullb(16, 0);

	if (fd == -ENODEV)
		SKIP(return, "the kernel has no null_blk");
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, attach(&self->t, fd));
	ASSERT_EQ(0, store_swapped(&self->t, 4, refs));
	ASSERT_EQ(0, kt_store(&self->t, 11, 4, refs + 4));
	ASSERT_EQ(0, kt_nullb_fail(true));
	EXPECT_EQ(-EIO, kt_swap1(&self->t, KVMM_SWAP_OUT, refs[4].handle,
				 KVMM_SWAP_DROP));
	st = kt_stat_of(&self->t);
	EXPECT_EQ(1, st.degraded);
	EXPECT_EQ(1, st.write_errors);
	EXPECT_EQ(KVMM_RESIDENT, kt_query1(&self->t, refs[4].handle));
	EXPECT_EQ(4, kt_load_all(&self->t, 11, 4));
	/* reads fail: each is a miss */
	EXPECT_EQ(0, kt_load_all(&self->t, 1, 2));
	EXPECT_EQ(2, kt_stat_of(&self->t).read_errors);
	EXPECT_EQ(0, kt_stat_of(&self->t).pins);
	/* reading what is good goes on, though it is degraded */
	ASSERT_EQ(0, kt_nullb_fail(false));
	EXPECT_EQ(2, kt_load_all(&self->t, 3, 2));
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	close(fd);
	/* a disk that fails at once is refused */
	fd = kt_nullb(16, 0);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, kt_nullb_fail(true));
	EXPECT_EQ(-EIO, attach(&self->t, fd));
	ASSERT_EQ(0, kt_nullb_fail(false));
	EXPECT_EQ(0, attach(&self->t, fd));
	EXPECT_EQ(0, kt_detach(&self->t, 0));
	close(fd);
	kt_nullb_end();
}

static int writes_under_limit(void *arg)
{
	struct rlimit none = { 0, 0 };
	struct kvmm_block_ref refs[4];
	struct kt t;
	int ret;

	ret = kt_join(&t, arg, 0);
	if (ret || setrlimit(RLIMIT_FSIZE, &none))
		return ret ? ret : -errno;
	ret = kt_store(&t, 1, 4, refs);
	return ret ? ret : kt_swap(&t, KVMM_SWAP_OUT, refs, 4, 0);
}

/*
 * A client's own limit on the size of files is not the area's: it would end the
 * client (SIGXFSZ), or fail writes, and degrade the pool for all.
 */
TEST_F(area, limit_of_client)
{
	ASSERT_EQ(0, attach(&self->t, self->fd));
	EXPECT_EQ(4, kt_child(writes_under_limit, self->t.name));
	EXPECT_EQ(0, kt_stat_of(&self->t).degraded);
	EXPECT_EQ(4, kt_load_all(&self->t, 1, 4));
}

/* Checks can be turned off, for disks that do it themselves. */
TEST_F(area, no_checksum)
{
	struct kvmm_block_ref refs[8];

	ASSERT_EQ(0, kt_attach(&self->t, self->fd, 0, 0,
			       KVMM_SWAP_NO_CHECKSUM, NULL));
	EXPECT_EQ(0, kt_stat_of(&self->t).checksums);
	ASSERT_EQ(0, store_swapped(&self->t, 8, refs));
	EXPECT_EQ(8, kt_load_all(&self->t, 1, 8));
	/* a file that is cut off is a miss all the same */
	ASSERT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	ASSERT_EQ(0, ftruncate(self->fd, 0));
	EXPECT_EQ(0, kt_load_all(&self->t, 1, 8));
}

/* A pool without room for slots takes no area. */
TEST_F(area, no_slots)
{
	struct kvmm_pool_create spec = kt_spec("none", KT_BLOCK, 4, 0);
	struct kt u;

	ASSERT_EQ(0, kt_create_spec(&u, &spec));
	EXPECT_GT(0, attach(&u, self->fd));
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("none", 0));
}

KT_MAIN
