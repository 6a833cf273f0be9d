// SPDX-License-Identifier: MIT
/*
 * What a system may do that this one does not: an older kernel, memory that
 * runs out on the way, transfers that come in parts or must be given again.
 * The calls are wrapped by the linker (see rules.mk).
 */
#include "lt.h"

#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME	"lt-system"
#define N	200

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

int __real_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_io_uring_queue_init(unsigned int entries, struct io_uring *ring,
			       unsigned int flags);
int __wrap_io_uring_queue_init(unsigned int entries, struct io_uring *ring,
			       unsigned int flags);
int __real_io_uring_register_buffers_sparse(struct io_uring *ring,
					    unsigned int nr);
int __wrap_io_uring_register_buffers_sparse(struct io_uring *ring,
					    unsigned int nr);
int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);
unsigned int __real_io_uring_peek_batch_cqe(struct io_uring *ring,
					    struct io_uring_cqe **cqes,
					    unsigned int count);
unsigned int __wrap_io_uring_peek_batch_cqe(struct io_uring *ring,
					    struct io_uring_cqe **cqes,
					    unsigned int count);

/* What is to go wrong; one thread at a time uses it, but for madvise(). */
static struct {
	bool no_collapse;
	bool no_populate;
	bool interrupt;		/* every second call that brings memory in */
	unsigned int calls;
	int populates;		/* the one that finds no memory; 0: none */
	bool no_proc;		/* /proc is not mounted */
	bool no_tmpfile;	/* no files without a name */
	bool no_coop;
	int big_ring;		/* error of a ring of more than 8 entries */
	bool no_table;
	unsigned int refuse;	/* submissions that are -EAGAIN */
	int spoil;		/* result that every second completion gets */
	unsigned int completions;
} sys;

int __wrap_madvise(void *at, size_t bytes, int advice)
{
	if (advice == MADV_COLLAPSE && sys.no_collapse) {
		errno = EINVAL;
		return -1;
	}
	if (advice == MADV_POPULATE_WRITE && sys.interrupt &&
	    __atomic_fetch_add(&sys.calls, 1, __ATOMIC_RELAXED) % 2 == 0) {
		errno = EINTR;
		return -1;
	}
	if (advice == MADV_POPULATE_WRITE && sys.no_populate) {
		errno = EINVAL;
		return -1;
	}
	if (advice == MADV_POPULATE_WRITE &&
	    __atomic_load_n(&sys.populates, __ATOMIC_RELAXED) &&
	    !__atomic_sub_fetch(&sys.populates, 1, __ATOMIC_RELAXED)) {
		/* Half of it came in. */
		__real_madvise(at, bytes / 2, advice);
		errno = ENOMEM;
		return -1;
	}
	return __real_madvise(at, bytes, advice);
}

int __wrap_open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	if (sys.no_proc && !strncmp(path, "/proc/", 6)) {
		errno = ENOENT;
		return -1;
	}
	if ((flags & O_TMPFILE) == O_TMPFILE && sys.no_tmpfile) {
		errno = EOPNOTSUPP;
		return -1;
	}
	va_start(ap, flags);
	if (flags & (O_CREAT | O_TMPFILE))
		mode = va_arg(ap, mode_t);
	va_end(ap);
	return __real_open(path, flags, mode);
}

int __wrap_io_uring_queue_init(unsigned int entries, struct io_uring *ring,
			       unsigned int flags)
{
	if (sys.no_coop && flags)
		return -EINVAL;
	if (sys.big_ring && entries > 8)
		return sys.big_ring;
	return __real_io_uring_queue_init(entries, ring, flags);
}

int __wrap_io_uring_register_buffers_sparse(struct io_uring *ring,
					    unsigned int nr)
{
	if (sys.no_table)
		return -EINVAL;
	return __real_io_uring_register_buffers_sparse(ring, nr);
}

int __wrap_io_uring_submit(struct io_uring *ring)
{
	if (sys.refuse) {
		sys.refuse--;
		return -EAGAIN;
	}
	return __real_io_uring_submit(ring);
}

/* A result that is not what the kernel did: the transfer is done again. */
unsigned int __wrap_io_uring_peek_batch_cqe(struct io_uring *ring,
					    struct io_uring_cqe **cqes,
					    unsigned int count)
{
	unsigned int n, i;

	n = __real_io_uring_peek_batch_cqe(ring, cqes, count);
	for (i = 0; i < n && sys.spoil; i++)
		if (++sys.completions % 2 && cqes[i]->res > 4096)
			cqes[i]->res = sys.spoil;
	return n;
}

