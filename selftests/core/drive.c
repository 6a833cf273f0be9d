// SPDX-License-Identifier: MIT
/*
 * Commands from numbers; see drive.h.  Pools are small, keys few, and time is
 * short, so that everything overflows, collides and expires.
 */
#include <stdlib.h>

#include "drive.h"

#define N 6	/* entries of a batch */

static void *drive_alloc(void *ctx, size_t bytes)
{
	(void)ctx;
	return calloc(1, bytes);
}

static void drive_free(void *ctx, void *mem, size_t bytes)
{
	(void)ctx;
	(void)bytes;
	free(mem);
}

static u32 below(struct drive *d, u32 n)
{
	return d->below(d->src, n);
}

static bool one_in(struct drive *d, u32 n)
{
	return !below(d, n);
}

void drive_open(struct drive *d)
{
	static const u32 quarantine[] = { 0, 30, 300 };
	struct kvmm_core_config cfg = {
		.nr_frames = 1 + below(d, SIM_FRAMES),
		.nr_slots = below(d, SIM_SLOTS + 1),
		.nr_holds = 1 + below(d, 12),
		.max_clients = SIM_CLIENTS,
		.block_size = SIM_BLOCK_SIZE,
		.quarantine_ms = quarantine[below(d, 3)],
		.secret = { below(d, 1000), below(d, 1000) },
		.alloc = drive_alloc,
		.free = drive_free,
	};

	if (!one_in(d, 3)) {
		cfg.unit_frames = 1U << below(d, 4);
		if (cfg.unit_frames > cfg.nr_frames)
			cfg.unit_frames = 1;
		cfg.nr_frames -= cfg.nr_frames % cfg.unit_frames;
		cfg.nr_elastic = cfg.unit_frames *
			(1 + below(d, cfg.nr_frames / cfg.unit_frames));
	}
	sim_open(&d->s, &cfg);
	d->nr_old = 0;
	if (!one_in(d, 4))
		sim_frames_online(&d->s, 0, cfg.nr_frames);
	if (cfg.nr_slots && !one_in(d, 4))
		sim_attach(&d->s, 1 + below(d, cfg.nr_slots));
	sim_client_add(&d->s);
}

void drive_close(struct drive *d)
{
	sim_close(&d->s);
}

static void remember(struct drive *d, u64 handle)
{
	d->old[d->nr_old++ % DRIVE_OLD] = handle;
}

static u32 a_client(struct drive *d)
{
	u32 k, c = below(d, SIM_CLIENTS);

	for (k = 0; k < SIM_CLIENTS; k++) {
		u32 id = 1 + (c + k) % SIM_CLIENTS;

		if (d->s.client[id])
			return id;
	}
	return sim_client_add(&d->s);
}

/* Mostly of a block that is there, in @state where there is such a one. */
static u64 a_handle(struct drive *d, int state)
{
	u32 start = below(d, SIM_BLOCKS), k, kind = below(d, 32);
	u64 any = 0;

	if (kind == 0)
		return 0;
	if (kind == 1)
		return (u64)below(d, 5) << 32 | below(d, SIM_BLOCKS + 3);
	if (kind == 2)
		return (u64)below(d, 65536) << 48 | (u64)below(d, 65536) << 24 |
			below(d, 65536);
	if (kind < 6 && d->nr_old)
		return d->old[below(d, d->nr_old < DRIVE_OLD ?
				    d->nr_old : DRIVE_OLD)];
	for (k = 0; k < SIM_BLOCKS; k++) {
		const struct m_block *b =
			&d->s.block[(start + k) % SIM_BLOCKS];

		if (!b->used)
			continue;
		if (state < 0 || b->state == state)
			return b->handle;
		any = b->handle;
	}
	return any;
}

/* Of a block that the client has pinned, where there is one. */
static u64 a_pinned_handle(struct drive *d, u32 client, bool filling)
{
	u32 start = below(d, SIM_BLOCKS), k;

	if (one_in(d, 16))
		return a_handle(d, -1);
	for (k = 0; k < SIM_BLOCKS; k++) {
		const struct m_block *b =
			&d->s.block[(start + k) % SIM_BLOCKS];

		if (b->used && b->pins[client] &&
		    (!filling || b->state == KVMM_FILLING))
			return b->handle;
	}
	return a_handle(d, filling ? KVMM_FILLING : -1);
}

static u64 an_id(struct drive *d)
{
	u32 n = 2 * d->s.c.nr_blocks;

	if (one_in(d, 3))
		n = n > 8 ? 8 : n;
	return 1 + below(d, n);
}

