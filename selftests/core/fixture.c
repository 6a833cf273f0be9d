// SPDX-License-Identifier: MIT
/*
 * The pool that the unit tests work on; see fixture.h.
 */
#include <stdlib.h>

#include "fixture.h"

static void *fx_mem_alloc(void *ctx, size_t bytes)
{
	struct fx *f = ctx;
	void *mem;

	/* what kvmm_core_config.alloc promises is the most it is asked for */
	assert_true(bytes <= 16 << 20);
	if (f->fail_after == 0)
		return NULL;
	if (f->fail_after > 0)
		f->fail_after--;
	mem = aligned_alloc(64, (bytes + 63) / 64 * 64);
	assert_non_null(mem);
	memset(mem, 0, bytes);
	f->taken += bytes;
	return mem;
}

static void fx_mem_free(void *ctx, void *mem, size_t bytes)
{
	struct fx *f = ctx;

	if (!mem)
		return;
	assert_true(f->taken >= bytes);
	f->taken -= bytes;
	free(mem);
}

void fx_config(struct fx *f, u32 frames, u32 slots)
{
	memset(f, 0, sizeof(*f));
	f->fail_after = -1;
	f->now = 1000;
	f->cfg = (struct kvmm_core_config){
		.nr_frames = frames,
		.nr_slots = slots,
		.nr_holds = FX_HOLDS,
		.max_clients = FX_CLIENTS,
		.quarantine_ms = FX_QUARANTINE,
		.block_size = FX_BLOCK_SIZE,
		.secret = { 0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL },
		.alloc = fx_mem_alloc,
		.free = fx_mem_free,
		.ctx = f,
	};
}

/* A pool with all frames online, all slots attached and one client. */
void fx_open(struct fx *f, u32 frames, u32 slots)
{
	fx_open_elastic(f, frames, slots, 0, 0);
}

/* The same, and its last frames may go offline. */
void fx_open_elastic(struct fx *f, u32 frames, u32 slots, u32 elastic, u32 unit)
{
	u32 first;

	fx_config(f, frames, slots);
	f->cfg.nr_elastic = elastic;
	f->cfg.unit_frames = unit;
	assert_int_equal(kvmm_core_init(&f->c, &f->cfg), 0);
	fx_check(f);
	for (first = 0; first < frames; first += KVMM_CORE_BATCH) {
		u32 n = frames - first;

		if (n > KVMM_CORE_BATCH)
			n = KVMM_CORE_BATCH;
		assert_int_equal(kvmm_core_frames_online(&f->c, first, n), n);
	}
	if (slots)
		assert_int_equal(kvmm_core_attach(&f->c, slots), 0);
	f->me = kvmm_core_client_add(&f->c);
	assert_int_not_equal(f->me, 0);
	fx_check(f);
}

void fx_close(struct fx *f)
{
	f->lazy = false;
	fx_check(f);
	kvmm_core_exit(&f->c);
	assert_int_equal(f->taken, 0);
}

void fx_check(struct fx *f)
{
	const char *what = f->lazy ? NULL : kvmm_core_check(&f->c);

	if (what)
		fail_msg("kvmm_core_check: %s", what);
}

struct kvmm_pool_stat fx_stat(struct fx *f)
{
	struct kvmm_pool_stat st;

	memset(&st, 0, sizeof(st));
	kvmm_core_stat(&f->c, &st);
	return st;
}

void fx_key(u8 *key, u64 id)
{
	u64 word[KVMM_KEY_LEN / 8] = { id, ~id, id * 0x9e3779b97f4a7c15ULL, 1 };

	memcpy(key, word, KVMM_KEY_LEN);
}

struct kvmm_publish_entry fx_entry(u64 handle, u64 id)
{
	struct kvmm_publish_entry e = {
		.handle = handle,
		.length = FX_BLOCK_SIZE,
	};

	fx_key(e.key, id);
	return e;
}

u64 fx_alloc_by(struct fx *f, u32 client, u32 parts)
{
	struct kvmm_block_ref ref = { 0 };

	assert_int_equal(kvmm_core_alloc(&f->c, client, parts, f->now, &ref, 1),
			 1);
	fx_check(f);
	assert_int_not_equal(ref.handle, 0);
	assert_int_not_equal(ref.handle >> 32, 0);
	assert_true(ref.frame < f->cfg.nr_frames);
	assert_int_equal(ref.result, 0);
	return ref.handle;
}

