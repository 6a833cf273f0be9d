// SPDX-License-Identifier: MIT
/*
 * The fixture of the library's tests.
 */
#include "lt.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_log(void *ctx, enum kvmm_log_level level, const char *text)
{
	struct lt *lt = ctx;
	size_t used;

	(void)level;
	pthread_mutex_lock(&log_lock);
	lt->nr_logs++;
	used = strlen(lt->log);
	snprintf(lt->log + used, sizeof(lt->log) - used, "%s\n", text);
	pthread_mutex_unlock(&log_lock);
}

static bool on_kernel(void)
{
	const char *name = getenv("KVMM_TEST_BACKEND");

	return name && !strcmp(name, "kernel");
}

struct kvmm *lt_open(struct lt *lt, unsigned int flags)
{
	struct kvmm_open_opts opts = {
		.size = sizeof(opts),
		.flags = flags,
		.backend = lt->kernel ? KVMM_BACKEND_KERNEL
				      : KVMM_BACKEND_USER,
		.log = keep_log,
		.log_ctx = lt,
	};
	struct kvmm *kv = NULL;

	if (getenv("KVMM_TEST_NO_URING"))
		opts.flags |= KVMM_OPEN_NO_URING;
	assert_int_equal(kvmm_open(&kv, &opts), 0);
	assert_non_null(kv);
	return kv;
}

static int setup(void **state)
{
	struct lt *lt = calloc(1, sizeof(*lt));

	*state = lt;
	lt->kernel = on_kernel();
	lt->dir = getenv("KVMM_TEST_DIR");
	if (!lt->dir)
		lt->dir = "build";
	lt->kv = lt_open(lt, 0);
	return 0;
}

static int teardown(void **state)
{
	struct lt *lt = *state;

	kvmm_close(lt->kv);
	free(lt);
	return 0;
}

static const char *why_not(const struct lt_test *test)
{
	bool user = test->where == LT_USER || test->where == LT_USER_ROOT;
	bool root = test->where == LT_ROOT || test->where == LT_USER_ROOT;

	if (user && on_kernel())
		return "user backend only";
	if (root && geteuid())
		return "needs root";
	if (test->where == LT_BLKDEV && !getenv("KVMM_TEST_BLKDEV"))
		return "KVMM_TEST_BLKDEV is not set";
	return NULL;
}

static void skipped(void **state)
{
	(void)state;
}

/*
 * A test that can't run is one that passes, and whose name says why it was
 * skipped: cmocka's own skip(), for what only the test itself can see, gives no
 * reason.
 */
int lt_run(const char *group, const struct lt_test *tests, size_t n)
{
	struct CMUnitTest *run = calloc(n, sizeof(*run));
	char (*names)[128] = calloc(n, sizeof(*names));
	size_t i;
	int ret;

	setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
	for (i = 0; i < n; i++) {
		const char *why = why_not(&tests[i]);

		run[i].name = tests[i].name;
		run[i].test_func = tests[i].fn;
		run[i].setup_func = setup;
		run[i].teardown_func = teardown;
		if (!why)
			continue;
		snprintf(names[i], sizeof(names[i]), "%s # SKIP %s",
			 tests[i].name, why);
		run[i].name = names[i];
		run[i].test_func = skipped;
		run[i].setup_func = NULL;
		run[i].teardown_func = NULL;
	}
	ret = _cmocka_run_group_tests(group, run, n, NULL, NULL);
	free(names);
	free(run);
	return ret ? 1 : 0;
}

struct kvmm_pool *lt_create(struct lt *lt, const struct kvmm_pool_opts *opts)
{
	struct kvmm_pool *pool = NULL;
	int err = kvmm_pool_create(lt->kv, opts, &pool);

	/* The kernel's outlive a test that failed. */
	if (err == -EEXIST) {
		kvmm_pool_destroy(lt->kv, opts->name, KVMM_POOL_FORCE);
		err = kvmm_pool_create(lt->kv, opts, &pool);
	}
	if (err)
		fail_msg("no pool: %s\n%s", strerror(-err), lt->log);
	return pool;
}