static void swap_works(struct lt *lt, struct kvmm *kv)
{
	struct kvmm *own = lt->kv;
	struct kvmm_block_ref refs[N];
	struct kvmm_pool *pool;
	unsigned int i;

	lt->kv = kv;
	pool = lt_pool(lt, NAME, N, N, 0);
	lt_attach(pool, lt_path(lt), KVMM_SWAP_UNLINK);
	lt_store(pool, refs, 0, N, 0);
	assert_int_equal(kvmm_swap_out(pool, refs, N, KVMM_SWAP_DROP), N);
	memset(kvmm_pool_arena(pool, NULL), 0, N * LT_BLOCK);
	assert_int_equal(kvmm_swap_in(pool, refs, N, KVMM_SWAP_PIN), N);
	for (i = 0; i < N; i++)
		lt_check(kvmm_addr(pool, &refs[i]), i, LT_BLOCK);
	lt_end(lt, pool, NAME);
	lt->kv = own;
}

static void begin(void)
{
	memset(&sys, 0, sizeof(sys));
}

static void no_huge_pages(void **state)
{
	struct lt *lt = *state;

	begin();
	sys.no_collapse = true;
	swap_works(lt, lt->kv);
	assert_non_null(strstr(lt->log, "MADV_COLLAPSE"));
}

static void no_madvise_populate(void **state)
{
	struct lt *lt = *state;

	begin();
	sys.no_collapse = true;
	sys.no_populate = true;
	swap_works(lt, lt->kv);
}

static void populate_interrupted(void **state)
{
	struct lt *lt = *state;

	begin();
	sys.interrupt = true;
	swap_works(lt, lt->kv);
}

/* Only one pool has a file, also where all have the same open file of it. */
static void one_open_file(void **state)
{
	struct lt *lt = *state;
	struct kvmm *other = lt_open(lt, 0);
	struct kvmm_swap_opts o = { .size = sizeof(o) };
	struct kvmm_pool_opts po = {
		.size = sizeof(po),
		.name = "lt-third",
		.block_size = LT_BLOCK,
		.nr_frames = 4,
		.nr_slots = 8,
	};
	struct kvmm_pool *a = lt_pool(lt, NAME, 4, 8, 0), *b, *c;
	const char *path = lt_path(lt);
	struct kvmm_block_ref refs[4];
	unsigned int i;
	int fd;

	begin();
	b = lt_pool(lt, "lt-other", 4, 8, 0);
	assert_int_equal(kvmm_pool_create(other, &po, &c), 0);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 8 * LT_BLOCK), 0);
	o.fd = fd;
	for (i = 0; i < 2; i++) {
		sys.no_proc = i;
		assert_int_equal(kvmm_swap_attach(a, &o), 8);
		lt_store(a, refs, 0, 4, 0);
		assert_int_equal(kvmm_swap_out(a, refs, 4, KVMM_SWAP_DROP), 4);
		assert_fails(kvmm_swap_attach(b, &o), EBUSY);
		assert_fails(kvmm_swap_attach(c, &o), EBUSY);
		o.fd = dup(fd);
		assert_fails(kvmm_swap_attach(b, &o), EBUSY);
		close(o.fd);
		/* by another open file of it, and not anew */
		o.path = path;
		assert_fails(kvmm_swap_attach(c, &o), EBUSY);
		o.path = NULL;
		o.fd = fd;
		/* They have not written to it. */
		assert_int_equal(kvmm_swap_in(a, refs, 4, KVMM_SWAP_PIN), 4);
		lt_check(kvmm_addr(a, &refs[3]), 3, LT_BLOCK);
		kvmm_unpin(a, refs, 4);
		kvmm_drop(a, refs, 4);
		assert_int_equal(kvmm_swap_detach(a, KVMM_SWAP_DISCARD), 0);
		/* It is free now, and again after that. */
		assert_int_equal(kvmm_swap_attach(c, &o), 8);
		assert_fails(kvmm_swap_attach(a, &o), EBUSY);
		assert_int_equal(kvmm_swap_detach(c, 0), 0);
	}
	begin();
	close(fd);
	unlink(path);
	kvmm_pool_close(c);
	kvmm_close(other);
	lt_end(lt, b, "lt-other");
	lt_end(lt, a, NAME);
}

/* An area that is to have no name, on file systems with and without such. */
static void no_name(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool;
	const char *path;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		begin();
		sys.no_tmpfile = i;
		pool = lt_pool(lt, NAME, 4, 8, 0);
		path = lt_path(lt);
		lt_attach(pool, path, KVMM_SWAP_UNLINK);
		assert_int_equal(access(path, F_OK), -1);
		lt_end(lt, pool, NAME);
	}
	begin();
}

