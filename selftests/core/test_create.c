// SPDX-License-Identifier: MIT
/*
 * Creation: configurations, memory, frames coming online, counters, clients.
 */
#include "fixture.h"

static void refuses_bad_configs(void **state)
{
	static const struct {
		const char *what;
		u32 frames, slots, clients, block_size;
	} bad[] = {
		{ "no frames", 0, 4, 4, 4096 },
		{ "no clients", 4, 4, 0, 4096 },
		{ "too many clients", 4, 4, KVMM_MAX_CLIENTS + 1, 4096 },
		{ "too many frames", KVMM_MAX_BLOCKS + 1, 0, 4, 4096 },
		{ "too many blocks", KVMM_MAX_BLOCKS, 1, 4, 4096 },
		{ "frames + slots wraps", 0x80000000U, 0x80000000U, 4, 4096 },
		{ "slots wrap", 2, 0xffffffffU, 4, 4096 },
	};
	struct fx f;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fx_config(&f, bad[i].frames, bad[i].slots);
		f.cfg.max_clients = bad[i].clients;
		f.cfg.block_size = bad[i].block_size;
		if (kvmm_core_init(&f.c, &f.cfg) != -EINVAL)
			fail_msg("accepted: %s", bad[i].what);
		assert_int_equal(f.taken, 0);
	}
}

static void gives_all_back_when_memory_runs_out(void **state)
{
	struct fx f;
	long n;

	(void)state;
	for (n = 0;; n++) {
		int ret;

		fx_config(&f, 1000, 1000);
		f.fail_after = n;
		ret = kvmm_core_init(&f.c, &f.cfg);
		if (!ret)
			break;
		assert_int_equal(ret, -ENOMEM);
		assert_int_equal(f.taken, 0);
		assert_true(n < 1000);
	}
	assert_true(n >= 4);
	fx_close(&f);
}

static void takes_what_bytes_says(void **state)
{
	static const u32 size[][2] = {
		{ 1, 0 }, { 1, 1 }, { 7, 1000 }, { 1000, 7 }, { 300000, 0 },
		{ 200000, 300000 },
	};
	struct fx f;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		fx_config(&f, size[i][0], size[i][1]);
		f.cfg.nr_holds = 0;
		assert_int_equal(kvmm_core_init(&f.c, &f.cfg), 0);
		assert_int_equal(kvmm_core_bytes(&f.cfg), f.taken);
		kvmm_core_exit(&f.c);
		assert_int_equal(f.taken, 0);
	}
}

/* DESIGN's budget, with the default number of holds. */
static void takes_at_most_160_bytes_a_block(void **state)
{
	static const u32 size[][2] = {
		{ 100000, 0 }, { 65536, 0 }, { 65537, 0 }, { 100000, 100000 },
		{ 1 << 20, 7 << 20 }, { 8 << 20, 0 }, { 5000, 40000 },
		{ 131072, 1 }, { 180000, 20000 }, { 16384, 0 },
	};
	struct fx f;
	size_t i;

	(void)state;
	assert_int_equal(sizeof(struct kvmm_block), 128);
	for (i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		u64 blocks = (u64)size[i][0] + size[i][1];
		u64 bytes;

		fx_config(&f, size[i][0], size[i][1]);
		f.cfg.nr_holds = 0;
		f.cfg.max_clients = 64;
		bytes = kvmm_core_bytes(&f.cfg);
		if (bytes > 160 * blocks + 65536)
			fail_msg("%u frames, %u slots: %llu bytes a block",
				 size[i][0], size[i][1],
				 (unsigned long long)(bytes / blocks));
		f.cfg.nr_elastic = size[i][0];
		f.cfg.unit_frames = 1;
		bytes = kvmm_core_bytes(&f.cfg);
		if (bytes > 160 * blocks + 65536)
			fail_msg("%u elastic frames, %u slots: %llu bytes a block",
				 size[i][0], size[i][1],
				 (unsigned long long)(bytes / blocks));
	}
}

static void starts_empty(void **state)
{
	struct kvmm_pool_stat st;
	struct fx f;
	int i;

	(void)state;
	fx_config(&f, 10, 20);
	assert_int_equal(kvmm_core_init(&f.c, &f.cfg), 0);
	fx_check(&f);
	st = fx_stat(&f);
	assert_int_equal(st.epoch, 0);
	assert_int_equal(st.block_size, FX_BLOCK_SIZE);
	assert_int_equal(st.nr_frames, 10);
	assert_int_equal(st.nr_slots, 0);
	assert_int_equal(st.nr_clients, 0);
	assert_int_equal(st.degraded, 0);
	assert_int_equal(st.frames_online, 0);
	assert_int_equal(st.frames_free, 0);
	assert_int_equal(st.slots_free, 0);
	for (i = KVMM_FILLING; i < KVMM_NR_STATES; i++)
		assert_int_equal(st.blocks[i], 0);
	assert_int_equal(st.pins, 0);
	assert_int_equal(kvmm_core_frames_used(&f.c), 0);
	fx_close(&f);
}

