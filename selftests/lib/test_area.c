// SPDX-License-Identifier: MIT
/*
 * The swap area's file: what is refused, how it is made, whose it is, and
 * letting go of it.
 */
#include "lt.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "lt-area"

static struct kvmm_swap_opts opts(const char *path, unsigned int flags)
{
	struct kvmm_swap_opts o = {
		.size = sizeof(o),
		.flags = flags,
		.path = path,
		.fd = -1,
	};

	return o;
}

static long attach(struct kvmm_pool *pool, const char *path,
		   unsigned int flags)
{
	struct kvmm_swap_opts o = opts(path, flags);

	return kvmm_swap_attach(pool, &o);
}

static void make_file(const char *path, off_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, bytes), 0);
	close(fd);
}

/* Files in the test's folder that begin with @path, whatever follows. */
static unsigned int leftovers(const char *path)
{
	char cmd[1024];
	unsigned int n = 0;
	FILE *f;

	snprintf(cmd, sizeof(cmd), "ls %s %s.* 2>/dev/null | wc -l", path,
		 path);
	f = popen(cmd, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%u", &n), 1);
	pclose(f);
	return n;
}

static void attach_checks_options(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 4, 8, 0);
	const char *path = lt_path(lt);
	struct kvmm_swap_opts o = opts(path, 0);

	assert_fails(kvmm_swap_attach(pool, NULL), EINVAL);
	o.size--;
	assert_fails(kvmm_swap_attach(pool, &o), EINVAL);
	assert_fails(attach(pool, path, 1u << 20), EINVAL);
	assert_fails(attach(pool, path, KVMM_SWAP_PREWRITE), EINVAL);
	assert_fails(attach(pool, NULL, KVMM_SWAP_CREATE), EINVAL);
	assert_fails(attach(pool, NULL, KVMM_SWAP_UNLINK), EINVAL);
	assert_fails(attach(pool, NULL, 0), EBADF);
	assert_fails(attach(pool, path, 0), ENOENT);
	assert_fails(attach(pool, "/dev/zero", 0), EINVAL);

	o = opts(path, KVMM_SWAP_CREATE);
	o.offset = 512;
	assert_fails(kvmm_swap_attach(pool, &o), EINVAL);
	o = opts(path, KVMM_SWAP_CREATE);
	o.nr_slots = 9;
	assert_fails(kvmm_swap_attach(pool, &o), EINVAL);
	assert_int_equal(leftovers(path), 0);

	assert_fails(kvmm_swap_detach(pool, 0), ENOENT);
	assert_fails(kvmm_swap_detach(pool, 2), EINVAL);
	lt_end(lt, pool, NAME);

	/* A pool without slots has no use for an area. */
	pool = lt_pool(lt, NAME, 4, 0, 0);
	assert_fails(attach(pool, path, KVMM_SWAP_CREATE), EINVAL);
	lt_end(lt, pool, NAME);
}

static void as_many_slots_as_fit(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 4, 8, 0);
	const char *path = lt_path(lt);
	struct kvmm_swap_opts o = opts(path, 0);

	make_file(path, LT_BLOCK - 1);
	assert_fails(kvmm_swap_attach(pool, &o), ENOSPC);
	make_file(path, 5 * LT_BLOCK + 100);
	o.nr_slots = 6;
	assert_fails(kvmm_swap_attach(pool, &o), ENOSPC);
	o.nr_slots = 0;
	assert_int_equal(kvmm_swap_attach(pool, &o), 5);
	assert_int_equal(lt_stat(pool).nr_slots, 5);
	assert_fails(kvmm_swap_attach(pool, &o), EBUSY);
	assert_int_equal(kvmm_swap_detach(pool, 0), 0);
	o.offset = 3 * LT_BLOCK;
	assert_int_equal(kvmm_swap_attach(pool, &o), 2);
	assert_int_equal(kvmm_swap_detach(pool, 0), 0);
	o.offset = 5 * LT_BLOCK;
	assert_fails(kvmm_swap_attach(pool, &o), ENOSPC);
	o.offset = 0;
	o.nr_slots = 1;
	assert_int_equal(kvmm_swap_attach(pool, &o), 1);
	assert_int_equal(kvmm_swap_detach(pool, 0), 0);
	make_file(path, 20 * LT_BLOCK);
	o.nr_slots = 0;
	assert_int_equal(kvmm_swap_attach(pool, &o), 8);
	lt_end(lt, pool, NAME);
	unlink(path);
}

