// SPDX-License-Identifier: MIT
/*
 * libkvmm's high door in two hundred lines: what an inference engine does with
 * it when requests come and go.
 *
 * The "engine" computes on the host; one that has a GPU leaves .device at AUTO
 * or sets CUDA, has device addresses in its layout, and its CUstream wherever
 * this says NULL.
 *
 *	cc example_engine.c $(pkg-config --cflags --libs libkvmm) -o engine
 *	./engine SWAPFILE
 */
#include <kvmm_engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS		4
#define TOKENS		16	/* of a block */
#define TOKEN_BYTES	512	/* keys of a token in one layer; values alike */
#define GPU_BLOCKS	64	/* that the cache has room for */
#define MAX_BLOCKS	32	/* of a request */

/* ---- the engine's own: a paged KV cache, and something to compute ---- */

static unsigned char *k_cache[LAYERS], *v_cache[LAYERS];

static void die(const char *doing)
{
	perror(doing);
	exit(1);
}

/* What belongs to a token at a place: a model would compute it. */
static unsigned char kv_of(const uint32_t *tokens, unsigned int t, int layer)
{
	return (unsigned char)(tokens[t] * 7 + t + (unsigned int)layer * 31);
}

static void prefill(const uint32_t *tokens, unsigned int first,
		    unsigned int end, const uint32_t *blocks)
{
	unsigned int t;
	int layer;

	for (layer = 0; layer < LAYERS; layer++)
		for (t = first; t < end; t++) {
			size_t at = ((size_t)blocks[t / TOKENS] * TOKENS +
				     t % TOKENS) * TOKEN_BYTES;

			memset(k_cache[layer] + at, kv_of(tokens, t, layer),
			       TOKEN_BYTES);
			memset(v_cache[layer] + at, ~kv_of(tokens, t, layer),
			       TOKEN_BYTES);
		}
}

/* Attention would read all of it: is it what it must be? */
static void attend(const uint32_t *tokens, unsigned int n,
		   const uint32_t *blocks)
{
	unsigned int t, layer;

	for (layer = 0; layer < LAYERS; layer++)
		for (t = 0; t < n; t++) {
			size_t at = ((size_t)blocks[t / TOKENS] * TOKENS +
				     t % TOKENS) * TOKEN_BYTES;
			unsigned char want = kv_of(tokens, t, (int)layer);

			if (k_cache[layer][at] != want ||
			    v_cache[layer][at + TOKEN_BYTES - 1] !=
				    (unsigned char)~want) {
				fprintf(stderr, "token %u is garbage\n", t);
				exit(1);
			}
		}
}

/* ---- kvmm ---- */

static struct kvmm_engine *open_engine(struct kvmm_pool *pool)
{
	static struct kvmm_run runs[2 * LAYERS];
	uint64_t k[LAYERS], v[LAYERS];
	struct kvmm_shape shape = {
		.size = sizeof(shape),
		.layers = LAYERS,
		.layers_per_group = 1,
		.block_tokens = TOKENS,
		.k = k,
		.v = v,
		.k_token = TOKEN_BYTES,
		.k_stride = TOKENS * TOKEN_BYTES,
	};
	struct kvmm_layout layout = {
		.size = sizeof(layout),
		.runs = runs,
		.block_tokens = TOKENS,
		.nr_gpu_blocks = GPU_BLOCKS,
	};
	/* fitted to three prefills of the model */
	struct kvmm_cost cost = { .fixed_us = 1000, .token_us = 200 };
	struct kvmm_engine_opts opts = {
		.size = sizeof(opts),
		.device = KVMM_DEVICE_HOST,
		.layout = &layout,
		.cost = &cost,
	};
	struct kvmm_engine *engine;
	long nr_runs;
	int i;

	for (i = 0; i < LAYERS; i++) {
		k_cache[i] = calloc(GPU_BLOCKS, TOKENS * TOKEN_BYTES);
		v_cache[i] = calloc(GPU_BLOCKS, TOKENS * TOKEN_BYTES);
		if (!k_cache[i] || !v_cache[i])
			die("calloc");
		k[i] = (uintptr_t)k_cache[i];
		v[i] = (uintptr_t)v_cache[i];
	}
	nr_runs = kvmm_shape_runs(&shape, runs, 2 * LAYERS);
	if (nr_runs < 0)
		die("kvmm_shape_runs");
	layout.nr_runs = (unsigned int)nr_runs;
	if (kvmm_engine_open(pool, &opts, &engine))
		die("kvmm_engine_open");
	return engine;
}

/* Loads what is worth it; returns the tokens that need not be computed. */
static unsigned int load(struct kvmm_engine *engine,
			 struct kvmm_transfer *req, unsigned int tokens)
{
	struct kvmm_plan plan;
	unsigned int layer;
	uint64_t job;
	long prefix;