static void frames_come_online(void **state)
{
	struct fx f;

	(void)state;
	fx_config(&f, 200, 0);
	assert_int_equal(kvmm_core_init(&f.c, &f.cfg), 0);
	f.me = kvmm_core_client_add(&f.c);
	assert_int_equal(fx_alloc_fails(&f), -ENOSPC);
	assert_int_equal(fx_stat(&f).alloc_fails, 1);

	assert_int_equal(kvmm_core_frames_online(&f.c, 150, 2), 2);
	assert_false(kvmm_core_frame_is_online(&f.c, 149));
	assert_true(kvmm_core_frame_is_online(&f.c, 150));
	assert_true(kvmm_core_frame_is_online(&f.c, 151));
	assert_false(kvmm_core_frame_is_online(&f.c, 152));
	fx_alloc(&f);
	fx_alloc(&f);
	assert_int_equal(fx_alloc_fails(&f), -ENOSPC);

	/* those in use are passed over and stay in use */
	assert_int_equal(kvmm_core_frames_online(&f.c, 149, 4), 2);
	fx_check(&f);
	assert_int_equal(fx_stat(&f).frames_online, 4);
	assert_int_equal(fx_stat(&f).frames_free, 2);
	assert_int_equal(kvmm_core_frames_used(&f.c), 2);
	assert_int_equal(kvmm_core_frames_online(&f.c, 149, 4), 0);
	assert_int_equal(kvmm_core_frames_online(&f.c, 199, 1), 1);
	fx_close(&f);
}

static void counts_clients(void **state)
{
	u32 id[FX_CLIENTS];
	struct fx f;
	u32 i, j;

	(void)state;
	fx_config(&f, 2, 0);
	assert_int_equal(kvmm_core_init(&f.c, &f.cfg), 0);
	for (i = 0; i < FX_CLIENTS; i++) {
		id[i] = kvmm_core_client_add(&f.c);
		assert_in_range(id[i], 1, FX_CLIENTS);
		for (j = 0; j < i; j++)
			assert_int_not_equal(id[i], id[j]);
		fx_check(&f);
	}
	assert_int_equal(fx_stat(&f).nr_clients, FX_CLIENTS);
	assert_int_equal(kvmm_core_client_add(&f.c), 0);
	assert_true(kvmm_core_client_del(&f.c, id[2], f.now));
	fx_check(&f);
	assert_int_equal(kvmm_core_client_add(&f.c), id[2]);
	assert_int_equal(kvmm_core_client_add(&f.c), 0);
	for (i = 0; i < FX_CLIENTS; i++)
		assert_true(kvmm_core_client_del(&f.c, id[i], f.now));
	assert_int_equal(fx_stat(&f).nr_clients, 0);
	/* they had nothing: no death worth counting */
	assert_int_equal(fx_stat(&f).clients_dead, 0);
	fx_close(&f);
}

static void the_most_clients(void **state)
{
	struct fx f;
	u32 i;

	(void)state;
	fx_config(&f, 2, 0);
	f.cfg.max_clients = KVMM_MAX_CLIENTS;
	assert_int_equal(kvmm_core_init(&f.c, &f.cfg), 0);
	for (i = 0; i < KVMM_MAX_CLIENTS; i++)
		assert_int_not_equal(kvmm_core_client_add(&f.c), 0);
	assert_int_equal(kvmm_core_client_add(&f.c), 0);
	fx_close(&f);
}

static void counts_requests(void **state)
{
	struct fx f;

	(void)state;
	fx_open(&f, 2, 0);
	kvmm_core_request_end(&f.c, 7);
	kvmm_core_request_end(&f.c, 0xffffffffU);
	assert_int_equal(fx_stat(&f).requests, 2);
	assert_true(fx_stat(&f).output_tokens == 0xffffffffULL + 7);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(refuses_bad_configs),
	cmocka_unit_test(gives_all_back_when_memory_runs_out),
	cmocka_unit_test(takes_what_bytes_says),
	cmocka_unit_test(takes_at_most_160_bytes_a_block),
	cmocka_unit_test(starts_empty),
	cmocka_unit_test(frames_come_online),
	cmocka_unit_test(counts_clients),
	cmocka_unit_test(the_most_clients),
	cmocka_unit_test(counts_requests),
};

FX_TESTS(create_tests, tests);