static void memory_runs_out(void **state)
{
	struct kvmm_pool_opts o = {
		.size = sizeof(o),
		.name = NAME,
		.block_size = 1 << 20,
		.nr_frames = 128,
		.populate_threads = 2,
	};
	struct lt *lt = *state;
	struct kvmm_block_ref refs[128];
	struct kvmm_pool *pool;
	struct stat st;

	begin();
	sys.no_collapse = true;
	sys.populates = 3;
	assert_fails(kvmm_pool_create(lt->kv, &o, &pool), ENOMEM);
	assert_fails(kvmm_pool_open(lt->kv, NAME, 0, &pool), ENOENT);

	/* Bit by bit: what came in works, and the rest can come later. */
	o.populate_threads = -1;
	pool = lt_create(lt, &o);
	/* One page to see whether it can be made a huge one, then pieces. */
	sys.populates = 4;
	assert_int_equal(kvmm_pool_populate(pool, 0, 128), 64);
	sys.populates = 1;
	assert_fails(kvmm_pool_populate(pool, 100, 8), ENOMEM);
	assert_int_equal(lt_stat(pool).frames_online, 64);
	/* What came in for the others went back. */
	assert_int_equal(fstat(kvmm_pool_fd(pool), &st), 0);
	assert_int_equal(st.st_blocks * 512, 64 << 20);
	assert_int_equal(kvmm_alloc(pool, refs, 128, 1, 0), 64);
	memset(kvmm_pool_arena(pool, NULL), 0x77, 64 << 20);
	/* In the background it is told to who waits, and what came stays. */
	sys.populates = 2;
	assert_int_equal(kvmm_populate_start(pool, 64, 64, 1), 0);
	assert_fails(kvmm_populate_wait(pool, -1), ENOMEM);
	assert_int_equal(kvmm_populate_left(pool), 0);
	assert_int_equal(lt_stat(pool).frames_online, 96);
	sys.populates = 0;
	assert_int_equal(kvmm_populate_start(pool, 0, 64, 1), 0);
	assert_int_equal(kvmm_populate_wait(pool, -1), 0);
	assert_int_equal(kvmm_pool_populate(pool, 0, 128), 128);
	assert_int_equal(kvmm_alloc(pool, refs + 64, 64, 1, 0), 64);
	/* Nothing was taken back that was in use. */
	assert_int_equal(*(unsigned char *)kvmm_addr(pool, &refs[63]), 0x77);
	assert_int_equal(*(unsigned char *)kvmm_addr(pool, &refs[64]), 0);
	lt_end(lt, pool, NAME);
}

static void old_io_uring(void **state)
{
	struct lt *lt = *state;
	struct kvmm *kv;

	begin();
	sys.no_coop = true;
	sys.no_table = true;
	kv = lt_open(lt, 0);
	swap_works(lt, kv);
	if (!getenv("KVMM_TEST_NO_URING"))
		assert_string_equal(kvmm_io_name(kv), "io_uring");
	kvmm_close(kv);
}

static void ring_only_for_the_probe(void **state)
{
	struct lt *lt = *state;
	struct kvmm *kv;

	begin();
	sys.big_ring = -ENOMEM;
	kv = lt_open(lt, 0);
	swap_works(lt, kv);
	assert_string_equal(kvmm_io_name(kv), "threads");
	kvmm_close(kv);
}

static void submissions_refused(void **state)
{
	struct lt *lt = *state;

	begin();
	sys.refuse = 50;
	swap_works(lt, lt->kv);
	if (!getenv("KVMM_TEST_NO_URING"))
		assert_int_equal(sys.refuse, 0);
}

static void transfers_given_again(void **state)
{
	struct lt *lt = *state;

	begin();
	sys.spoil = -EAGAIN;
	swap_works(lt, lt->kv);
	/* The thread that submitted it has ended. */
	sys.spoil = -ECANCELED;
	swap_works(lt, lt->kv);
	sys.spoil = -EINTR;
	swap_works(lt, lt->kv);
}

static void transfers_in_parts(void **state)
{
	struct lt *lt = *state;

	begin();
	sys.spoil = 4096;
	swap_works(lt, lt->kv);
}

int main(void)
{
	static const struct lt_test tests[] = {
		LT_TEST_ON(no_huge_pages, LT_USER),
		LT_TEST_ON(no_madvise_populate, LT_USER),
		LT_TEST_ON(populate_interrupted, LT_USER),
		LT_TEST_ON(one_open_file, LT_USER),
		LT_TEST_ON(no_name, LT_USER),
		LT_TEST_ON(memory_runs_out, LT_USER),
		LT_TEST_ON(old_io_uring, LT_USER),
		LT_TEST_ON(ring_only_for_the_probe, LT_USER),
		LT_TEST_ON(submissions_refused, LT_USER),
		LT_TEST_ON(transfers_given_again, LT_USER),
		LT_TEST_ON(transfers_in_parts, LT_USER),
	};

	return LT_RUN("system", tests);
}
