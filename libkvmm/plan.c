// SPDX-License-Identifier: MIT
/*
 * Load or compute: what transfers take, as measured, and the choice of how much
 * of a prefix to load.
 *
 * A transfer of x bytes is taken to last latency + x / speed.  The two are the
 * least-squares line through the transfers seen, where each further one makes
 * those before count a sixteenth less.
 */
#include "engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PLAN_FLAGS	KVMM_PLAN_BOTH
#define DECAY		(15.0 / 16)
/* Before anything was measured. */
#define GUESS_COPY	((struct kvmm_speed){ 20, 10000, 0 })
#define GUESS_DISK	((struct kvmm_speed){ 200, 1000, 0 })
/* A disk that failed is left alone so long, doubled each time. */
#define BACKOFF_MIN	(1000000000ULL)
#define BACKOFF_MAX	(60 * BACKOFF_MIN)
#define TRIAL_BLOCKS	4
/* A read that takes so many times what it should is a sign. */
#define STALL_TIMES	4
#define STALL_US	2000

/* ---- what was measured ---- */

void way_add(struct way_stat *s, uint64_t bytes, double us)
{
	double x = (double)bytes;

	s->w = s->w * DECAY + 1;
	s->x = s->x * DECAY + x;
	s->y = s->y * DECAY + us;
	s->xx = s->xx * DECAY + x * x;
	s->xy = s->xy * DECAY + x * us;
	s->samples++;
}

struct kvmm_speed way_speed(const struct way_stat *s, enum kvmm_way way)
{
	struct kvmm_speed speed = way == KVMM_WAY_DISK ? GUESS_DISK
						       : GUESS_COPY;
	double var = s->w * s->xx - s->x * s->x, slope = 0, latency = 0;

	if (!s->samples || s->x <= 0 || s->y <= 0)
		return speed;
	/* sizes must differ for the two to be told apart */
	if (var > 1e-3 * s->x * s->x) {
		slope = (s->w * s->xy - s->x * s->y) / var;
		latency = (s->y - slope * s->x) / s->w;
	}
	if (slope <= 0 || latency < 0) {
		slope = s->y / s->x;
		latency = 0;
	}
	speed.latency_us = latency;
	speed.bytes_per_us = 1 / slope;
	speed.samples = s->samples;
	return speed;
}

void disk_result_locked(struct kvmm_engine *eng, bool good)
{
	struct disk_state *d = &eng->disk;

	if (good) {
		memset(d, 0, sizeof(*d));
		return;
	}
	d->backoff_ns = d->backoff_ns ? 2 * d->backoff_ns : BACKOFF_MIN;
	if (d->backoff_ns > BACKOFF_MAX)
		d->backoff_ns = BACKOFF_MAX;
	d->bad_until_ns = eng_now() + d->backoff_ns;
	d->trial = true;
}

int kvmm_engine_speed(struct kvmm_engine *eng, enum kvmm_way way,
		      struct kvmm_speed *speed)
{
	if (way >= NR_WAYS || !speed)
		return kvmm_ret(-EINVAL);
	pthread_mutex_lock(&eng->lock);
	*speed = way_speed(&eng->stat[way], way);
	pthread_mutex_unlock(&eng->lock);
	return 0;
}

static bool cost_ok(const struct kvmm_cost *c)
{
	return c->fixed_us >= 0 && c->token_us >= 0 && c->token2_us >= 0 &&
	       isfinite(c->fixed_us) && isfinite(c->token_us) &&
	       isfinite(c->token2_us);
}

int kvmm_engine_cost(struct kvmm_engine *eng, const struct kvmm_cost *cost)
{
	if (cost && !cost_ok(cost))
		return kvmm_ret(-EINVAL);
	pthread_mutex_lock(&eng->lock);
	eng->have_cost = cost;
	if (cost)
		eng->cost = *cost;
	pthread_mutex_unlock(&eng->lock);
	return 0;
}

/* ---- the choice ---- */

/* Tokens @p to @p + @n - 1. */
static double compute_us(const struct kvmm_cost *c, double p, double n)
{
	if (n <= 0)
		return 0;
	return c->fixed_us + c->token_us * n +
	       c->token2_us * (n * p + n * n / 2);
}

static double transfer_us(const struct kvmm_speed *s, double bytes)
{
	return s->bytes_per_us > 0 ? s->latency_us + bytes / s->bytes_per_us
				   : INFINITY;
}

