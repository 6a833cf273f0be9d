// SPDX-License-Identifier: MIT
/*
 * What the host is told: each way a published block loses its frame or itself,
 * once, while it still has what it is about to lose.
 */
#include "fixture.h"

#define MAX_NOTES 64

static struct note {
	enum kvmm_core_note what;
	u64 handle;
	u8 key[KVMM_KEY_LEN];
	u32 frame;
	u32 slot;
} notes[MAX_NOTES];

static u32 nr_notes;

static void take_note(void *ctx, enum kvmm_core_note what, u64 handle,
		      const struct kvmm_block *b)
{
	struct fx *f = ctx;
	struct note *n = &notes[nr_notes++];

	assert_true(nr_notes <= MAX_NOTES);
	assert_ptr_equal(f->c.cfg.ctx, f);
	n->what = what;
	n->handle = handle;
	memcpy(n->key, b->key, KVMM_KEY_LEN);
	n->frame = b->frame;
	n->slot = b->slot;
}

static void open_noted(struct fx *f, u32 frames, u32 slots)
{
	fx_open(f, frames, slots);
	f->c.cfg.note = take_note;
	nr_notes = 0;
}

/* Exactly this one since the last look. */
static void assert_note(enum kvmm_core_note what, u64 handle, u64 id)
{
	u8 key[KVMM_KEY_LEN];

	fx_key(key, id);
	assert_int_equal(nr_notes, 1);
	assert_int_equal(notes[0].what, what);
	assert_true(notes[0].handle == handle);
	assert_memory_equal(notes[0].key, key, KVMM_KEY_LEN);
	nr_notes = 0;
}

static void eviction_is_told(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h[3];

	(void)state;
	open_noted(&f, 3, 4);
	fx_fill(&f, h, 1, 3);
	/* written, and still in memory: nothing is lost */
	fx_out(&f, h[0], 0);
	assert_int_equal(nr_notes, 0);
	/* its frame goes to another */
	fx_alloc(&f);
	assert_int_equal(notes[0].frame, 0);
	assert_int_not_equal(notes[0].slot, KVMM_NONE);
	assert_note(KVMM_NOTE_EVICTED, h[0], 1);
	/* told when the write is done, not when it begins */
	assert_int_equal(fx_out_start(&f, h[1], KVMM_SWAP_DROP, &io),
			 KVMM_IO_ISSUE);
	assert_int_equal(nr_notes, 0);
	fx_out_end(&f, h[1], 0);
	assert_int_equal(notes[0].frame, io.frame);
	assert_int_equal(notes[0].slot, io.slot);
	assert_note(KVMM_NOTE_EVICTED, h[1], 2);
	/* wanted again meanwhile: it stays */
	assert_int_equal(fx_out_start(&f, h[2], KVMM_SWAP_DROP, &io),
			 KVMM_IO_ISSUE);
	assert_int_equal(fx_pin(&f, h[2]), 0);
	fx_out_end(&f, h[2], 0);
	assert_int_equal(nr_notes, 0);
	fx_close(&f);
}

static void purges_are_told(void **state)
{
	struct fx f;
	u64 h[2];

	(void)state;
	open_noted(&f, 2, 0);
	fx_fill(&f, h, 1, 2);
	fx_alloc(&f);
	assert_note(KVMM_NOTE_PURGED, h[0], 1);
	fx_reclaim(&f, 1, NULL);
	assert_note(KVMM_NOTE_PURGED, h[1], 2);
	fx_close(&f);
}

static void lost_slots_are_told(void **state)
{
	struct kvmm_io io;
	struct fx f;
	u64 h[3];

	(void)state;
	open_noted(&f, 3, 1);
	fx_fill(&f, h, 1, 3);
	fx_out(&f, h[0], KVMM_SWAP_DROP);
	nr_notes = 0;
	assert_int_equal(fx_out_start(&f, h[1], KVMM_SWAP_DROP, &io),
			 KVMM_IO_ISSUE);
	assert_int_equal(notes[0].slot, io.slot);
	assert_note(KVMM_NOTE_SLOT, h[0], 1);
	fx_out_end(&f, h[1], 0);
	assert_note(KVMM_NOTE_EVICTED, h[1], 2);
	/* a detach that may lose what is swapped */
	assert_int_equal(fx_detach(&f, true), 0);
	assert_note(KVMM_NOTE_SLOT, h[1], 2);
	fx_close(&f);
}

/* Told when it is met, by whatever meets it, and once. */
static void expiry_is_told(void **state)
{
	struct fx f;
	u64 h;

	(void)state;
	open_noted(&f, 2, 0);
	h = fx_block_with(&f, 1, 0, 100, 0, 0);
	assert_int_equal(fx_pin(&f, h), 0);
	f.now += 100;
	assert_int_equal(nr_notes, 0);
	assert_false(fx_has(&f, 1));
	assert_note(KVMM_NOTE_EXPIRED, h, 1);
	assert_false(fx_has(&f, 1));
	assert_int_equal(fx_unpin(&f, h), 0);
	assert_int_equal(fx_query(&f, h), -ESTALE);
	assert_int_equal(nr_notes, 0);
	fx_close(&f);
}

static void failed_reads_are_told(void **state)
{
	static const int err[] = { -EIO, -EBADMSG };
	struct kvmm_io io;
	struct fx f;
	u64 h;
	int k;

	(void)state;
	for (k = 0; k < 3; k++) {
		open_noted(&f, 2, 2);
		h = fx_block(&f, 1);
		fx_out(&f, h, KVMM_SWAP_DROP);
		nr_notes = 0;
		assert_int_equal(fx_in_start(&f, h, KVMM_SWAP_PIN, &io),
				 KVMM_IO_ISSUE);
		if (k < 2) {
			fx_in_end(&f, h, err[k]);
			assert_note(KVMM_NOTE_UNREADABLE, h, 1);
		} else {
			/* dropped meanwhile: a client's own doing */
			assert_int_equal(fx_drop(&f, h), 0);
			fx_in_end(&f, h, -EIO);
			assert_int_equal(nr_notes, 0);
		}
		fx_close(&f);
	}
}

/* Clients know of these themselves. */
static void drops_and_resets_are_not_told(void **state)
{
	struct fx f;
	u64 h[4];

	(void)state;
	open_noted(&f, 5, 4);
	fx_fill(&f, h, 1, 4);
	fx_out(&f, h[1], KVMM_SWAP_DROP);
	nr_notes = 0;
	assert_int_equal(fx_drop(&f, h[0]), 0);
	assert_int_equal(fx_drop(&f, h[1]), 0);
	/* one that was never published */
	assert_int_equal(fx_unpin(&f, fx_alloc(&f)), 0);
	kvmm_core_reset(&f.c);
	assert_false(fx_has(&f, 3) || fx_has(&f, 4));
	fx_reclaim(&f, 0, NULL);
	assert_int_equal(nr_notes, 0);
	fx_close(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(eviction_is_told),
	cmocka_unit_test(purges_are_told),
	cmocka_unit_test(lost_slots_are_told),
	cmocka_unit_test(expiry_is_told),
	cmocka_unit_test(failed_reads_are_told),
	cmocka_unit_test(drops_and_resets_are_not_told),
};

FX_TESTS(note_tests, tests);