	if (kvmm_plan(engine, req->keys, req->n, tokens, 0, &plan))
		die("kvmm_plan");
	if (!plan.count)
		return 0;
	req->n = plan.count;
	req->tokens = tokens < plan.count * TOKENS ? tokens : 0;
	req->timeout_us = (uint64_t)plan.limit_us;
	if (kvmm_restore(engine, req, &job))
		die("kvmm_restore");
	/*
	 * How many there will be is known here; each layer's computation is
	 * then put into the stream behind that layer's data.
	 */
	prefix = kvmm_job_fence(engine, job, 0, NULL, -1);
	for (layer = 1; layer < LAYERS && prefix > 0; layer++)
		prefix = kvmm_job_fence(engine, job, layer, NULL, -1);
	kvmm_job_end(engine, job);
	if (prefix <= 0)
		return 0;
	return (unsigned int)prefix * TOKENS < tokens ?
		       (unsigned int)prefix * TOKENS : tokens;
}

static void serve(struct kvmm_engine *engine, const struct kvmm_keyer *keyer,
		  const uint32_t *tokens, unsigned int n)
{
	unsigned char keys[MAX_BLOCKS][KVMM_KEY_LEN];
	uint32_t blocks[MAX_BLOCKS];
	struct kvmm_transfer req = {
		.size = sizeof(req),
		.keys = keys,
		.gpu_blocks = blocks,
	};
	static uint32_t next;
	unsigned int have, i;
	uint64_t job;
	long nr;

	nr = kvmm_key_chain(keyer, NULL, tokens, n, TOKENS, NULL, keys);
	if (nr < 0)
		die("kvmm_key_chain");
	for (i = 0; i < nr; i++)
		blocks[i] = next++ % GPU_BLOCKS;

	req.n = (unsigned int)nr;
	have = load(engine, &req, n);
	prefill(tokens, have, n, blocks);
	attend(tokens, n, blocks);
	printf("%u tokens: %u loaded, %u computed\n", n, have, n - have);

	req.n = (unsigned int)nr;
	req.tokens = n;
	req.timeout_us = 1000000;
	if (kvmm_offload(engine, &req, &job))
		die("kvmm_offload");
	/* The GPU blocks may be used again when the job is done. */
	if (kvmm_job_wait(engine, job, -1))
		die("kvmm_job_wait");
	kvmm_job_end(engine, job);
}

/* Memory on the device's NUMA node, where there is such a thing. */
static void near_device(struct kvmm *kv, struct kvmm_pool_opts *po)
{
	struct kvmm_engine_opts device = {
		.size = sizeof(device),
		.device = KVMM_DEVICE_HOST,	/* as in open_engine() */
	};
	int node = kvmm_device_node(kv, &device);

	/* the user backend leaves it to numactl(8) */
	if (node < 0 || node > 63 || strcmp(kvmm_backend_name(kv), "kernel"))
		return;
	po->nodes = 1ULL << node;
	po->flags |= KVMM_POOL_NODES_PREFER;	/* elsewhere when it is full */
}

int main(int argc, char **argv)
{
	struct kvmm_pool_opts po = {
		.size = sizeof(po),
		.name = "example-engine",
		.block_size = 2 * LAYERS * TOKENS * TOKEN_BYTES,
		.nr_frames = 24,
		.nr_slots = 128,
	};
	struct kvmm_swap_opts so = {
		.size = sizeof(so),
		.flags = KVMM_SWAP_CREATE | KVMM_SWAP_UNLINK,
		.path = argc > 1 ? argv[1] : "example.swap",
	};
	/* whatever makes KV data of equal tokens different */
	struct iovec domain = { .iov_base = "example-1b, fp16, 4x2x16x512",
				.iov_len = 28 };
	struct kvmm_key_opts ko = { .size = sizeof(ko), .domain = &domain,
				    .nr_domain = 1 };
	uint32_t tokens[MAX_BLOCKS * TOKENS];
	struct kvmm_engine *engine;
	struct kvmm_keyer *keyer;
	struct kvmm_pool *pool;
	struct kvmm *kv;
	unsigned int i;

	if (kvmm_open(&kv, NULL))
		die("kvmm_open");
	near_device(kv, &po);
	if (kvmm_pool_create(kv, &po, &pool))
		die("kvmm_pool_create");
	if (kvmm_swap_attach(pool, &so) < 0)
		die("kvmm_swap_attach");
	if (kvmm_keyer_new(&keyer, &ko))
		die("kvmm_keyer_new");
	engine = open_engine(pool);

	for (i = 0; i < MAX_BLOCKS * TOKENS; i++)
		tokens[i] = i * i % 1000;
	serve(engine, keyer, tokens, 200);	/* a request */
	serve(engine, keyer, tokens, 300);	/* its next turn */
	tokens[100] = 5;
	serve(engine, keyer, tokens, 300);	/* a fork of it */
	if (kvmm_reclaim(pool, 0, NULL))	/* other work needs memory */
		die("kvmm_reclaim");
	serve(engine, keyer, tokens, 320);	/* comes back from the area */

	kvmm_engine_close(engine);
	kvmm_keyer_free(keyer);
	kvmm_pool_close(pool);
	kvmm_pool_destroy(kv, "example-engine", 0);
	kvmm_close(kv);
	for (i = 0; i < LAYERS; i++) {
		free(k_cache[i]);
		free(v_cache[i]);
	}
	return 0;
}