/*
 * Reads @disk blocks, lot by lot, and copies the last one, and before it what
 * its read does not hide.  So many lots are in flight that the others'
 * transfers hide a read's latency, or they are not.
 */
static double read_us(const struct kvmm_plan_input *in, unsigned int disk)
{
	unsigned int lot = in->lot && in->lot < disk ? in->lot : disk;
	unsigned int flight = in->lots ? in->lots : 1;
	unsigned int lots = (disk - 1) / lot + 1, rounds, last;
	double block = in->block_bytes, wire, stall, behind, us;

	last = disk - (lots - 1) * lot;
	us = in->disk_busy_us + transfer_us(&in->disk, disk * block) +
	     transfer_us(&in->copy, last * block);
	if (lots == 1 || in->disk.bytes_per_us <= 0)
		return us;
	rounds = (lots - 1) / flight + 1;
	wire = lot * block / in->disk.bytes_per_us;
	stall = in->disk.latency_us + wire - flight * wire;
	if (stall > 0)
		us += (rounds - 1) * stall;
	behind = transfer_us(&in->copy, lot * block) -
		 last * block / in->disk.bytes_per_us;
	return behind > 0 ? us + behind : us;
}

/* Loads @blocks, of which @disk are in the area: both ways work at once. */
static double load_us(const struct kvmm_plan_input *in, unsigned int blocks,
		      unsigned int disk)
{
	double copy, read = 0;

	if (!blocks)
		return 0;
	copy = transfer_us(&in->copy, (double)blocks * in->block_bytes);
	if (disk)
		read = read_us(in, disk);
	return copy > read ? copy : read;
}

static bool in_memory(const struct kvmm_plan_input *in, unsigned int i)
{
	return !in->where || in->where[i] == KVMM_MEMORY;
}

static unsigned int count_hits(const struct kvmm_plan_input *in)
{
	unsigned int i;

	for (i = 0; i < in->n && in->where; i++)
		if (in->where[i] == KVMM_MISS)
			return i;
	return in->n;
}

static void consider(struct kvmm_plan *plan, unsigned int first,
		     unsigned int count, double load, double us)
{
	if (us >= plan->us)
		return;
	plan->first = first;
	plan->count = count;
	plan->load_us = load;
	plan->us = us;
}

/*
 * Both families of splits.  @disk counts the blocks in the area in front; in
 * the second loop those behind are what is left.
 */
static void choose(const struct kvmm_plan_input *in, struct kvmm_plan *plan,
		   unsigned int hits)
{
	double tokens = in->tokens, bt = in->block_tokens, load, us, tail, front;
	unsigned int i, disk = 0, all_disk;

	for (i = 1; i <= hits; i++) {
		disk += !in_memory(in, i - 1);
		load = load_us(in, i, disk);
		us = load + compute_us(&in->cost, i * bt, tokens - i * bt);
		consider(plan, 0, i, load, us);
		if (i == hits)
			plan->all_us = us;
	}
	if (!(in->flags & KVMM_PLAN_BOTH))
		return;
	all_disk = disk;
	tail = compute_us(&in->cost, hits * bt, tokens - hits * bt);
	for (i = 1, disk = 0; i < hits; i++) {
		disk += !in_memory(in, i - 1);
		load = load_us(in, hits - i, all_disk - disk);
		front = compute_us(&in->cost, 0, i * bt);
		consider(plan, i, hits - i, load,
			 (load > front ? load : front) + tail);
	}
}

/*
 * When to give up: when computing what is loaded would have been as quick, or
 * when it takes much longer than it should, whichever comes first.
 */
static double limit_us(const struct kvmm_plan_input *in,
		       const struct kvmm_plan *plan)
{
	double saved = plan->compute_us - (plan->us - plan->load_us);
	double expected = STALL_TIMES * plan->load_us + STALL_US;

	if (plan->first)
		saved = compute_us(&in->cost, 0,
				   (double)plan->hits * in->block_tokens);
	return saved < expected ? saved : expected;
}