struct kvmm_pool *lt_pool(struct lt *lt, const char *name, unsigned int frames,
			  unsigned int slots, unsigned int flags)
{
	struct kvmm_pool_opts opts = {
		.size = sizeof(opts),
		.flags = flags,
		.name = name,
		.block_size = LT_BLOCK,
		.nr_frames = frames,
		.nr_slots = slots,
	};

	return lt_create(lt, &opts);
}

void lt_end(struct lt *lt, struct kvmm_pool *pool, const char *name)
{
	kvmm_pool_close(pool);
	assert_int_equal(kvmm_pool_destroy(lt->kv, name, 0), 0);
}

const char *lt_path(struct lt *lt)
{
	static unsigned int nr;
	static char path[512];

	snprintf(path, sizeof(path), "%s/lib-test.%d.%u", lt->dir,
		 (int)getpid(), nr++);
	return path;
}

void lt_attach(struct kvmm_pool *pool, const char *path, unsigned int flags)
{
	struct kvmm_swap_opts opts = {
		.size = sizeof(opts),
		.flags = flags | KVMM_SWAP_CREATE,
		.path = path,
	};

	assert_true(kvmm_swap_attach(pool, &opts) > 0);
}

void lt_key(uint8_t *key, uint64_t id)
{
	memset(key, 0x5a, KVMM_KEY_LEN);
	memcpy(key, &id, sizeof(id));
}

static uint64_t word(uint64_t id, size_t i)
{
	return (id + 1) * 0x9e3779b97f4a7c15ULL + i * 0xbf58476d1ce4e5b9ULL;
}

void lt_fill(void *mem, uint64_t id, size_t bytes)
{
	uint64_t *p = mem;
	size_t i;

	for (i = 0; i < bytes / 8; i++)
		p[i] = word(id, i);
	memset(p + i, (int)id, bytes % 8);
}

void lt_check(const void *mem, uint64_t id, size_t bytes)
{
	const unsigned char *tail = mem;
	const uint64_t *p = mem;
	size_t i;

	assert_non_null(mem);
	for (i = 0; i < bytes / 8; i++)
		if (p[i] != word(id, i))
			fail_msg("block %llu: word %zu is wrong",
				 (unsigned long long)id, i);
	for (i *= 8; i < bytes; i++)
		assert_int_equal(tail[i], (unsigned char)id);
}

struct kvmm_publish_entry lt_entry(uint64_t handle, uint64_t id)
{
	struct kvmm_publish_entry e = {
		.handle = handle,
		.length = LT_BLOCK,
	};

	lt_key(e.key, id);
	return e;
}

void lt_store(struct kvmm_pool *pool, struct kvmm_block_ref *refs, uint64_t id,
	      unsigned int n, unsigned int flags)
{
	struct kvmm_publish_entry *e = calloc(n, sizeof(*e));
	unsigned int i;

	assert_int_equal(kvmm_alloc(pool, refs, n, 1, 0), n);
	for (i = 0; i < n; i++) {
		e[i] = lt_entry(refs[i].handle, id + i);
		e[i].position = i;
		e[i].parent = i ? refs[i - 1].handle : 0;
		lt_fill(kvmm_addr(pool, &refs[i]), id + i, LT_BLOCK);
	}
	assert_int_equal(kvmm_publish(pool, e, n, flags), n);
	for (i = 0; i < n; i++)
		assert_int_equal(e[i].result, 0);
	free(e);
}

int lt_find(struct kvmm_pool *pool, uint64_t id, unsigned int flags,
	    struct kvmm_block_ref *ref)
{
	struct kvmm_block_ref own;
	uint8_t key[KVMM_KEY_LEN];

	if (!ref)
		ref = &own;
	lt_key(key, id);
	assert_true(kvmm_lookup(pool, key, ref, 1, flags) >= 0);
	return ref->result;
}

struct kvmm_pool_stat lt_stat(struct kvmm_pool *pool)
{
	struct kvmm_pool_stat st;

	assert_int_equal(kvmm_pool_stat(pool, &st), 0);
	return st;
}