static void offset_is_kept(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 4, 4, 0);
	const char *path = lt_path(lt);
	struct kvmm_swap_opts o = opts(path, KVMM_SWAP_CREATE);
	static unsigned char head[2 * LT_BLOCK];
	struct kvmm_block_ref refs[4];
	unsigned int i;
	int fd;

	o.offset = 2 * LT_BLOCK;
	assert_int_equal(kvmm_swap_attach(pool, &o), 4);
	lt_store(pool, refs, 0, 4, 0);
	assert_int_equal(kvmm_swap_out(pool, refs, 4, KVMM_SWAP_DROP), 4);
	fd = open(path, O_RDONLY);
	assert_int_equal(read(fd, head, sizeof(head)), sizeof(head));
	for (i = 0; i < sizeof(head); i++)
		assert_int_equal(head[i], 0);
	close(fd);
	lt_end(lt, pool, NAME);
	unlink(path);
}

static void create_makes_it_anew(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 4, 8, 0);
	const char *path = lt_path(lt);
	struct stat old, st;

	make_file(path, 3);
	stat(path, &old);
	assert_int_equal(attach(pool, path, KVMM_SWAP_CREATE), 8);
	assert_int_equal(stat(path, &st), 0);
	assert_int_not_equal(st.st_ino, old.st_ino);
	assert_int_equal(st.st_size, 8 * LT_BLOCK);
	assert_int_equal(st.st_mode & 07777, 0600);
	/* Its room is reserved. */
	assert_true(st.st_blocks * 512 >= 8 * (blkcnt_t)LT_BLOCK);
	assert_int_equal(leftovers(path), 1);
	assert_int_equal(kvmm_swap_detach(pool, 0), 0);

	assert_int_equal(attach(pool, path,
				KVMM_SWAP_CREATE | KVMM_SWAP_PREWRITE |
				KVMM_SWAP_UNLINK), 8);
	assert_int_equal(leftovers(path), 0);
	assert_int_equal(kvmm_swap_detach(pool, 0), 0);

	make_file(path, 8 * LT_BLOCK);
	assert_int_equal(attach(pool, path, KVMM_SWAP_UNLINK), 8);
	assert_int_equal(leftovers(path), 0);
	lt_end(lt, pool, NAME);
}

static void create_replaces_only_files(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 4, 8, 0);
	const char *path = lt_path(lt);
	struct stat st;

	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_fails(attach(pool, path, KVMM_SWAP_CREATE), EEXIST);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_fails(attach(pool, path, KVMM_SWAP_CREATE), EEXIST);
	assert_int_equal(rmdir(path), 0);
	assert_fails(attach(pool, "/nowhere/at/all", KVMM_SWAP_CREATE), ENOENT);
	lt_end(lt, pool, NAME);
}

static void create_on_a_full_disk(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool_opts o = {
		.size = sizeof(o),
		.name = NAME,
		.block_size = 256 << 20,
		.nr_frames = 1,
		.nr_slots = 1 << 20,
		.populate_threads = -1,
	};
	const char *path = lt_path(lt);
	struct kvmm_pool *pool;
	struct stat old, st;

	/* 256 TiB: more than any file system of the tests has. */
	pool = lt_create(lt, &o);
	make_file(path, 3);
	stat(path, &old);
	errno = 0;
	assert_true(attach(pool, path, KVMM_SWAP_CREATE) < 0);
	assert_true(errno == ENOSPC || errno == EFBIG);
	/* What was there is there still, and nothing else is. */
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_ino, old.st_ino);
	assert_int_equal(st.st_size, 3);
	assert_int_equal(leftovers(path), 1);
	unlink(path);
	lt_end(lt, pool, NAME);
}

static void create_beyond_the_limit(void **state)
{
	struct rlimit old, low = { .rlim_cur = 3 * LT_BLOCK };
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 4, 8, 0);
	const char *path = lt_path(lt);
	long made, fits, many;

	getrlimit(RLIMIT_FSIZE, &old);
	low.rlim_max = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
	made = attach(pool, path, KVMM_SWAP_CREATE);
	setrlimit(RLIMIT_FSIZE, &old);
	make_file(path, 8 * LT_BLOCK);
	setrlimit(RLIMIT_FSIZE, &low);
	fits = attach(pool, path, 0);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(kvmm_swap_detach(pool, 0), 0);
	many = attach(pool, path, 0);
	assert_int_equal(made, -ENOSPC);
	assert_int_equal(fits, 3);
	assert_int_equal(many, 8);
	unlink(path);
	lt_end(lt, pool, NAME);
}

