// SPDX-License-Identifier: MIT
/*
 * The death of a client, with its blocks in every state, and quarantine.
 */
#include "fixture.h"

static void what_it_was_filling_rests(void **state)
{
	struct fx f;
	u32 other;
	int i;

	(void)state;
	fx_open(&f, 4, 0);
	other = kvmm_core_client_add(&f.c);
	for (i = 0; i < 3; i++)
		fx_alloc_by(&f, other, 1);
	fx_client_del(&f, other);
	assert_int_equal(fx_stat(&f).frames_quarantined, 3);
	assert_int_equal(fx_stat(&f).frames_free, 1);
	assert_int_equal(fx_stat(&f).clients_dead, 1);
	assert_int_equal(kvmm_core_frames_used(&f.c), 0);
	fx_alloc(&f);
	assert_int_equal(fx_alloc_fails(&f), -EAGAIN);
	f.now += FX_QUARANTINE - 1;
	assert_int_equal(fx_alloc_fails(&f), -EAGAIN);
	f.now += 1;
	for (i = 0; i < 3; i++)
		fx_alloc(&f);
	assert_int_equal(fx_stat(&f).frames_quarantined, 0);
	assert_int_equal(fx_alloc_fails(&f), -ENOSPC);
	fx_close(&f);
}

static void quarantine_outlives_the_low_half_of_the_clock(void **state)
{
	struct fx f;
	u32 other;

	(void)state;
	fx_open(&f, 1, 0);
	f.now = 0xffffffffULL - FX_QUARANTINE / 2;
	other = kvmm_core_client_add(&f.c);
	fx_alloc_by(&f, other, 1);
	fx_client_del(&f, other);
	f.now += FX_QUARANTINE - 1;
	assert_int_equal(fx_alloc_fails(&f), -EAGAIN);
	f.now += 1;
	fx_alloc(&f);
	fx_close(&f);
}

static void no_quarantine(void **state)
{
	struct fx f;
	u32 other;

	(void)state;
	fx_config(&f, 1, 0);
	f.cfg.quarantine_ms = 0;
	assert_int_equal(kvmm_core_init(&f.c, &f.cfg), 0);
	kvmm_core_frames_online(&f.c, 0, 1);
	f.me = kvmm_core_client_add(&f.c);
	other = kvmm_core_client_add(&f.c);
	fx_alloc_by(&f, other, 1);
	fx_client_del(&f, other);
	assert_int_equal(fx_stat(&f).frames_free, 1);
	fx_alloc(&f);
	fx_close(&f);
}

static void its_pins_drop(void **state)
{
	struct fx f;
	u32 other;
	u64 h;

	(void)state;
	fx_open(&f, 1, 0);
	other = kvmm_core_client_add(&f.c);
	h = fx_block(&f, 1);
	assert_int_equal(fx_pin_by(&f, other, h), 0);
	assert_int_equal(fx_pin_by(&f, other, h), 0);
	fx_client_del(&f, other);
	assert_int_equal(fx_stat(&f).pins, 0);
	/* a published block lives on */
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);
	fx_alloc(&f);
	fx_close(&f);
}

static void shared_filling_blocks_live_on(void **state)
{
	struct fx f;
	u32 other;
	u64 h;

	(void)state;
	fx_open(&f, 1, 0);
	other = kvmm_core_client_add(&f.c);
	h = fx_alloc_by(&f, other, 1);
	assert_int_equal(fx_pin(&f, h), 0);
	fx_client_del(&f, other);
	assert_int_equal(fx_query(&f, h), KVMM_FILLING);
	assert_int_equal(fx_stat(&f).frames_quarantined, 0);
	assert_int_equal(fx_publish(&f, h, 1), 0);
	assert_int_equal(fx_lookup(&f, 1, 0), KVMM_MEMORY);
	fx_close(&f);
}

/* Whoever was filling it may go on for a while after its death. */
static void shared_filling_blocks_rest_in_the_end(void **state)
{
	struct fx f;
	u32 other;
	u64 h;

	(void)state;
	fx_open(&f, 1, 0);
	other = kvmm_core_client_add(&f.c);
	h = fx_alloc_by(&f, other, 1);
	assert_int_equal(fx_pin(&f, h), 0);
	fx_client_del(&f, other);
	f.now += 10;
	assert_int_equal(fx_unpin(&f, h), 0);
	assert_int_equal(fx_stat(&f).frames_quarantined, 1);
	f.now += FX_QUARANTINE - 11;
	assert_int_equal(fx_alloc_fails(&f), -EAGAIN);
	f.now += 1;
	fx_alloc(&f);
	fx_close(&f);
}

/* Nobody may have looked for a month and a half. */
static void quarantine_ends(void **state)
{
	struct fx f;
	u32 other, i;

	(void)state;
	for (i = 0; i < 40; i++) {
		fx_open(&f, 1, 0);
		other = kvmm_core_client_add(&f.c);
		fx_alloc_by(&f, other, 1);
		fx_client_del(&f, other);
		f.now += FX_QUARANTINE + i * 150000000ULL;
		fx_alloc(&f);
		fx_close(&f);
	}
}