u64 fx_alloc(struct fx *f)
{
	return fx_alloc_by(f, f->me, 1);
}

/* Returns the error of an allocation that has to fail. */
int fx_alloc_fails(struct fx *f)
{
	struct kvmm_block_ref ref = { 0 };
	int ret = kvmm_core_alloc(&f->c, f->me, 1, f->now, &ref, 1);

	fx_check(f);
	assert_true(ret < 0);
	return ret;
}

s32 fx_publish_entry(struct fx *f, u32 client, u32 flags,
		     struct kvmm_publish_entry *e)
{
	struct kvmm_cursor cur = { 0 };

	e->result = 77;
	e->existing = 77;
	kvmm_core_publish(&f->c, client, flags, f->now, &cur, e, 1);
	fx_check(f);
	if (e->result != -EEXIST)
		assert_int_equal(e->existing, 0);
	return e->result;
}

s32 fx_publish(struct fx *f, u64 handle, u64 id)
{
	struct kvmm_publish_entry e = fx_entry(handle, id);

	return fx_publish_entry(f, f->me, 0, &e);
}

u64 fx_block_with(struct fx *f, u64 id, u64 parent, u32 expiry_ms,
		  u32 cost_us, u8 flags)
{
	u64 handle = fx_alloc(f);
	struct kvmm_publish_entry e = fx_entry(handle, id);

	e.parent = parent;
	/* grows with every block, so also along every chain */
	e.position = parent ? ++f->position : 0;
	e.expiry_ms = expiry_ms;
	e.cost_us = cost_us;
	e.flags = flags;
	assert_int_equal(fx_publish_entry(f, f->me, 0, &e), 0);
	return handle;
}

/* A published block that nobody pins; each is younger than the one before. */
u64 fx_block(struct fx *f, u64 id)
{
	return fx_block_with(f, id, 0, 0, 0, 0);
}

void fx_fill(struct fx *f, u64 *handles, u64 first_id, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		handles[i] = fx_block(f, first_id + i);
}

struct kvmm_block_ref fx_lookup_by(struct fx *f, u32 client, u64 id, u32 flags)
{
	struct kvmm_block_ref ref = { 0 };
	struct kvmm_cursor cur = { 0 };
	u8 key[KVMM_KEY_LEN];
	u32 prefix;

	fx_key(key, id);
	prefix = kvmm_core_lookup(&f->c, client, flags, f->now, &cur, key, &ref,
				  1);
	fx_check(f);
	assert_int_equal(prefix, ref.result > KVMM_MISS);
	return ref;
}

s32 fx_lookup(struct fx *f, u64 id, u32 flags)
{
	return fx_lookup_by(f, f->me, id, flags).result;
}

/* Is the key known; changes nothing. */
bool fx_has(struct fx *f, u64 id)
{
	return fx_lookup(f, id, KVMM_LOOKUP_PEEK) != KVMM_MISS;
}

s32 fx_touch(struct fx *f, u64 handle)
{
	struct kvmm_block_ref ref = { .handle = handle };
	struct kvmm_cursor cur = { 0 };

	kvmm_core_touch(&f->c, f->now, &cur, &ref, 1);
	fx_check(f);
	return ref.result;
}

s32 fx_pin_by(struct fx *f, u32 client, u64 handle)
{
	struct kvmm_block_ref ref = { .handle = handle };

	kvmm_core_pin(&f->c, client, true, &ref, 1);
	fx_check(f);
	return ref.result;
}

s32 fx_pin(struct fx *f, u64 handle)
{
	return fx_pin_by(f, f->me, handle);
}

s32 fx_unpin_by(struct fx *f, u32 client, u64 handle)
{
	struct kvmm_block_ref ref = { .handle = handle };

	kvmm_core_unpin(&f->c, client, &ref, 1);
	fx_check(f);
	return ref.result;
}

s32 fx_unpin(struct fx *f, u64 handle)
{
	return fx_unpin_by(f, f->me, handle);
}

s32 fx_drop(struct fx *f, u64 handle)
{
	struct kvmm_block_ref ref = { .handle = handle };

	kvmm_core_drop(&f->c, f->me, &ref, 1);
	fx_check(f);
	return ref.result;
}