static void by_descriptor(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 4, 8, 0);
	const char *path = lt_path(lt);
	struct kvmm_swap_opts o = opts(NULL, 0);
	struct kvmm_block_ref refs[4];
	unsigned int i;

	make_file(path, 8 * LT_BLOCK);
	o.fd = open(path, O_RDONLY);
	assert_fails(kvmm_swap_attach(pool, &o), EBADF);
	close(o.fd);
	o.fd = open(path, O_WRONLY);
	assert_fails(kvmm_swap_attach(pool, &o), EBADF);
	close(o.fd);
	o.fd = open(".", O_RDONLY | O_DIRECTORY);
	errno = 0;
	assert_true(kvmm_swap_attach(pool, &o) < 0);
	close(o.fd);
	/* The file's name and the descriptor may go; the area stays. */
	o.fd = open(path, O_RDWR);
	assert_int_equal(kvmm_swap_attach(pool, &o), 8);
	close(o.fd);
	unlink(path);
	lt_store(pool, refs, 0, 4, 0);
	assert_int_equal(kvmm_swap_out(pool, refs, 4, KVMM_SWAP_DROP), 4);
	assert_int_equal(kvmm_swap_in(pool, refs, 4, KVMM_SWAP_PIN), 4);
	for (i = 0; i < 4; i++)
		lt_check(kvmm_addr(pool, &refs[i]), i, LT_BLOCK);
	lt_end(lt, pool, NAME);
}

/* Eight blocks out and in again. */
static void round_trip(struct kvmm_pool *pool)
{
	struct kvmm_block_ref refs[8];
	unsigned int i;

	lt_store(pool, refs, 0, 8, 0);
	assert_int_equal(kvmm_swap_out(pool, refs, 8, KVMM_SWAP_DROP), 8);
	memset(kvmm_pool_arena(pool, NULL), 0, 8 * LT_BLOCK);
	assert_int_equal(kvmm_swap_in(pool, refs, 8, KVMM_SWAP_PIN), 8);
	for (i = 0; i < 8; i++)
		lt_check(kvmm_addr(pool, &refs[i]), i, LT_BLOCK);
}

static void area_in_shmem(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 8, 8, 0);
	struct kvmm_swap_opts o = opts(NULL, 0);
	long ret;

	/* tmpfs takes O_DIRECT from Linux 6.6 on. */
	o.fd = memfd_create("lt", 0);
	assert_int_equal(ftruncate(o.fd, 8 * LT_BLOCK), 0);
	ret = kvmm_swap_attach(pool, &o);
	close(o.fd);
	if (ret == 8)
		round_trip(pool);
	else
		assert_int_equal(ret, -EOPNOTSUPP);
	lt_end(lt, pool, NAME);
}

static void block_device(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *a = lt_pool(lt, NAME, 8, 100, 0);
	struct kvmm_pool *b = lt_pool(lt, NAME "2", 8, 100, 0);
	const char *path = getenv("KVMM_TEST_BLKDEV");

	assert_fails(attach(a, path, KVMM_SWAP_CREATE), EEXIST);
	assert_int_equal(attach(a, path, 0), 100);
	assert_fails(attach(b, path, 0), EBUSY);
	round_trip(a);
	lt_end(lt, a, NAME);
	assert_int_equal(attach(b, path, 0), 100);
	round_trip(b);
	lt_end(lt, b, NAME "2");
}

static void one_pool_only(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *a = lt_pool(lt, NAME, 4, 8, 0);
	struct kvmm_pool *b = lt_pool(lt, NAME "2", 4, 8, 0);
	const char *path = lt_path(lt);

	assert_int_equal(attach(a, path, KVMM_SWAP_CREATE), 8);
	assert_fails(attach(b, path, 0), EBUSY);
	if (!lt->kernel)
		assert_fails(attach(b, path, KVMM_SWAP_CREATE), EBUSY);
	assert_int_equal(kvmm_swap_detach(a, 0), 0);
	assert_int_equal(attach(b, path, 0), 8);
	lt_end(lt, b, NAME "2");
	assert_int_equal(attach(a, path, 0), 8);
	lt_end(lt, a, NAME);
	unlink(path);
}