static u32 some_refs(struct drive *d, struct kvmm_block_ref *refs, int state)
{
	u32 n = 1 + below(d, N), k;

	for (k = 0; k < n; k++) {
		refs[k].handle = a_handle(d, state);
		refs[k].frame = 12345;
		refs[k].result = 12345;
	}
	return n;
}

static void do_alloc(struct drive *d)
{
	struct kvmm_block_ref refs[N];
	u32 n = 1 + below(d, N), k;

	memset(refs, 0, sizeof(refs));
	sim_alloc(&d->s, a_client(d), one_in(d, 4) ? below(d, 5) : 1, n, refs);
	for (k = 0; k < n; k++)
		if (refs[k].handle)
			remember(d, refs[k].handle);
}

static void an_entry(struct drive *d, u32 client, struct kvmm_publish_entry *e)
{
	static const u32 ttl[] = { 0, 0, 0, 5, 50, 500 };
	struct m_block *b;

	memset(e, 0, sizeof(*e));
	e->handle = a_pinned_handle(d, client, true);
	e->length = 1 + below(d, SIM_BLOCK_SIZE);
	sim_key(e->key, an_id(d));
	b = m_get(&d->s, e->handle);
	if (b && b->parts && !one_in(d, 8))
		sim_key(e->key, b->id);
	e->part = b && b->nr_parts > 1 ? below(d, b->nr_parts) : 0;
	e->parent = one_in(d, 3) ? 0 : a_handle(d, -1);
	e->position = below(d, 8);
	e->expiry_ms = ttl[below(d, 6)];
	e->cost_us = below(d, 200);
	e->priority = below(d, 256);
	e->flags = below(d, 4);
	e->existing = 77;
	if (!one_in(d, 32))
		return;
	switch (below(d, 5)) {
	case 0:
		memset(e->key, 0, sizeof(e->key));
		break;
	case 1:
		e->length = one_in(d, 2) ? 0 : SIM_BLOCK_SIZE + 1;
		break;
	case 2:
		e->part = below(d, 70);
		break;
	case 3:
		e->flags = below(d, 256);
		break;
	case 4:
		e->parent = e->handle;
		break;
	}
}

static void do_publish(struct drive *d)
{
	struct kvmm_publish_entry e[2 * N];
	struct kvmm_cursor cur = { 0 };
	u32 client = a_client(d), n = 1 + below(d, N), k;
	u32 flags = one_in(d, 4) ? KVMM_PUBLISH_KEEP : 0;

	for (k = 0; k < n; k++)
		an_entry(d, client, &e[k]);
	sim_publish(&d->s, client, flags, &cur, e, n);
	if (!one_in(d, 4))
		return;
	/* the next batch of the same command, maybe after something else */
	if (one_in(d, 2))
		drive_step(d);
	if (!d->s.client[client])
		return;
	an_entry(d, client, &e[0]);
	sim_publish(&d->s, client, flags, &cur, e, 1);
}

static void do_lookup(struct drive *d)
{
	struct kvmm_cursor cur = { 0 };
	struct kvmm_block_ref refs[N];
	u32 client = a_client(d), flags = below(d, 8), n = 1 + below(d, N), k;
	u64 ids[N];

	for (k = 0; k < n; k++)
		ids[k] = an_id(d);
	sim_lookup(&d->s, client, flags, &cur, ids, refs, n);
	if (!one_in(d, 4))
		return;
	if (one_in(d, 2))
		drive_step(d);
	if (!d->s.client[client])
		return;
	ids[0] = an_id(d);
	sim_lookup(&d->s, client, flags, &cur, ids, refs, 1);
}

static void do_touch(struct drive *d)
{
	struct kvmm_cursor cur = { 0 };
	struct kvmm_block_ref refs[N];
	u32 n = some_refs(d, refs, -1);

	sim_touch(&d->s, &cur, refs, n);
	if (!one_in(d, 4))
		return;
	if (one_in(d, 2))
		drive_step(d);
	n = some_refs(d, refs, -1);
	sim_touch(&d->s, &cur, refs, n);
}

static void do_unpin(struct drive *d)
{
	struct kvmm_block_ref refs[N];
	u32 client = a_client(d), n = 1 + below(d, N), k;

	for (k = 0; k < n; k++)
		refs[k].handle = a_pinned_handle(d, client, false);
	sim_unpin(&d->s, client, refs, n);
}

/* One in @n; some frames stay good, else nothing more would happen. */
static bool may_break(struct drive *d, u32 n)
{
	return one_in(d, n) && d->s.st.frames_poisoned < d->s.nr_frames / 2;
}

