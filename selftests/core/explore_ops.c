// SPDX-License-Identifier: MIT
/*
 * The commands that the model check gives in a state; see explore.h.
 */
#include <stdio.h>

#include "explore.h"

static const char *const kind_name[NR_KINDS] = {
	"alloc", "publish", "lookup", "pin", "unpin", "drop", "touch",
	"swap_out", "swap_in", "done", "reclaim", "hint", "chain", "attach",
	"detach", "reset", "client_add", "client_del", "time",
	"detach_cancel", "io_late", "clean", "frames_offline", "frames_online",
	"retire", "swap_in_bad"
};

void print_op(const struct op *op)
{
	printf("#   %s %u %u %u\n", kind_name[op->kind], op->a, op->b, op->c);
}

static u64 handle_at(u32 i)
{
	return pool.block[i].used ? pool.block[i].handle : 0;
}

static void publish_op(const struct op *op)
{
	struct kvmm_publish_entry e = {
		.handle = handle_at(op->a),
		.length = SIM_BLOCK_SIZE,
		.flags = op->b == 1 ? KVMM_BLOCK_RECOMPUTABLE : 0,
		.expiry_ms = op->b == 2 ? TICK : 0,
		.cost_us = 1,
		.position = op->b - 1,
	};
	struct kvmm_cursor cur = { 0 };
	struct m_block *other = m_find(&pool, 3 - op->b);
	u32 client = 1 + (op->c & 1);

	sim_key(e.key, op->b);
	e.parent = other ? other->handle : 0;
	e.part = op->c >> 2;
	sim_publish(&pool, client, op->c & 2 ? KVMM_PUBLISH_KEEP : 0, &cur, &e,
		    1);
}

static void ref_op(const struct op *op)
{
	struct kvmm_block_ref ref = { .handle = handle_at(op->a) };
	struct kvmm_cursor cur = { 0 };
	u64 id = op->a;

	switch (op->kind) {
	case ALLOC:
		sim_alloc(&pool, op->a, op->b, 1, &ref);
		break;
	case LOOKUP:
		sim_lookup(&pool, op->b, op->c, &cur, &id, &ref, 1);
		break;
	case PIN:
		sim_pin(&pool, op->b, true, &ref, 1);
		break;
	case UNPIN:
		sim_unpin(&pool, op->b, &ref, 1);
		break;
	case DROP:
		sim_drop(&pool, op->b, &ref, 1);
		break;
	case TOUCH:
		sim_touch(&pool, &cur, &ref, 1);
		break;
	}
}

void do_op(const struct op *op)
{
	switch (op->kind) {
	case PUBLISH:
		publish_op(op);
		break;
	case SWAP_OUT:
		sim_swap_out(&pool, handle_at(op->a), op->b);
		break;
	case SWAP_IN:
		sim_swap_in(&pool, op->b, handle_at(op->a), op->c);
		break;
	case SWAP_IN_BAD:
		sim_swap_in_bad(&pool, op->b, handle_at(op->a), op->c);
		break;
	case RETIRE:
		sim_retire(&pool, handle_at(op->a));
		break;
	case DONE:
		sim_done(&pool, op->a, op->b == 2 ? -EHWPOISON :
			 op->b ? -EIO : 0);
		break;
	case LATE:
		sim_late(&pool, op->a);
		break;
	case RECLAIM:
		sim_reclaim(&pool, op->a, 2);
		break;
	case CLEAN:
		sim_clean(&pool, SIM_FRAMES, op->a);
		break;
	case HINT:
		sim_hint(&pool, 0, handle_at(op->a));
		break;
	case CHAIN:
		sim_chain(&pool, handle_at(op->a));
		break;
	case ATTACH:
		sim_attach(&pool, op->a);
		break;
	case DETACH:
		sim_detach(&pool, op->a);
		break;
	case RESET:
		sim_reset(&pool);
		break;
	case CLIENT_ADD:
		sim_client_add(&pool);
		break;
	case CLIENT_DEL:
		sim_client_del(&pool, op->a);
		break;
	case TIME:
		pool.now += TICK;
		break;
	case CANCEL:
		sim_detach_cancel(&pool);
		break;
	case OFFLINE:
		sim_free_unit(&pool, pool.nr_frames);
		sim_cold_frames(&pool, op->b);
		sim_frames_offline(&pool, op->a, pool.unit, op->b);
		break;
	case ONLINE:
		sim_frames_online(&pool, op->a, pool.unit);
		break;
	default:
		ref_op(op);
	}
	sim_compare_all(&pool);
}