/* Of the user backend: the kernel's pool, and its claim, outlive a process. */
static void one_process_only(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 4, 8, 0);
	const char *path = lt_path(lt);
	int status, ready[2];
	unsigned int i;
	long ret = 0;
	char c;
	pid_t pid;

	make_file(path, 8 * LT_BLOCK);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		/* Its own library: nothing of the parent's is used. */
		struct kvmm_pool *own;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		lt->kv = lt_open(lt, 0);
		own = lt_pool(lt, NAME "2", 4, 8, 0);
		c = attach(own, path, 0) == 8;
		if (write(ready[1], &c, 1) != 1)
			_exit(1);
		pause();
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(c, 1);
	assert_fails(attach(pool, path, 0), EBUSY);
	/* However it ends, its claim ends with it, or a moment later. */
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	for (i = 0; i < 500; i++) {
		ret = attach(pool, path, 0);
		if (ret != -EBUSY)
			break;
		usleep(10000);
	}
	assert_int_equal(ret, 8);
	close(ready[0]);
	close(ready[1]);
	lt_end(lt, pool, NAME);
	unlink(path);
}

static void detach_keeps_what_is_in_memory(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 200, 200, 0);
	const char *path = lt_path(lt);
	struct kvmm_block_ref refs[200];
	struct kvmm_pool_stat st;

	lt_attach(pool, path, 0);
	lt_store(pool, refs, 0, 200, 0);
	assert_int_equal(kvmm_swap_out(pool, refs, 200, 0), 200);
	assert_int_equal(kvmm_swap_out(pool, refs, 80, KVMM_SWAP_DROP), 80);
	assert_fails(kvmm_swap_detach(pool, 0), EBUSY);
	assert_int_equal(lt_stat(pool).blocks[KVMM_SWAPPED], 80);
	/* Nothing changed: they can still be read. */
	assert_int_equal(kvmm_swap_in(pool, refs, 10, KVMM_SWAP_PIN), 10);
	lt_check(kvmm_addr(pool, refs + 9), 9, LT_BLOCK);
	assert_int_equal(kvmm_swap_detach(pool, KVMM_SWAP_DISCARD), 0);
	st = lt_stat(pool);
	assert_int_equal(st.nr_slots, 0);
	assert_int_equal(st.blocks[KVMM_RESIDENT], 130);
	assert_int_equal(lt_find(pool, 50, 0, NULL), KVMM_MISS);
	assert_int_equal(lt_find(pool, 150, 0, NULL), KVMM_MEMORY);
	assert_int_equal(kvmm_swap_out(pool, refs + 150, 1, 0), 0);
	assert_int_equal(refs[150].result, -EOPNOTSUPP);
	lt_attach(pool, path, KVMM_SWAP_UNLINK);
	assert_int_equal(kvmm_swap_out(pool, refs + 80, 120, 0), 120);
	lt_end(lt, pool, NAME);
}

static void no_direct_io(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, NAME, 4, 8, 0);
	static const char path[] = "/proc/self/comm";

	/* A regular file that takes no O_DIRECT on any kernel. */
	assert_fails(attach(pool, path, 0), EOPNOTSUPP);
	lt_end(lt, pool, NAME);
}

int main(void)
{
	static const struct lt_test tests[] = {
		LT_TEST(attach_checks_options),
		LT_TEST(as_many_slots_as_fit),
		LT_TEST(offset_is_kept),
		LT_TEST(create_makes_it_anew),
		LT_TEST(create_replaces_only_files),
		LT_TEST(create_on_a_full_disk),
		LT_TEST_ON(create_beyond_the_limit, LT_USER),
		LT_TEST(by_descriptor),
		LT_TEST(area_in_shmem),
		LT_TEST_ON(block_device, LT_BLKDEV),
		LT_TEST(one_pool_only),
		LT_TEST_ON(one_process_only, LT_USER),
		LT_TEST(detach_keeps_what_is_in_memory),
		LT_TEST_ON(no_direct_io, LT_USER),
	};

	return LT_RUN("area", tests);
}
