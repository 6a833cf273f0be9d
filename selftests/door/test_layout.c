// SPDX-License-Identifier: MIT
/*
 * Layouts: the caches of known engines, seen as those engines index them, and
 * any that can be.
 */
#include "door.h"

#define BLOCKS	24

/* One value of the cache, told by what the engine calls it. */
static uint8_t value(unsigned int layer, unsigned int kv, unsigned int token,
		     unsigned int i)
{
	return (uint8_t)(layer * 67 + kv * 131 + token * 29 + i * 7 + 3);
}

/**
 * struct cache - an engine's cache, and where it has a value
 * @name: what it is
 * @shape: how kvmm is told
 * @kvs: 2: keys and values, 1: one latent, 4: and their scales
 * @width: bytes of a token in each
 * @where: address of byte @i of @token's data in block @b
 */
struct cache {
	const char *name;
	struct kvmm_shape shape;
	unsigned int kvs;
	unsigned int width[4];
	uint64_t (*where)(const struct cache *c, unsigned int layer,
			  unsigned int kv, uint32_t b, unsigned int token,
			  unsigned int i);
	uint64_t k[4], v[4], ks[4], vs[4];
};

#define LAYERS	3
#define TOKENS	4
#define HEADS	2
#define DIM	6
#define WIDTH	(HEADS * DIM)

/* vLLM, FlashAttention: [2][blocks][tokens][heads][dim] */
static uint64_t where_flash(const struct cache *c, unsigned int layer,
			    unsigned int kv, uint32_t b, unsigned int token,
			    unsigned int i)
{
	return c->k[layer] +
	       ((kv * BLOCKS + b) * (uint64_t)TOKENS + token) * WIDTH + i;
}

/* The same, heads first: [2][blocks][heads][tokens][dim] */
static uint64_t where_hnd(const struct cache *c, unsigned int layer,
			  unsigned int kv, uint32_t b, unsigned int token,
			  unsigned int i)
{
	unsigned int head = i / DIM, d = i % DIM;

	return c->k[layer] +
	       (((kv * BLOCKS + b) * (uint64_t)HEADS + head) * TOKENS + token) *
		       DIM + d;
}

/* FlashInfer: [blocks][2][tokens][heads][dim] */
static uint64_t where_fused(const struct cache *c, unsigned int layer,
			    unsigned int kv, uint32_t b, unsigned int token,
			    unsigned int i)
{
	return c->k[layer] +
	       ((b * 2ULL + kv) * TOKENS + token) * WIDTH + i;
}

/* MLA: [blocks][tokens][latent] */
static uint64_t where_mla(const struct cache *c, unsigned int layer,
			  unsigned int kv, uint32_t b, unsigned int token,
			  unsigned int i)
{
	(void)kv;
	return c->k[layer] + ((uint64_t)b * TOKENS + token) * 36 + i;
}

/* fp8: one byte a value, and a float for each token and head */
static uint64_t where_fp8(const struct cache *c, unsigned int layer,
			  unsigned int kv, uint32_t b, unsigned int token,
			  unsigned int i)
{
	if (kv < 2)
		return where_flash(c, layer, kv, b, token, i);
	return (kv == 2 ? c->ks[layer] : c->vs[layer]) +
	       ((uint64_t)b * TOKENS + token) * HEADS * 4 + i;
}

/* llama.cpp: k [cells][width], v [width][cells], here of two bytes a value */
#define CELLS	(BLOCKS + 8)

static uint64_t where_llama(const struct cache *c, unsigned int layer,
			    unsigned int kv, uint32_t b, unsigned int token,
			    unsigned int i)
{
	if (!kv)
		return c->k[layer] + (b + token) * (uint64_t)WIDTH + i;
	return c->v[layer] + ((uint64_t)(i / 2) * CELLS + b + token) * 2 +
	       i % 2;
}

static void cache_open(struct door *d, struct cache *c)
{
	long n;

	c->shape.size = sizeof(c->shape);
	c->shape.layers = LAYERS;
	c->shape.layers_per_group = 1;
	c->shape.block_tokens = TOKENS;
	c->shape.k = c->k;
	n = kvmm_shape_runs(&c->shape, NULL, 0);
	assert_true(n > 0);
	assert_fails(kvmm_shape_runs(&c->shape, d->runs, n - 1), ENOBUFS);
	assert_int_equal(kvmm_shape_runs(&c->shape, d->runs,
					 ARRAY_SIZE(d->runs)), n);
	d->lay.nr_runs = n;
	d->lay.block_tokens = TOKENS;
	d->lay.nr_gpu_blocks = BLOCKS;
}