static void do_done(struct drive *d)
{
	static const int err[] = { -EIO, -EBADMSG, -EHWPOISON, -ENODATA };

	u32 which;

	if (!d->s.nr_io)
		return;
	which = below(d, d->s.nr_io);
	if (one_in(d, 24) && sim_late(&d->s, which))
		return;
	sim_done(&d->s, which, one_in(d, 24) ? err[below(d, 4)] : 0);
}

static void do_client_del(struct drive *d)
{
	u32 client = 1 + below(d, SIM_CLIENTS);

	if (d->s.client[client])
		sim_client_del(&d->s, client);
}

static void do_time(struct drive *d)
{
	static const u32 step[] = { 1, 5, 20, 200 };

	d->s.now += 1 + below(d, step[below(d, 4)]);
}

/* A unit gives its memory back, or some other frames are asked to. */
static void do_offline(struct drive *d)
{
	u32 flags = below(d, 4), first = below(d, d->s.nr_frames);
	struct sim *s = &d->s;

	if (one_in(d, 8)) {
		sim_frames_offline(s, below(d, s->nr_frames + 2),
				   1 + below(d, 5), flags);
		return;
	}
	sim_frames_offline(s, first - first % s->unit, s->unit, flags);
}

static void do_swap_in(struct drive *d)
{
	u32 client = a_client(d), flags = one_in(d, 2) ? KVMM_SWAP_PIN : 0;
	u64 handle = a_handle(d, KVMM_SWAPPED);

	if (may_break(d, 32))
		sim_swap_in_bad(&d->s, client, handle, flags);
	else
		sim_swap_in(&d->s, client, handle, flags);
}

/* Rarely; but an area that is going, or no good, goes soon. */
static void do_area(struct drive *d)
{
	if (!d->s.nr_slots) {
		sim_attach(&d->s, below(d, d->s.c.cfg.nr_slots + 2));
		return;
	}
	if (one_in(d, 64))
		sim_attach(&d->s, 1);
	if (d->s.detaching && one_in(d, 4))
		sim_detach_cancel(&d->s);
	else if (d->s.detaching || d->s.degraded || one_in(d, 32))
		sim_detach(&d->s, one_in(d, 2));
}

void drive_step(struct drive *d)
{
	struct kvmm_block_ref refs[N];
	struct sim *s = &d->s;
	u32 k = below(d, 128), n;

	if (k < 14) {
		do_alloc(d);
	} else if (k < 30) {
		do_publish(d);
	} else if (k < 44) {
		do_lookup(d);
	} else if (k < 49) {
		do_touch(d);
	} else if (k < 54) {
		n = some_refs(d, refs, -1);
		sim_pin(s, a_client(d), !one_in(d, 4), refs, n);
	} else if (k < 68) {
		do_unpin(d);
	} else if (k < 70) {
		n = some_refs(d, refs, -1);
		sim_drop(s, a_client(d), refs, n);
	} else if (k < 72) {
		n = some_refs(d, refs, -1);
		sim_query(s, refs, n);
	} else if (k == 72) {
		sim_keys(s, 1 + below(d, 9));
	} else if (k < 76) {
		sim_chain(s, a_handle(d, -1));
	} else if (k < 78) {
		sim_hint(s, one_in(d, 3) ? 500 : 0, a_handle(d, -1));
	} else if (k < 88) {
		sim_swap_out(s, a_handle(d, KVMM_RESIDENT),
			     one_in(d, 2) ? KVMM_SWAP_DROP : 0);
	} else if (k < 98) {
		do_swap_in(d);
	} else if (k < 112) {
		do_done(d);
	} else if (k < 116) {
		sim_reclaim(s, below(d, s->nr_frames + 1), 1 + below(d, N));
	} else if (k < 119) {
		do_area(d);
	} else if (k == 119) {
		sim_client_add(s);
	} else if (k == 120) {
		if (one_in(d, 3))
			do_client_del(d);
		else if (may_break(d, 8))
			sim_retire(s, a_handle(d, below(d, KVMM_NR_STATES)));
	} else if (k == 121) {
		if (one_in(d, 16))
			sim_reset(s);
		s->c.load_us = s->load_us = below(d, 200);
	} else if (k == 122) {
		sim_frames_online(s, below(d, s->nr_frames + 1),
				  1 + below(d, one_in(d, 4) ? 24 : 4));
	} else if (k == 123) {
		sim_clean(s, below(d, s->nr_frames + 2), 1 + below(d, N));
	} else if (k < 126) {
		do_offline(d);
	} else if (k == 126) {
		if (one_in(d, 2))
			sim_free_unit(s, below(d, s->nr_frames + 2));
		else
			sim_cold_frames(s, below(d, 2));
	} else {
		do_time(d);
	}
	if (s->ops % d->check_every == 0)
		sim_compare_all(s);
}
