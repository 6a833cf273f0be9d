/* SPDX-License-Identifier: MIT */
/*
 * What the library's tests share: a fixture for each test, blocks whose bytes
 * can be told, and a way to leave out tests that a backend can't run.
 *
 * Environment: KVMM_TEST_BACKEND (user or kernel; default user),
 * KVMM_TEST_NO_URING (set: never io_uring), KVMM_TEST_DIR (where swap files
 * go, on a file system with O_DIRECT; default build), KVMM_TEST_BLKDEV (a block
 * device that may be overwritten).
 */
#ifndef LT_H
#define LT_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <kvmm.h>

/* Small: the tests also run in an emulated machine. */
#define LT_BLOCK	65536u

/**
 * struct lt - one test
 * @kv: open
 * @kernel: on the kernel's backend
 * @dir: where files may be made
 * @log: the last messages, each with a newline
 * @nr_logs: how many came
 */
struct lt {
	struct kvmm *kv;
	bool kernel;
	const char *dir;
	char log[4096];
	unsigned int nr_logs;
};

/* Where a test can run. */
enum lt_where {
	LT_ANY,
	LT_USER,
	LT_ROOT,
	LT_USER_ROOT,
	LT_BLKDEV,
};

struct lt_test {
	const char *name;
	CMUnitTestFunction fn;
	enum lt_where where;
};

#define LT_TEST(fn)		{ #fn, fn, LT_ANY }
#define LT_TEST_ON(fn, where)	{ #fn, fn, where }

/** lt_run() - main() of a test program */
int lt_run(const char *group, const struct lt_test *tests, size_t n);
#define LT_RUN(group, tests) \
	lt_run(group, tests, sizeof(tests) / sizeof((tests)[0]))

/** lt_open() - another struct kvmm, on the backend under test */
struct kvmm *lt_open(struct lt *lt, unsigned int flags);

/** lt_create() - a pool; one of that name that a test has left is ended */
struct kvmm_pool *lt_create(struct lt *lt, const struct kvmm_pool_opts *opts);
/** lt_pool() - a pool named @name; ends with lt_end() or with the test */
struct kvmm_pool *lt_pool(struct lt *lt, const char *name, unsigned int frames,
			  unsigned int slots, unsigned int flags);
/** lt_end() - close and destroy */
void lt_end(struct lt *lt, struct kvmm_pool *pool, const char *name);

/** lt_path() - a file name of this test's own; static buffer */
const char *lt_path(struct lt *lt);
/** lt_attach() - make a swap file of all the pool's slots, and attach it */
void lt_attach(struct kvmm_pool *pool, const char *path, unsigned int flags);

/** lt_key() - the key of block number @id */
void lt_key(uint8_t *key, uint64_t id);
/** lt_fill() - the bytes of block @id */
void lt_fill(void *mem, uint64_t id, size_t bytes);
/** lt_check() - fails the test if a byte is not block @id's */
void lt_check(const void *mem, uint64_t id, size_t bytes);

/** lt_entry() - an entry that publishes @handle as block @id, whole */
struct kvmm_publish_entry lt_entry(uint64_t handle, uint64_t id);
/** lt_store() - allocate, fill and publish blocks @id to @id + @n - 1 */
void lt_store(struct kvmm_pool *pool, struct kvmm_block_ref *refs, uint64_t id,
	      unsigned int n, unsigned int flags);
/** lt_find() - look block @id up; returns enum kvmm_where */
int lt_find(struct kvmm_pool *pool, uint64_t id, unsigned int flags,
	    struct kvmm_block_ref *ref);
/** lt_stat() - counters */
struct kvmm_pool_stat lt_stat(struct kvmm_pool *pool);

/* A call that must fail, with errno set as well. */
#define assert_fails(call, error)			\
	do {						\
		errno = 0;				\
		assert_int_equal((call), -(error));	\
		assert_int_equal(errno, (error));	\
	} while (0)

#endif /* LT_H */