static void each_value(struct door *d, struct cache *c, const uint32_t *ids,
		       unsigned int tokens, bool write)
{
	unsigned int layer, kv, t, i;

	for (layer = 0; layer < LAYERS; layer++)
		for (kv = 0; kv < c->kvs; kv++)
			for (t = 0; t < tokens; t++)
				for (i = 0; i < c->width[kv]; i++) {
					uint8_t want = value(layer, kv, t, i);
					uint8_t is = 0;
					uint64_t at = c->where(c, layer, kv,
						ids[t / TOKENS], t % TOKENS, i);

					if (write) {
						door_write(d, at, &want, 1);
						continue;
					}
					door_read(d, at, &is, 1);
					if (is != want)
						fail_msg("%s: layer %u, %u, token %u, byte %u",
							 c->name, layer, kv, t, i);
				}
}

/* Out of some GPU blocks, into others, as the engine sees it. */
static void cache_test(void **state, struct cache *c,
		       void (*alloc)(struct door *d, struct cache *c))
{
	/* llama.cpp's blocks begin at any cell */
	static const uint32_t from[] = { 3, 11, 17 }, to[] = { 13, 2, 7 };
	unsigned int tokens = 2 * TOKENS + 1, bytes = 0, kv;
	struct kvmm_transfer t = { .size = sizeof(t), .n = 3 };
	struct kvmm_job_info info;
	uint8_t keys[3][KVMM_KEY_LEN];
	struct door d;
	uint64_t job;
	unsigned int i;

	door_start(&d, *state, NULL);
	alloc(&d, c);
	cache_open(&d, c);
	door_pool(&d, 8, 0);
	d.eng = door_open(&d, d.pool, NULL);
	for (kv = 0; kv < c->kvs; kv++)
		bytes += LAYERS * c->width[kv];
	assert_int_equal(kvmm_layout_bytes(&d.lay, 0), bytes * TOKENS);
	assert_int_equal(kvmm_layout_bytes(&d.lay, 1), bytes);

	for (i = 0; i < 3; i++)
		lt_key(keys[i], i);
	t.keys = keys;
	t.tokens = tokens;
	t.gpu_blocks = from;
	each_value(&d, c, from, tokens, true);
	assert_int_equal(kvmm_offload(d.eng, &t, &job), 0);
	assert_int_equal(door_done(d.eng, job, &info), 0);
	assert_int_equal(info.good, 3);
	assert_int_equal(info.bytes, bytes * tokens);
	t.gpu_blocks = to;
	assert_int_equal(kvmm_restore(d.eng, &t, &job), 0);
	assert_int_equal(door_done(d.eng, job, &info), 0);
	assert_int_equal(info.prefix, 3);
	each_value(&d, c, to, tokens, false);
	door_end(&d);
}

static void alloc_two(struct door *d, struct cache *c)
{
	unsigned int i;

	for (i = 0; i < LAYERS; i++) {
		c->k[i] = door_mem(d, 2ULL * BLOCKS * TOKENS * WIDTH);
		c->v[i] = c->k[i] + (uint64_t)BLOCKS * TOKENS * WIDTH;
	}
	c->shape.v = c->v;
}

static void flash_attention(void **state)
{
	struct cache c = {
		.name = "FlashAttention",
		.shape = { .k_token = WIDTH, .k_stride = TOKENS * WIDTH },
		.kvs = 2,
		.width = { WIDTH, WIDTH },
		.where = where_flash,
	};

	cache_test(state, &c, alloc_two);
}

static void heads_first(void **state)
{
	struct cache c = {
		.name = "HND",
		.shape = { .k_token = WIDTH, .k_stride = TOKENS * WIDTH,
			   .heads = HEADS },
		.kvs = 2,
		.width = { WIDTH, WIDTH },
		.where = where_hnd,
	};

	cache_test(state, &c, alloc_two);
}

static void alloc_fused(struct door *d, struct cache *c)
{
	unsigned int i;

	alloc_two(d, c);
	for (i = 0; i < LAYERS; i++)
		c->v[i] = c->k[i] + TOKENS * WIDTH;
}

static void flash_infer(void **state)
{
	struct cache c = {
		.name = "FlashInfer",
		.shape = { .k_token = WIDTH, .k_stride = 2 * TOKENS * WIDTH },
		.kvs = 2,
		.width = { WIDTH, WIDTH },
		.where = where_fused,
	};

	cache_test(state, &c, alloc_fused);
}