static void death_while_moving(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u32 other;
	u64 in, out;
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		fx_open(&f, 2, 2);
		other = kvmm_core_client_add(&f.c);
		in = fx_block(&f, 1);
		fx_out(&f, in, KVMM_SWAP_DROP);
		assert_int_equal(kvmm_core_swap_in(&f.c, other, in,
						   KVMM_SWAP_PIN, f.now, &io),
				 KVMM_IO_ISSUE);
		out = fx_block(&f, 2);
		assert_int_equal(fx_pin_by(&f, other, out), 0);
		assert_int_equal(fx_out_start(&f, out, KVMM_SWAP_DROP, &io),
				 KVMM_IO_ISSUE);
		fx_client_del(&f, other);
		assert_int_equal(fx_stat(&f).pins, 0);
		assert_int_equal(fx_query(&f, in), KVMM_READING);
		assert_int_equal(fx_query(&f, out), KVMM_WRITING);
		fx_in_end(&f, in, i ? -EIO : 0);
		fx_out_end(&f, out, i ? -EIO : 0);
		assert_int_equal(fx_query(&f, in), i ? -ESTALE : KVMM_CLEAN);
		assert_int_equal(fx_query(&f, out),
				 i ? KVMM_RESIDENT : KVMM_CLEAN);
		fx_close(&f);
	}
}

static void death_with_doomed_blocks(void **state)
{
	struct kvmm_block_ref ref = { 0 };
	struct fx f;
	u32 other;
	u64 h;

	(void)state;
	fx_open(&f, 3, 2);
	other = kvmm_core_client_add(&f.c);
	h = fx_block(&f, 1);
	assert_int_equal(fx_pin_by(&f, other, h), 0);
	assert_int_equal(fx_drop(&f, h), 0);
	ref.handle = fx_alloc_by(&f, other, 1);
	kvmm_core_drop(&f.c, other, &ref, 1);
	assert_int_equal(ref.result, 0);
	fx_client_del(&f, other);
	/* the one that was being filled rests all the same */
	assert_int_equal(fx_stat(&f).frames_quarantined, 1);
	assert_int_equal(fx_stat(&f).frames_free, 2);
	fx_close(&f);
}

static void a_dead_client_gives_its_holds_back(void **state)
{
	u32 id[3];
	u64 h[4];
	struct fx f;
	u32 i, k;

	(void)state;
	fx_open(&f, 4, 0);
	fx_fill(&f, h, 1, 4);
	for (i = 0; i < 4; i++)
		assert_int_equal(fx_pin(&f, h[i]), 0);
	for (k = 0; k < 5; k++) {
		for (i = 0; i < 2; i++)
			id[i] = kvmm_core_client_add(&f.c);
		for (i = 0; i < FX_HOLDS; i++)
			assert_int_equal(fx_pin_by(&f, id[i / 4], h[i % 4]), 0);
		assert_int_equal(fx_stat(&f).pins, 4 + FX_HOLDS);
		for (i = 0; i < 2; i++)
			fx_client_del(&f, id[(i + k) % 2]);
		assert_int_equal(fx_stat(&f).pins, 4);
	}
	assert_int_equal(fx_stat(&f).blocks_pinned, 4);
	fx_close(&f);
}

static void a_death_takes_bounded_steps(void **state)
{
	struct kvmm_block_ref refs[KVMM_CORE_BATCH];
	struct fx f;
	u32 other, i, steps = 0;

	(void)state;
	fx_open(&f, 3 * KVMM_CORE_BATCH, 0);
	other = kvmm_core_client_add(&f.c);
	for (i = 0; i < 3; i++)
		assert_int_equal(kvmm_core_alloc(&f.c, other, 1, f.now, refs,
						 KVMM_CORE_BATCH),
				 KVMM_CORE_BATCH);
	while (!kvmm_core_client_del(&f.c, other, f.now)) {
		fx_check(&f);
		steps++;
	}
	fx_check(&f);
	assert_in_range(steps, 2, 3);
	assert_int_equal(fx_stat(&f).clients_dead, 1);
	assert_int_equal(fx_stat(&f).frames_quarantined, 3 * KVMM_CORE_BATCH);
	fx_close(&f);
}

static void a_new_client_has_none_of_the_old_ones(void **state)
{
	struct fx f;
	u32 other;
	u64 h;

	(void)state;
	fx_open(&f, 2, 0);
	other = kvmm_core_client_add(&f.c);
	h = fx_block(&f, 1);
	assert_int_equal(fx_pin_by(&f, other, h), 0);
	fx_client_del(&f, other);
	assert_int_equal(kvmm_core_client_add(&f.c), other);
	assert_int_equal(fx_unpin_by(&f, other, h), -EINVAL);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(what_it_was_filling_rests),
	cmocka_unit_test(quarantine_outlives_the_low_half_of_the_clock),
	cmocka_unit_test(no_quarantine),
	cmocka_unit_test(its_pins_drop),
	cmocka_unit_test(shared_filling_blocks_live_on),
	cmocka_unit_test(shared_filling_blocks_rest_in_the_end),
	cmocka_unit_test(quarantine_ends),
	cmocka_unit_test(death_while_moving),
	cmocka_unit_test(death_with_doomed_blocks),
	cmocka_unit_test(a_dead_client_gives_its_holds_back),
	cmocka_unit_test(a_death_takes_bounded_steps),
	cmocka_unit_test(a_new_client_has_none_of_the_old_ones),
};

FX_TESTS(client_tests, tests);
