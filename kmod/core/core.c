// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Making and unmaking a pool's tables, and its counters.
 */
#include "internal.h"

struct table_plan {
	size_t offset;		/* of the struct kvmm_table in the core */
	u32 shift;
	u32 elem;
	u64 n;
};

#define NR_TABLES 9

static u32 roundup_pow2(u32 n)
{
	u32 p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

/* Default: a quarter of the frames may be pinned by a second client at once. */
static u32 nr_holds(const struct kvmm_core_config *cfg)
{
	if (cfg->nr_holds)
		return cfg->nr_holds;
	return cfg->nr_frames / 4 > 1024 ? cfg->nr_frames / 4 : 1024;
}

/* At most 57% full: few buckets are, so that a walk mostly looks at one. */
static u32 nr_buckets(u32 nr_blocks)
{
	return nr_blocks / 4 + 1;
}

static u32 nr_units(const struct kvmm_core_config *cfg)
{
	return cfg->nr_elastic ? cfg->nr_elastic / cfg->unit_frames : 0;
}

static void plan_tables(const struct kvmm_core_config *cfg,
			struct table_plan plan[NR_TABLES])
{
	u32 nr_blocks = cfg->nr_frames + cfg->nr_slots;
	const struct table_plan p[NR_TABLES] = {
		{ offsetof(struct kvmm_core, blocks), BLOCK_SHIFT,
		  sizeof(struct kvmm_block), nr_blocks },
		{ offsetof(struct kvmm_core, index), INDEX_SHIFT,
		  sizeof(struct kvmm_index_bucket), nr_buckets(nr_blocks) },
		{ offsetof(struct kvmm_core, frames), FRAME_SHIFT,
		  sizeof(struct kvmm_frame), cfg->nr_frames },
		{ offsetof(struct kvmm_core, slots), SLOT_SHIFT,
		  sizeof(struct kvmm_slot), cfg->nr_slots },
		{ offsetof(struct kvmm_core, holds), HOLD_SHIFT,
		  sizeof(struct kvmm_extra_hold), nr_holds(cfg) },
		{ offsetof(struct kvmm_core, hold_buckets), U32_SHIFT,
		  sizeof(u32), roundup_pow2(nr_holds(cfg)) / 2 + 1 },
		{ offsetof(struct kvmm_core, clients), CLIENT_SHIFT,
		  sizeof(struct kvmm_core_client), cfg->max_clients },
		{ offsetof(struct kvmm_core, spare.words), BITS_SHIFT,
		  sizeof(u64), bits_words(cfg->nr_elastic) },
		{ offsetof(struct kvmm_core, spare_units.words), BITS_SHIFT,
		  sizeof(u64), bits_words(nr_units(cfg)) },
	};

	memcpy(plan, p, sizeof(p));
	/* A power of two again, half as many buckets as holds. */
	plan[5].n = roundup_pow2(nr_holds(cfg)) > 1 ?
		roundup_pow2(nr_holds(cfg)) / 2 : 1;
}

static struct kvmm_table *table_of(struct kvmm_core *c,
				   const struct table_plan *p)
{
	return (struct kvmm_table *)((char *)c + p->offset);
}

static u32 plan_chunks(const struct table_plan *p)
{
	return (u32)((p->n + (1ULL << p->shift) - 1) >> p->shift);
}

/* Every chunk is whole but the last. */
static size_t chunk_bytes(const struct table_plan *p, u32 k)
{
	u64 rest = p->n - ((u64)k << p->shift);

	if (rest > 1ULL << p->shift)
		rest = 1ULL << p->shift;
	return (size_t)rest * p->elem;
}

static void table_free(struct kvmm_core *c, const struct table_plan *p)
{
	struct kvmm_table *t = table_of(c, p);
	u32 k;

	if (!t->chunk)
		return;
	for (k = 0; k < t->nr_chunks; k++)
		if (t->chunk[k])
			c->cfg.free(c->cfg.ctx, t->chunk[k], chunk_bytes(p, k));
	c->cfg.free(c->cfg.ctx, t->chunk, t->nr_chunks * sizeof(void *));
	t->chunk = NULL;
}

static int table_alloc(struct kvmm_core *c, const struct table_plan *p)
{
	struct kvmm_table *t = table_of(c, p);
	u32 k;

	t->shift = p->shift;
	t->nr_chunks = plan_chunks(p);
	if (!t->nr_chunks)
		return 0;
	t->chunk = c->cfg.alloc(c->cfg.ctx, t->nr_chunks * sizeof(void *));
	if (!t->chunk)
		return -ENOMEM;
	for (k = 0; k < t->nr_chunks; k++) {
		t->chunk[k] = c->cfg.alloc(c->cfg.ctx, chunk_bytes(p, k));
		if (!t->chunk[k])
			return -ENOMEM;
	}
	return 0;
}

static bool elastic_ok(const struct kvmm_core_config *cfg)
{
	u32 unit = cfg->unit_frames;

	if (!cfg->nr_elastic)
		return true;
	return cfg->nr_elastic <= cfg->nr_frames && unit &&
	       !(unit & (unit - 1)) &&
	       !((cfg->nr_frames | cfg->nr_elastic) & (unit - 1));
}

static bool config_ok(const struct kvmm_core_config *cfg)
{
	if (!cfg->nr_frames || cfg->nr_frames > KVMM_MAX_BLOCKS ||
	    cfg->nr_slots > KVMM_MAX_BLOCKS ||
	    cfg->nr_frames + cfg->nr_slots > KVMM_MAX_BLOCKS)
		return false;
	if (cfg->nr_holds > KVMM_MAX_BLOCKS)
		return false;
	if (!cfg->max_clients || cfg->max_clients > KVMM_MAX_CLIENTS)
		return false;
	if (cfg->quarantine_ms > KVMM_MAX_QUARANTINE_MS || !elastic_ok(cfg))
		return false;
	return cfg->block_size >= KVMM_MIN_BLOCK_SIZE &&
	       cfg->block_size <= KVMM_MAX_BLOCK_SIZE &&
	       !(cfg->block_size & (cfg->block_size - 1));
}

u64 kvmm_core_bytes(const struct kvmm_core_config *cfg)
{
	struct table_plan plan[NR_TABLES];
	u64 sum = 0;
	u32 t;

	if (!config_ok(cfg))
		return 0;
	plan_tables(cfg, plan);
	for (t = 0; t < NR_TABLES; t++)
		sum += plan[t].n * plan[t].elem +
		       plan_chunks(&plan[t]) * sizeof(void *);
	return sum;
}

static void lists_init(struct kvmm_core *c)
{
	struct kvmm_list *l[] = { &c->lru, &c->slots_clean, &c->slots_swapped };
	u32 i;

	for (i = 0; i < 3; i++) {
		l[i]->head = KVMM_NONE;
		l[i]->tail = KVMM_NONE;
	}
	c->clean_at = KVMM_NONE;
	c->free_block = KVMM_NONE;
	c->free_frame = KVMM_NONE;
	c->free_slot = KVMM_NONE;
	c->free_hold = KVMM_NONE;
	c->quarantine = KVMM_NONE;
	c->quarantine_tail = KVMM_NONE;
	for (i = 0; i <= c->hold_mask; i++)
		*(u32 *)table_at(&c->hold_buckets, U32_SHIFT, sizeof(u32), i) =
			KVMM_NONE;
	for (i = 0; i < c->cfg.nr_frames; i++)
		frame_at(c, i)->link = KVMM_FRAME_OFFLINE;
	for (i = c->cfg.nr_holds; i-- > 0;) {
		extra_at(c, i)->hash_next = c->free_hold;
		c->free_hold = i;
	}
}

int kvmm_core_init(struct kvmm_core *c, const struct kvmm_core_config *cfg)
{
	struct table_plan plan[NR_TABLES];
	u32 t;
	int err;

	memset(c, 0, sizeof(*c));
	if (!config_ok(cfg))
		return -EINVAL;
	c->cfg = *cfg;
	c->cfg.nr_holds = nr_holds(cfg);
	c->nr_blocks = cfg->nr_frames + cfg->nr_slots;
	plan_tables(cfg, plan);
	for (t = 0; t < NR_TABLES; t++) {
		err = table_alloc(c, &plan[t]);
		if (err) {
			kvmm_core_exit(c);
			return err;
		}
	}
	c->nr_buckets = nr_buckets(c->nr_blocks);
	c->state_count[KVMM_FREE] = c->nr_blocks;
	c->hold_mask = (u32)plan[5].n - 1;
	c->first_elastic = cfg->nr_frames - cfg->nr_elastic;
	c->unit_shift = cfg->nr_elastic ? core_first_bit(cfg->unit_frames) : 0;
	bits_init(&c->spare, cfg->nr_elastic);
	bits_init(&c->spare_units, nr_units(cfg));
	lists_init(c);
	return 0;
}

void kvmm_core_exit(struct kvmm_core *c)
{
	struct table_plan plan[NR_TABLES];
	u32 t;

	core_bug_on(c->writing || c->reading);
	plan_tables(&c->cfg, plan);
	for (t = 0; t < NR_TABLES; t++)
		table_free(c, &plan[t]);
}

u64 kvmm_core_reset(struct kvmm_core *c)
{
	return ++c->epoch;
}

void kvmm_core_request_end(struct kvmm_core *c, u32 output_tokens)
{
	c->stat.requests++;
	c->stat.output_tokens += output_tokens;
}

void kvmm_core_stat(const struct kvmm_core *c, struct kvmm_pool_stat *st)
{
	u32 size = st->size, flags = st->flags;
	u32 s;

	*st = c->stat;
	st->size = size;
	st->flags = flags;
	st->epoch = c->epoch;
	st->block_size = c->cfg.block_size;
	st->nr_frames = c->cfg.nr_frames;
	st->nr_slots = c->nr_slots;
	st->nr_clients = c->nr_clients;
	st->degraded = c->degraded;
	st->frames_online = c->frames_online;
	st->frames_free = c->frames_free;
	st->nr_elastic = c->cfg.nr_elastic;
	st->frames_quarantined = c->frames_quarantined;
	st->slots_free = c->slots_free;
	for (s = 0; s < KVMM_NR_STATES; s++)
		st->blocks[s] = c->state_count[s];
	st->blocks_pinned = c->blocks_pinned;
	st->pins = c->pins;
}