s32 fx_query(struct fx *f, u64 handle)
{
	struct kvmm_block_ref ref = { .handle = handle };

	kvmm_core_query(&f->c, f->now, &ref, 1);
	fx_check(f);
	switch (ref.result) {
	case KVMM_FILLING:
	case KVMM_RESIDENT:
	case KVMM_WRITING:
	case KVMM_CLEAN:
		assert_true(ref.frame < f->cfg.nr_frames);
		break;
	case KVMM_SWAPPED:
		assert_int_equal(ref.frame, KVMM_NO_FRAME);
		break;
	}
	return ref.result;
}

int fx_out_start(struct fx *f, u64 handle, u32 flags, struct kvmm_io *io)
{
	int ret;

	memset(io, 0, sizeof(*io));
	ret = kvmm_core_swap_out(&f->c, handle, flags, f->now, io);
	fx_check(f);
	if (ret == KVMM_IO_ISSUE) {
		assert_true(io->frame < f->cfg.nr_frames);
		assert_true(io->slot < f->cfg.nr_slots);
	}
	if (ret >= 0)
		assert_int_equal(io->handle, handle);
	return ret;
}

void fx_out_end(struct fx *f, u64 handle, int err)
{
	kvmm_core_write_done(&f->c, handle, err, (u32)handle);
	fx_check(f);
}

/* Writes a block out, whole. */
void fx_out(struct fx *f, u64 handle, u32 flags)
{
	struct kvmm_io io;

	assert_int_equal(fx_out_start(f, handle, flags, &io), KVMM_IO_ISSUE);
	fx_out_end(f, handle, 0);
}

int fx_in_start(struct fx *f, u64 handle, u32 flags, struct kvmm_io *io)
{
	int ret;

	memset(io, 0, sizeof(*io));
	ret = kvmm_core_swap_in(&f->c, f->me, handle, flags, f->now, io);
	fx_check(f);
	if (ret == KVMM_IO_ISSUE) {
		assert_true(io->frame < f->cfg.nr_frames);
		assert_true(io->slot < f->cfg.nr_slots);
		assert_int_equal(io->crc, (u32)handle);
	}
	if (ret >= 0)
		assert_int_equal(io->handle, handle);
	return ret;
}

void fx_in_end(struct fx *f, u64 handle, int err)
{
	kvmm_core_read_done(&f->c, handle, err);
	fx_check(f);
}

void fx_in(struct fx *f, u64 handle, u32 flags)
{
	struct kvmm_io io;

	assert_int_equal(fx_in_start(f, handle, flags, &io), KVMM_IO_ISSUE);
	fx_in_end(f, handle, 0);
}

void fx_client_del(struct fx *f, u32 client)
{
	int rounds = 0;

	while (!kvmm_core_client_del(&f->c, client, f->now)) {
		fx_check(f);
		assert_true(++rounds < 1000);
	}
	fx_check(f);
}

/* Reclaims with all its writes; returns the frames still in use. */
u32 fx_reclaim(struct fx *f, u32 keep, struct kvmm_reclaim_count *count)
{
	struct kvmm_reclaim_count unused = { 0 };
	struct kvmm_io io[KVMM_CORE_BATCH];
	u32 i, n, rounds = 0;

	if (!count)
		count = &unused;
	do {
		n = kvmm_core_reclaim(&f->c, keep, f->now, io, KVMM_CORE_BATCH,
				      count);
		fx_check(f);
		assert_true(n <= KVMM_CORE_BATCH);
		for (i = 0; i < n; i++)
			fx_out_end(f, io[i].handle, 0);
		assert_true(++rounds < 10000);
	} while (n || count->more);
	return kvmm_core_frames_used(&f->c);
}

int fx_detach(struct fx *f, bool discard)
{
	int ret, rounds = 0;

	do {
		ret = kvmm_core_detach(&f->c, discard, f->now);
		fx_check(f);
	} while (ret == -EAGAIN && ++rounds < 1000);
	return ret;
}

int fx_chain(struct fx *f, u64 *handle)
{
	int ret = kvmm_core_chain(&f->c, f->now, handle);

	fx_check(f);
	return ret;
}

int fx_hint(struct fx *f, u32 permille, u64 *handle)
{
	struct kvmm_cursor cur = { 0 };
	int ret = kvmm_core_hint(&f->c, permille, f->now, &cur, handle);

	fx_check(f);
	return ret;
}
