// SPDX-License-Identifier: MIT
/*
 * Opening the library: options, choosing the backend, messages, version.
 */
#include "lt.h"

#include <stdio.h>
#include <unistd.h>

struct kept {
	unsigned int nr;
	char text[512];
};

static void keep(void *ctx, enum kvmm_log_level level, const char *text)
{
	struct kept *k = ctx;

	(void)level;
	k->nr++;
	snprintf(k->text, sizeof(k->text), "%s", text);
}

static void open_checks_options(void **state)
{
	struct {
		struct kvmm_open_opts o;
		uint64_t tail;
	} longer = { .o.size = sizeof(longer) };
	struct kvmm_open_opts o = { .size = sizeof(o) };
	struct kvmm *kv = NULL;

	(void)state;
	assert_fails(kvmm_open(NULL, NULL), EINVAL);
	o.size--;
	assert_fails(kvmm_open(&kv, &o), EINVAL);
	o.size = 0;
	assert_fails(kvmm_open(&kv, &o), EINVAL);
	/* not set: nothing behind the struct is read */
	o.size = SIZE_MAX;
	assert_fails(kvmm_open(&kv, &o), E2BIG);
	o.size = sizeof(o);
	o.flags = 0x80;
	assert_fails(kvmm_open(&kv, &o), EINVAL);
	o.flags = 0;
	o.backend = (enum kvmm_backend)77;
	assert_fails(kvmm_open(&kv, &o), EINVAL);
	assert_null(kv);

	/* A program built with a later header: fine if it asks for nothing. */
	longer.o.backend = KVMM_BACKEND_USER;
	longer.tail = 1;
	assert_fails(kvmm_open(&kv, &longer.o), E2BIG);
	longer.tail = 0;
	assert_int_equal(kvmm_open(&kv, &longer.o), 0);
	kvmm_close(kv);
}

static void kernel_backend_says_why_not(void **state)
{
	struct kvmm_open_opts o = {
		.size = sizeof(o),
		.backend = KVMM_BACKEND_KERNEL,
		.device = "/dev/kvmm-that-is-not-there",
	};
	struct kvmm *kv = NULL;

	(void)state;
	assert_fails(kvmm_open(&kv, &o), ENOENT);
	o.device = "/dev/null";
	assert_fails(kvmm_open(&kv, &o), EPROTO);
	assert_null(kv);
}

static void auto_falls_back_and_says_so(void **state)
{
	struct kept k = { 0 };
	struct kvmm_open_opts o = {
		.size = sizeof(o),
		.flags = KVMM_OPEN_NO_URING,
		.device = "/dev/kvmm-that-is-not-there",
		.log = keep,
		.log_ctx = &k,
	};
	struct kvmm *kv;

	(void)state;
	assert_int_equal(kvmm_open(&kv, &o), 0);
	assert_string_equal(kvmm_backend_name(kv), "user");
	assert_string_equal(kvmm_io_name(kv), "threads");
	/* One about the device, one about io_uring. */
	assert_int_equal(k.nr, 2);
	kvmm_close(kv);
}

static void silent_without_callback(void **state)
{
	struct kvmm_open_opts o = {
		.size = sizeof(o),
		.device = "/dev/kvmm-that-is-not-there",
	};
	struct kvmm *kv;

	(void)state;
	assert_int_equal(kvmm_open(&kv, &o), 0);
	kvmm_close(kv);
	kvmm_close(NULL);
	kvmm_pool_close(NULL);
}

static void defaults_find_a_backend(void **state)
{
	struct kvmm *kv;

	(void)state;
	assert_int_equal(kvmm_open(&kv, NULL), 0);
	if (access("/dev/kvmm", F_OK))
		assert_string_equal(kvmm_backend_name(kv), "user");
	kvmm_close(kv);
}

static void version_and_info(void **state)
{
	struct lt *lt = *state;
	struct kvmm_info info;
	struct kvmm_pool *pool;
	unsigned int a, b, c, before;

	assert_int_equal(sscanf(kvmm_version(), "%u.%u.%u", &a, &b, &c), 3);
	assert_int_equal(kvmm_info(lt->kv, &info), 0);
	before = info.nr_pools;
	assert_int_equal(info.abi, KVMM_ABI);
	assert_int_equal(info.max_batch, KVMM_MAX_BATCH);
	assert_true(info.policies & 1ULL << KVMM_POLICY_LRU);
	assert_true(info.features & KVMM_FEATURE_CHECKSUM);
	assert_int_equal(sscanf(info.version, "%u.%u.%u", &a, &b, &c), 3);
	assert_fails(kvmm_info(lt->kv, NULL), EFAULT);

	pool = lt_pool(lt, "lt-info", 4, 0, 0);
	assert_int_equal(kvmm_info(lt->kv, &info), 0);
	assert_int_equal(info.nr_pools, before + 1);
	assert_true(info.pinned_bytes >= 4 * LT_BLOCK);
	lt_end(lt, pool, "lt-info");
}

static void io_name_follows_the_option(void **state)
{
	struct lt *lt = *state;
	struct kvmm *kv = lt_open(lt, KVMM_OPEN_NO_URING);

	assert_string_equal(kvmm_io_name(kv), lt->kernel ? "ioctl" : "threads");
	kvmm_close(kv);
	assert_string_equal(kvmm_backend_name(lt->kv),
			    lt->kernel ? "kernel" : "user");
}

int main(void)
{
	static const struct lt_test tests[] = {
		LT_TEST(open_checks_options),
		LT_TEST(kernel_backend_says_why_not),
		LT_TEST(auto_falls_back_and_says_so),
		LT_TEST(silent_without_callback),
		LT_TEST(defaults_find_a_backend),
		LT_TEST(version_and_info),
		LT_TEST(io_name_follows_the_option),
	};

	return LT_RUN("open", tests);
}