static void alloc_mla(struct door *d, struct cache *c)
{
	unsigned int i;

	for (i = 0; i < LAYERS; i++)
		c->k[i] = door_mem(d, BLOCKS * TOKENS * 36);
}

static void mla(void **state)
{
	struct cache c = {
		.name = "MLA",
		.shape = { .k_token = 36, .k_stride = TOKENS * 36 },
		.kvs = 1,
		.width = { 36 },
		.where = where_mla,
	};

	cache_test(state, &c, alloc_mla);
}

static void alloc_fp8(struct door *d, struct cache *c)
{
	unsigned int i;

	alloc_two(d, c);
	for (i = 0; i < LAYERS; i++) {
		c->ks[i] = door_mem(d, BLOCKS * TOKENS * HEADS * 4);
		c->vs[i] = door_mem(d, BLOCKS * TOKENS * HEADS * 4);
	}
	c->shape.k_scale = c->ks;
	c->shape.v_scale = c->vs;
}

static void fp8_scales(void **state)
{
	struct cache c = {
		.name = "fp8",
		.shape = { .k_token = WIDTH, .k_stride = TOKENS * WIDTH,
			   .scale_token = HEADS * 4,
			   .scale_stride = TOKENS * HEADS * 4 },
		.kvs = 4,
		.width = { WIDTH, WIDTH, HEADS * 4, HEADS * 4 },
		.where = where_fp8,
	};

	cache_test(state, &c, alloc_fp8);
}

static void alloc_llama(struct door *d, struct cache *c)
{
	unsigned int i;

	for (i = 0; i < LAYERS; i++) {
		c->k[i] = door_mem(d, CELLS * WIDTH);
		c->v[i] = door_mem(d, CELLS * WIDTH);
	}
	c->shape.v = c->v;
}

static void llama_cpp(void **state)
{
	struct cache c = {
		.name = "llama.cpp",
		.shape = { .k_token = WIDTH, .k_stride = WIDTH, .v_stride = 2,
			   .v_rows = WIDTH / 2, .v_row_stride = CELLS * 2 },
		.kvs = 2,
		.width = { WIDTH, WIDTH },
		.where = where_llama,
	};

	cache_test(state, &c, alloc_llama);
}

/* ---- any layout ---- */

static unsigned int rnd(unsigned int *seed, unsigned int n)
{
	return (unsigned int)rand_r(seed) % n;
}

static void random_layout(struct door *d, unsigned int *seed)
{
	unsigned int bt = 1 + rnd(seed, 5), i, group = 0;

	d->lay.block_tokens = bt;
	d->lay.gpu_blocks = 1 + rnd(seed, 3);
	d->lay.nr_gpu_blocks = 64;
	d->lay.nr_runs = 1 + rnd(seed, 6);
	for (i = 0; i < d->lay.nr_runs; i++) {
		struct kvmm_run *r = &d->runs[i];

		memset(r, 0, sizeof(*r));
		r->by = (uint16_t)rnd(seed, 3);
		r->bytes = 1 + rnd(seed, 40);
		r->count = 1 + rnd(seed, 6);
		if (r->by == KVMM_BY_BYTES)
			r->bytes *= bt;
		if (r->by == KVMM_BY_COUNT)
			r->count *= bt;
		r->stride = r->bytes + rnd(seed, 2) * rnd(seed, 30);
		r->offset = rnd(seed, 20);
		r->block_stride = r->offset + r->stride * r->count +
				  rnd(seed, 50);
		if (i)
			group += rnd(seed, 2);
		r->group = (uint16_t)group;
		r->base = door_mem(d, r->block_stride * 64 + 64);
	}
}

