// SPDX-License-Identifier: MIT
/*
 * Layouts: where the data of a block is on the device, and how it is packed
 * into a frame.  The shapes that engines use are turned into runs here.
 */
#include "layout.h"

#include <stdlib.h>
#include <string.h>

/* Fragments of a run that belong to @tokens of a GPU block. */
static uint64_t run_count(const struct lay *lay, const struct kvmm_run *run,
			  unsigned int tokens)
{
	if (run->by != KVMM_BY_COUNT)
		return run->count;
	return (uint64_t)run->count * tokens / lay->block_tokens;
}

/* Bytes of each. */
static uint64_t run_bytes(const struct lay *lay, const struct kvmm_run *run,
			  unsigned int tokens)
{
	if (run->by != KVMM_BY_BYTES)
		return run->bytes;
	return run->bytes / lay->block_tokens * tokens;
}

/* Tokens of GPU block number @i of a block with @tokens. */
static unsigned int tokens_of(const struct lay *lay, unsigned int i,
			      unsigned int tokens)
{
	unsigned int before = i * lay->block_tokens;

	if (tokens <= before)
		return 0;
	tokens -= before;
	return tokens < lay->block_tokens ? tokens : lay->block_tokens;
}

/* Bytes of the first @nr runs of a block with @tokens. */
static uint64_t bytes_before(const struct lay *lay, unsigned int nr,
			     unsigned int tokens)
{
	unsigned int full = tokens / lay->block_tokens;
	unsigned int rest = tokens % lay->block_tokens, i;
	uint64_t sum = 0;

	for (i = 0; i < nr; i++) {
		const struct kvmm_run *run = &lay->runs[i];

		sum += run->bytes * run->count * full;
		if (rest)
			sum += run_bytes(lay, run, rest) *
			       run_count(lay, run, rest);
	}
	return sum;
}

static bool run_ok(const struct lay *lay, const struct kvmm_run *run,
		   unsigned int group)
{
	uint64_t total, span;

	if (!run->base || !run->bytes || !run->count || run->by > KVMM_WHOLE)
		return false;
	if (run->count > 1 && run->stride < run->bytes)
		return false;
	if (run->by == KVMM_BY_BYTES && run->bytes % lay->block_tokens)
		return false;
	if (run->by == KVMM_BY_COUNT && run->count % lay->block_tokens)
		return false;
	if (run->group != group && run->group != group + 1)
		return false;
	if (__builtin_mul_overflow(run->bytes, run->count, &total) ||
	    total > KVMM_MAX_BLOCK_SIZE)
		return false;
	/* what a GPU block spans must be an address */
	return !__builtin_mul_overflow(run->stride, run->count, &span) &&
	       !__builtin_add_overflow(span, run->offset, &span) &&
	       !__builtin_add_overflow(span, run->base, &span);
}

/* Checks a layout and sums it up in @lay, whose runs are the caller's. */
static int lay_check(struct lay *lay, const struct kvmm_layout *layout)
{
	unsigned int i, group = 0;
	struct kvmm_layout l;
	int err;

	if (!layout)
		return -EINVAL;
	err = kvmm_copy_opts(&l, sizeof(l), layout, sizeof(l));
	if (err)
		return err;
	memset(lay, 0, sizeof(*lay));
	lay->runs = (struct kvmm_run *)l.runs;
	lay->nr_runs = l.nr_runs;
	lay->block_tokens = l.block_tokens;
	lay->gpu_blocks = l.gpu_blocks ? l.gpu_blocks : 1;
	lay->nr_gpu_blocks = l.nr_gpu_blocks ? l.nr_gpu_blocks : 1ULL << 32;
	if (!l.runs || !l.nr_runs || l.nr_runs > KVMM_MAX_RUNS ||
	    !l.block_tokens || lay->gpu_blocks > KVMM_MAX_GPU_BLOCKS ||
	    l.block_tokens > (1U << 24) / lay->gpu_blocks)
		return -EINVAL;
	for (i = 0; i < l.nr_runs; i++) {
		if (!run_ok(lay, &l.runs[i], group) ||
		    (!i && l.runs[i].group))
			return -EINVAL;
		group = l.runs[i].group;
	}
	lay->nr_groups = group + 1;
	if (lay->nr_groups > KVMM_MAX_GROUPS)
		return -EINVAL;
	lay->tokens = lay->block_tokens * lay->gpu_blocks;
	lay->bytes = bytes_before(lay, lay->nr_runs, lay->tokens);
	return lay->bytes <= KVMM_MAX_BLOCK_SIZE ? 0 : -EINVAL;
}

int lay_init(struct lay *lay, const struct kvmm_layout *layout)
{
	int err = lay_check(lay, layout);
	struct kvmm_run *runs;
	unsigned int i;

	if (err)
		return err;
	runs = malloc(lay->nr_runs * sizeof(*runs));
	lay->first = calloc(lay->nr_groups + 1, sizeof(*lay->first));
	lay->offset = calloc(lay->nr_groups, sizeof(*lay->offset));
	if (!runs || !lay->first || !lay->offset) {
		free(runs);
		lay->runs = NULL;
		lay_free(lay);
		return -ENOMEM;
	}
	memcpy(runs, lay->runs, lay->nr_runs * sizeof(*runs));
	lay->runs = runs;
	for (i = lay->nr_runs; i--;)
		lay->first[runs[i].group] = i;
	lay->first[lay->nr_groups] = lay->nr_runs;
	for (i = 0; i < lay->nr_groups; i++)
		lay->offset[i] = bytes_before(lay, lay->first[i], lay->tokens);
	return 0;
}