static struct op make_op(const u8 v[4])
{
	return (struct op){ v[0], v[1], v[2], v[3] };
}

/* kind, then up to three arguments */
#define ADD(...) (ops[n++] = make_op((const u8[4]){ __VA_ARGS__ }))

static bool may_break(const struct shape *sh)
{
	return pool.st.frames_poisoned < sh->broken;
}

static u32 ops_of_block(struct op *ops, const struct shape *sh, u32 i)
{
	const struct m_block *b = &pool.block[i];
	u32 n = 0, c, k, p;

	ADD(TOUCH, i);
	ADD(SWAP_OUT, i, 0);
	ADD(SWAP_OUT, i, KVMM_SWAP_DROP);
	ADD(HINT, i);
	ADD(CHAIN, i);
	if (may_break(sh))
		ADD(RETIRE, i);
	for (c = 1; c <= sh->clients; c++) {
		if (!pool.client[c])
			continue;
		if (b->pins[c] < 2) {
			ADD(PIN, i, c);
			ADD(SWAP_IN, i, c, KVMM_SWAP_PIN);
		}
		ADD(UNPIN, i, c);
		ADD(DROP, i, c);
		ADD(SWAP_IN, i, c, 0);
		if (b->state == KVMM_SWAPPED && may_break(sh)) {
			ADD(SWAP_IN_BAD, i, c, 0);
			ADD(SWAP_IN_BAD, i, c, KVMM_SWAP_PIN);
		}
		for (k = 1; k <= sh->keys && b->state == KVMM_FILLING; k++)
			for (p = 0; p < sh->parts; p++) {
				ADD(PUBLISH, i, k, p << 2 | (c - 1));
				ADD(PUBLISH, i, k, p << 2 | 2 | (c - 1));
			}
	}
	return n;
}

u32 all_ops(struct op *ops, const struct shape *sh)
{
	u32 n = 0, i, c, k;

	for (i = 0; i < pool.c.nr_blocks; i++)
		if (pool.block[i].used)
			n += ops_of_block(ops + n, sh, i);
	for (i = 0; i < pool.nr_io; i++) {
		ADD(DONE, i, 0);
		if (sh->errors) {
			ADD(DONE, i, 1);
			if (sh->broken)
				ADD(DONE, i, 2);
			ADD(LATE, i);
		}
	}
	for (c = 1; c <= sh->clients; c++) {
		if (!pool.client[c]) {
			ADD(CLIENT_ADD);
			continue;
		}
		ADD(ALLOC, c, sh->parts);
		ADD(CLIENT_DEL, c);
		for (k = 1; k <= sh->keys; k++) {
			const struct m_block *b = m_find(&pool, k);

			ADD(LOOKUP, k, c, 0);
			/* two pins of a client are as good as more */
			if (!b || b->pins[c] < 2)
				ADD(LOOKUP, k, c, KVMM_LOOKUP_PIN);
		}
	}
	ADD(RECLAIM, 0);
	ADD(RECLAIM, 1);
	if (pool.nr_slots)
		for (k = 1; k <= sh->frames; k++)
			ADD(CLEAN, k);
	ADD(DETACH, 0);
	ADD(DETACH, 1);
	if (pool.detaching)
		ADD(CANCEL);
	if (!pool.nr_slots)
		for (k = 1; k <= sh->slots; k++)
			ADD(ATTACH, k);
	for (i = sh->frames - sh->elastic; i < sh->frames; i += pool.unit) {
		ADD(OFFLINE, i, 0);
		ADD(OFFLINE, i, KVMM_OFFLINE_HARD);
		if (pool.frame[i] == M_OFFLINE)
			ADD(ONLINE, i);
	}
	ADD(RESET);
	ADD(TIME);
	return n;
}