static void random_layouts(void **state)
{
	unsigned int seed = door_seed(), round, rounds = 25, i;
	struct seq *s = malloc(sizeof(*s)), *to = malloc(sizeof(*to));

	for (round = 0; round < rounds; round++) {
		uint8_t frame[LT_BLOCK];
		struct kvmm_block_ref ref;
		struct door d;
		size_t n;

		door_start(&d, *state, NULL);
		random_layout(&d, &seed);
		door_pool(&d, 16, 0);
		d.eng = door_open(&d, d.pool, NULL);
		seq_new(&d, s, 1 + rnd(&seed, 8), round * 100, 5);
		s->tokens = rnd(&seed, 2) ? 1 + rnd(&seed, door_tokens(&d)) : 0;
		*to = *s;
		for (i = 0; i < s->n * d.lay.gpu_blocks; i++)
			to->ids[i] = 63 - i;
		seq_fill(&d, s);
		assert_int_equal(door_offload(&d, s), s->n);
		/* what is in the frames, and how long it is */
		for (i = 0; i < s->n; i++) {
			struct kvmm_key_entry e[16];
			uint64_t cursor = 0;
			long k, got = kvmm_keys(d.pool, &cursor, e, 16);

			n = door_pack(&d, seq_ids(&d, s, i),
				      seq_tokens(&d, s, i), frame);
			assert_int_equal(kvmm_layout_bytes(&d.lay,
					 seq_tokens(&d, s, i)), n);
			assert_int_equal(lt_find(d.pool, s->first + i,
						 KVMM_LOOKUP_PIN, &ref),
					 KVMM_MEMORY);
			assert_memory_equal(kvmm_addr(d.pool, &ref), frame, n);
			for (k = 0; k < got; k++)
				if (e[k].handle == ref.handle)
					break;
			assert_true(k < got);
			assert_int_equal(e[k].length, n);
			assert_int_equal(e[k].position, i);
			assert_int_equal(e[k].flags & KVMM_BLOCK_PARTIAL,
					 seq_tokens(&d, s, i) < door_tokens(&d) ?
						 KVMM_BLOCK_PARTIAL : 0);
			kvmm_unpin(d.pool, &ref, 1);
		}
		seq_clear(&d, to);
		assert_int_equal(door_restore(&d, to), s->n);
		seq_check(&d, to, 0, s->n);
		door_end(&d);
	}
	free(s);
	free(to);
}

/* A block that isn't full leaves the rest of the GPU block alone. */
static void partial_is_bounded(void **state)
{
	struct seq *s = malloc(sizeof(*s));
	struct door d;
	uint8_t byte;

	door_start(&d, *state, NULL);
	door_simple(&d, 2, 1, 16, 8, 1, 32);
	door_pool(&d, 8, 0);
	d.eng = door_open(&d, d.pool, NULL);
	seq_new(&d, s, 1, 7, 3);
	s->tokens = 5;
	seq_fill(&d, s);
	assert_int_equal(door_offload(&d, s), 1);
	s->ids[0] = 9;
	byte = 0xaa;
	door_write(&d, d.runs[1].base + 9 * 128 + 40, &byte, 1);
	assert_int_equal(door_restore(&d, s), 1);
	seq_check(&d, s, 0, 1);
	door_read(&d, d.runs[1].base + 9 * 128 + 40, &byte, 1);
	assert_int_equal(byte, 0xaa);
	door_read(&d, d.runs[1].base + 9 * 128 + 41, &byte, 1);
	assert_int_equal(byte, 0);
	door_end(&d);
	free(s);
}

/* Batches so large that they go past the caches, at odd addresses. */
static void large_and_odd(void **state)
{
	static const size_t bytes = 16 * 8191;
	struct kvmm_pool_opts opts = {
		.size = sizeof(opts),
		.name = "door",
		.block_size = 1 << 20,
		.nr_frames = 24,
	};
	struct kvmm_transfer t = { .size = sizeof(t), .n = 20 };
	uint8_t *want = malloc(bytes), *is = malloc(bytes);
	uint8_t keys[20][KVMM_KEY_LEN];
	uint32_t ids[20];
	unsigned int i, r;
	struct door d;
	uint64_t job;

	door_start(&d, *state, NULL);
	d.lay.nr_runs = 5;
	d.lay.block_tokens = 1;
	for (r = 0; r < 5; r++)
		d.runs[r] = (struct kvmm_run){
			.base = door_mem(&d, 40 * (bytes + 3)) + r * 7,
			.block_stride = bytes + 3,
			.bytes = bytes,
			.count = 1,
		};
	d.pool = lt_create(d.lt, &opts);
	d.eng = door_open(&d, d.pool, NULL);
	for (i = 0; i < 20; i++) {
		lt_key(keys[i], i);
		ids[i] = i;
		for (r = 0; r < 5; r++) {
			lt_fill(want, i * 5 + r, bytes);
			door_write(&d, d.runs[r].base + i * (bytes + 3), want,
				   bytes);
		}
	}
	t.keys = keys;
	t.gpu_blocks = ids;
	assert_int_equal(kvmm_offload(d.eng, &t, &job), 0);
	assert_int_equal(door_done(d.eng, job, NULL), 0);
	for (i = 0; i < 20; i++)
		ids[i] = 38 - i;
	assert_int_equal(kvmm_restore(d.eng, &t, &job), 0);
	assert_int_equal(door_done(d.eng, job, NULL), 0);
	for (i = 0; i < 20; i++) {
		for (r = 0; r < 5; r++) {
			lt_fill(want, i * 5 + r, bytes);
			door_read(&d, d.runs[r].base + ids[i] * (bytes + 3), is,
				  bytes);
			assert_memory_equal(want, is, bytes);
			/* and what is between them is as it was */
			door_read(&d, d.runs[r].base + ids[i] * (bytes + 3) +
					      bytes, is, 3);
			assert_memory_equal("\0\0\0", is, 3);
		}
	}
	door_end(&d);
	free(want);
	free(is);
}