void lay_free(struct lay *lay)
{
	free(lay->runs);
	free(lay->first);
	free(lay->offset);
	memset(lay, 0, sizeof(*lay));
}

size_t lay_bytes(const struct lay *lay, unsigned int tokens)
{
	return tokens == lay->tokens ? lay->bytes :
				       bytes_before(lay, lay->nr_runs, tokens);
}

size_t lay_offset(const struct lay *lay, unsigned int group,
		  unsigned int tokens)
{
	return tokens == lay->tokens ? lay->offset[group] :
		bytes_before(lay, lay->first[group], tokens);
}

size_t lay_copy(const struct lay *lay, unsigned int first, unsigned int last,
		unsigned int tokens, const uint32_t *gpu_blocks,
		struct kvmm_gpu_run *out)
{
	size_t nr = 0;
	unsigned int i, b, t;

	for (i = first; i < last; i++) {
		const struct kvmm_run *run = &lay->runs[i];

		for (b = 0; b < lay->gpu_blocks; b++) {
			t = tokens_of(lay, b, tokens);
			if (!t)
				break;
			out[nr++] = (struct kvmm_gpu_run){
				.dev = run->base + run->offset +
				       gpu_blocks[b] * run->block_stride,
				.stride = run->stride,
				.bytes = run_bytes(lay, run, t),
				.count = run_count(lay, run, t),
			};
		}
	}
	return nr;
}

long kvmm_layout_bytes(const struct kvmm_layout *layout, unsigned int tokens)
{
	struct lay lay;
	int err = lay_check(&lay, layout);

	if (!err && tokens > lay.tokens)
		err = -EINVAL;
	if (err)
		return kvmm_ret(err);
	return (long)lay_bytes(&lay, tokens ? tokens : lay.tokens);
}

/* ---- shapes ---- */

/**
 * struct builder - runs of a shape as they are made
 * @s: the shape
 * @runs: where to, or NULL
 * @room: runs there
 * @nr: runs made
 * @group: of the runs made now
 */
struct builder {
	const struct kvmm_shape *s;
	struct kvmm_run *runs;
	unsigned int room;
	unsigned int nr;
	unsigned int group;
};

static void add_run(struct builder *b, uint64_t base, uint64_t block_stride,
		    uint64_t bytes, uint64_t stride, uint64_t count)
{
	if (b->runs && b->nr < b->room)
		b->runs[b->nr] = (struct kvmm_run){
			.base = base,
			.block_stride = block_stride,
			.bytes = bytes,
			.stride = stride,
			.count = (uint32_t)count,
			.by = KVMM_BY_BYTES,
			.group = (uint16_t)b->group,
		};
	b->nr++;
}

/* Keys or values that aren't transposed. */
static void add_plain(struct builder *b, uint64_t base, uint64_t block_stride,
		      uint64_t token)
{
	uint64_t heads = b->s->heads ? b->s->heads : 1;
	uint64_t bytes = b->s->block_tokens * token / heads;

	add_run(b, base, block_stride, bytes, bytes, heads);
}

static void add_layer(struct builder *b, unsigned int i)
{
	const struct kvmm_shape *s = b->s;
	uint64_t v_stride = s->v_stride ? s->v_stride : s->k_stride;
	uint64_t v_token = s->v_token ? s->v_token : s->k_token;

	b->group = s->layers_per_group ? i / s->layers_per_group : 0;
	add_plain(b, s->k[i], s->k_stride, s->k_token);
	if (s->v && s->v_rows)
		add_run(b, s->v[i], v_stride,
			s->block_tokens * (v_token / s->v_rows),
			s->v_row_stride, s->v_rows);
	else if (s->v)
		add_plain(b, s->v[i], v_stride, v_token);
	if (s->k_scale)
		add_plain(b, s->k_scale[i], s->scale_stride, s->scale_token);
	if (s->v_scale)
		add_plain(b, s->v_scale[i], s->scale_stride, s->scale_token);
}

static bool shape_ok(const struct kvmm_shape *s)
{
	uint64_t heads = s->heads ? s->heads : 1;
	uint64_t v_token = s->v_token ? s->v_token : s->k_token;

	if (!s->layers || s->layers > KVMM_MAX_RUNS || !s->block_tokens ||
	    !s->k || !s->k_token || s->k_token % heads ||
	    s->k_token > KVMM_MAX_BLOCK_SIZE || v_token > KVMM_MAX_BLOCK_SIZE ||
	    s->block_tokens > (1U << 24))
		return false;
	if (s->v_rows && (!s->v || v_token % s->v_rows ||
			  s->v_rows > UINT32_MAX || !s->v_row_stride))
		return false;
	if (!s->v_rows && v_token % heads)
		return false;
	if (!s->k_scale && !s->v_scale)
		return true;
	return s->scale_token && !(s->scale_token % heads) &&
	       s->scale_token <= KVMM_MAX_BLOCK_SIZE;
}

long kvmm_shape_runs(const struct kvmm_shape *shape, struct kvmm_run *runs,
		     unsigned int room)
{
	struct builder b = { .runs = runs, .room = room };
	struct kvmm_shape s;
	unsigned int i;
	int err;

	if (!shape)
		return kvmm_ret(-EINVAL);
	err = kvmm_copy_opts(&s, sizeof(s), shape, sizeof(s));
	if (err || !shape_ok(&s))
		return kvmm_ret(err ? err : -EINVAL);
	b.s = &s;
	for (i = 0; i < s.layers; i++)
		add_layer(&b, i);
	if (runs && b.nr > room)
		return kvmm_ret(-ENOBUFS);
	return b.nr;
}