int kvmm_plan_choose(const struct kvmm_plan_input *in, struct kvmm_plan *plan)
{
	unsigned int i, hits;

	if (!in || !plan || in->flags & ~PLAN_FLAGS || !in->block_tokens ||
	    !cost_ok(&in->cost) || (in->n && !in->block_bytes))
		return kvmm_ret(-EINVAL);
	memset(plan, 0, sizeof(*plan));
	hits = count_hits(in);
	/* the end of the prefix may be a block that isn't full */
	if ((uint64_t)hits * in->block_tokens >
	    (uint64_t)in->tokens + in->block_tokens - 1)
		hits = (in->tokens + in->block_tokens - 1) / in->block_tokens;
	plan->hits = hits;
	for (i = 0; i < hits; i++)
		plan->in_memory += in_memory(in, i);
	plan->compute_us = compute_us(&in->cost, 0, in->tokens);
	plan->all_us = plan->compute_us;
	plan->us = plan->compute_us;
	choose(in, plan, hits);
	if (plan->count)
		plan->limit_us = limit_us(in, plan);
	return 0;
}

/* ---- the query ---- */

/* The disk as it is now: broken, stuck, or with work to do. */
static void look_at_disk(struct kvmm_engine *eng, struct kvmm_plan_input *in)
{
	uint64_t now = eng_now();
	unsigned int i;
	double age;

	in->disk = way_speed(&eng->stat[KVMM_WAY_DISK], KVMM_WAY_DISK);
	for (i = 0; i < eng->nr_io; i++) {
		struct io_thread *io = &eng->io[i];

		if (!io->since_ns || now <= io->since_ns)
			continue;
		age = (double)(now - io->since_ns) / 1000;
		if (age > STALL_TIMES * transfer_us(&in->disk, io->bytes) +
				  STALL_US)
			in->disk.bytes_per_us = io->bytes / age;
	}
	if (eng->disk.bad_until_ns > now)
		in->disk.bytes_per_us = 0;
	else
		in->disk_busy_us = eng->want_bytes / in->disk.bytes_per_us;
}

/* After a failure only a few blocks are tried. */
static unsigned int limit_trial(const struct kvmm_plan_input *in)
{
	unsigned int i, disk = 0;

	for (i = 0; i < in->n; i++) {
		disk += !in_memory(in, i);
		if (disk > TRIAL_BLOCKS)
			break;
	}
	return i;
}

/* Without the engine's figures: all that can be loaded. */
static void load_all(const struct kvmm_plan_input *in, struct kvmm_plan *plan)
{
	bool disk = in->disk.bytes_per_us > 0;
	unsigned int i;

	memset(plan, 0, sizeof(*plan));
	plan->hits = in->n;
	for (i = 0; i < in->n; i++)
		plan->in_memory += in_memory(in, i);
	for (i = 0; i < in->n && (disk || in_memory(in, i)); i++)
		plan->count++;
	plan->load_us = load_us(in, plan->count, disk ? plan->count : 0);
	plan->us = plan->load_us;
	plan->all_us = plan->load_us;
}

int kvmm_plan(struct kvmm_engine *eng, const void *keys, unsigned int n,
	      unsigned int tokens, unsigned int flags, struct kvmm_plan *plan)
{
	struct kvmm_plan_input in = {
		.flags = flags,
		.block_tokens = eng->lay.tokens,
		.block_bytes = eng->lay.bytes,
		.tokens = tokens,
		.lot = restore_lot(eng),
		.lots = eng->nr_io,
	};
	struct kvmm_block_ref *refs;
	bool trial, have_cost;
	unsigned char *where;
	unsigned int hits, i;
	long ret;
	int err;

	if (!n || !keys || !plan || flags & ~PLAN_FLAGS)
		return kvmm_ret(-EINVAL);
	refs = calloc(n, sizeof(*refs) + 1);
	if (!refs)
		return kvmm_ret(-ENOMEM);
	where = (unsigned char *)(refs + n);
	ret = kvmm_lookup(eng->pool, keys, refs, n,
			  KVMM_LOOKUP_PREFIX | KVMM_LOOKUP_PEEK);
	if (ret < 0) {
		free(refs);
		return kvmm_ret(ret);
	}
	for (i = 0; i < (unsigned int)ret; i++)
		where[i] = (unsigned char)refs[i].result;
	hits = (unsigned int)ret;
	in.n = hits;
	in.where = where;
	pthread_mutex_lock(&eng->lock);
	have_cost = eng->have_cost;
	in.cost = eng->cost;
	in.copy = way_speed(&eng->stat[KVMM_WAY_IN], KVMM_WAY_IN);
	look_at_disk(eng, &in);
	trial = eng->disk.trial;
	pthread_mutex_unlock(&eng->lock);
	if (trial)
		in.n = limit_trial(&in);
	err = 0;
	if (have_cost)
		err = kvmm_plan_choose(&in, plan);
	else
		load_all(&in, plan);
	plan->hits = hits;
	free(refs);
	return err;
}