static void bad_layouts(void **state)
{
	struct kvmm_run good = { .base = 4096, .bytes = 64, .count = 1 };
	struct kvmm_run runs[2] = { good, good };
	struct kvmm_layout l = {
		.size = sizeof(l), .runs = runs, .nr_runs = 2,
		.block_tokens = 16,
	};
	struct kvmm_layout ok = l;

	(void)state;
	assert_int_equal(kvmm_layout_bytes(&l, 0), 128);
	assert_int_equal(kvmm_layout_bytes(&l, 16), 128);
	assert_int_equal(kvmm_layout_bytes(&l, 1), 8);
	assert_fails(kvmm_layout_bytes(&l, 17), EINVAL);
	assert_fails(kvmm_layout_bytes(NULL, 0), EINVAL);
#define BAD(what) do {						\
		l = ok;						\
		runs[0] = good;					\
		runs[1] = good;					\
		what;						\
		assert_fails(kvmm_layout_bytes(&l, 0), EINVAL);	\
	} while (0)
	BAD(l.runs = NULL);
	BAD(l.nr_runs = 0);
	BAD(l.nr_runs = KVMM_MAX_RUNS + 1);
	BAD(l.block_tokens = 0);
	BAD(l.gpu_blocks = KVMM_MAX_GPU_BLOCKS + 1);
	BAD(runs[0].base = 0);
	BAD(runs[1].bytes = 0);
	BAD(runs[1].bytes = 63);
	BAD(runs[1].count = 0);
	BAD(runs[1].by = 3);
	BAD(runs[0].group = 1);
	BAD(runs[1].group = 2);
	BAD((runs[0].group = 1, runs[1].group = 0));
	BAD((runs[1].count = 2, runs[1].stride = 63));
	BAD((runs[1].by = KVMM_BY_COUNT, runs[1].count = 15,
	     runs[1].stride = 64));
	BAD((runs[1].bytes = 1ULL << 40));
	BAD((runs[1].count = 2, runs[1].stride = ~0ULL));
	l = ok;
	l.size = 4;
	assert_fails(kvmm_layout_bytes(&l, 0), EINVAL);
}

static void bad_shapes(void **state)
{
	uint64_t k[2] = { 4096, 8192 };
	struct kvmm_shape ok = {
		.size = sizeof(ok), .layers = 2, .block_tokens = 16, .k = k,
		.k_token = 64, .k_stride = 1024,
	}, s = ok;

	(void)state;
	assert_int_equal(kvmm_shape_runs(&s, NULL, 0), 2);
	assert_fails(kvmm_shape_runs(NULL, NULL, 0), EINVAL);
#define BAD_SHAPE(what) do {						\
		s = ok;							\
		what;							\
		assert_fails(kvmm_shape_runs(&s, NULL, 0), EINVAL);	\
	} while (0)
	BAD_SHAPE(s.layers = 0);
	BAD_SHAPE(s.block_tokens = 0);
	BAD_SHAPE(s.k = NULL);
	BAD_SHAPE(s.k_token = 0);
	BAD_SHAPE(s.heads = 3);
	BAD_SHAPE(s.v_rows = 4);
	BAD_SHAPE((s.v = k, s.v_rows = 7, s.v_row_stride = 100));
	BAD_SHAPE((s.v = k, s.v_rows = 8));
	BAD_SHAPE(s.k_scale = k);
	BAD_SHAPE(s.size = 8);
}

static const struct lt_test tests[] = {
	LT_TEST(flash_attention),
	LT_TEST(heads_first),
	LT_TEST(flash_infer),
	LT_TEST(mla),
	LT_TEST(fp8_scales),
	LT_TEST(llama_cpp),
	LT_TEST(random_layouts),
	LT_TEST(partial_is_bounded),
	LT_TEST(large_and_odd),
	LT_TEST(bad_layouts),
	LT_TEST(bad_shapes),
};

int main(void)
{
	return LT_RUN("layout", tests);
}
