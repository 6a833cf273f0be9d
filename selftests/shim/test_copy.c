// SPDX-License-Identifier: MIT
/*
 * Copies compared byte for byte, both ways, with random layouts, by each path
 * and with each kind of driver.
 */
#include "fixture.h"

#define ARENA (2 * MiB)
#define DEV (2 * MiB)
#define FRAME (64UL << 10)
#define FRAMES (ARENA / FRAME)
#define MAX_RUNS 24
#ifdef __SANITIZE_THREAD__
#define ROUNDS 4 /* ten times slower */
#else
#define ROUNDS 24
#endif

static const struct fx_config configs[] = {
	{
		.name = "host",
		.backend = KVMM_GPU_HOST,
	},
	{
		.name = "kernel",
		.backend = KVMM_GPU_CUDA,
		.path = KVMM_GPU_PATH_KERNEL,
		.env = {"DELAY_US=60"},
	},
	{
		.name = "batch, 13.0",
		.backend = KVMM_GPU_CUDA,
		.path = KVMM_GPU_PATH_BATCH,
		.env = {"DELAY_US=60"},
	},
	{
		.name = "batch, 12.8",
		.backend = KVMM_GPU_CUDA,
		.path = KVMM_GPU_PATH_BATCH,
		.env = {"DELAY_US=60", "VERSION=12080"},
	},
	{
		.name = "plain",
		.backend = KVMM_GPU_CUDA,
		.path = KVMM_GPU_PATH_PLAIN,
		.env = {"SEED=2"},
	},
	{
		.name = "crossover",
		.backend = KVMM_GPU_CUDA,
		.crossover = 2048,
		.env = {"DELAY_US=60"},
	},
	{
		.name = "crossover, 12.0: no batches",
		.backend = KVMM_GPU_CUDA,
		.crossover = 2048,
		.env = {"SEED=3", "VERSION=12000"},
	},
	{
		.name = "crossover, host pointers",
		.backend = KVMM_GPU_CUDA,
		.crossover = 2048,
		.env = {"DELAY_US=60", "SAME_POINTER=1"},
	},
	{
		.name = "crossover, default stream",
		.backend = KVMM_GPU_CUDA,
		.crossover = 2048,
		.env = {"DELAY_US=60"},
		.default_stream = true,
	},
	{
		.name = "crossover, HMM, not registered",
		.backend = KVMM_GPU_CUDA,
		.crossover = 2048,
		.env = {"DELAY_US=60", "PAGEABLE=hmm"},
		.unregistered = true,
	},
	{
		.name = "crossover, ATS, not registered",
		.backend = KVMM_GPU_CUDA,
		.crossover = 2048,
		.env = {"DELAY_US=60", "PAGEABLE=ats"},
		.unregistered = true,
	},
};

/* What the tests copy, and what it should look like afterwards. */
struct data {
	struct fx *fx;
	struct kvmm_gpu_stream *stream;
	struct kvmm_gpu_event *done;
	char *arena;
	uint64_t dev;
	char *host_model;
	char *dev_model;
	char *dev_now;
	struct kvmm_gpu_copy copies[FRAMES];
	struct kvmm_gpu_run runs[FRAMES][MAX_RUNS];
	size_t nr;
};

static void data_init(struct data *d, struct fx *fx)
{
	memset(d, 0, sizeof(*d));
	d->fx = fx;
	d->arena = fx_map(ARENA);
	d->dev = fx_dev_alloc(fx, DEV);
	d->host_model = malloc(ARENA);
	d->dev_model = malloc(DEV);
	d->dev_now = malloc(DEV);
	if (!fx->cfg->unregistered)
		fx_ok(fx->gpu, kvmm_gpu_register(fx->gpu, d->arena, ARENA),
		      "register");
	if (fx->cfg->default_stream)
		fx_ok(fx->gpu, kvmm_gpu_stream_wrap(fx->gpu, NULL, &d->stream),
		      "stream");
	else
		fx_ok(fx->gpu, kvmm_gpu_stream_create(fx->gpu, &d->stream),
		      "stream");
	fx_ok(fx->gpu, kvmm_gpu_event_create(fx->gpu, &d->done), "event");
}

static void data_exit(struct data *d)
{
	struct fx *fx = d->fx;

	fx_ok(fx->gpu, kvmm_gpu_stream_sync(d->stream), "sync");
	kvmm_gpu_event_destroy(d->done);
	kvmm_gpu_stream_destroy(d->stream);
	if (!fx->cfg->unregistered)
		fx_ok(fx->gpu, kvmm_gpu_unregister(fx->gpu, d->arena, ARENA),
		      "unregister");
	fx_dev_free(fx, d->dev);
	free(d->host_model);
	free(d->dev_model);
	free(d->dev_now);
	fx_unmap(d->arena, ARENA);
}

static size_t random_bytes(void)
{
	switch (fx_random() % 4) {
	case 0: /* odd */
		return 1 + fx_random() % 999;
	case 1:
		return 4 * (1 + fx_random() % 700);
	default:
		return 16 * (1 + fx_random() % 300);
	}
}

/* Frames in random places, their fragments one after another on the device,
 * with or without gaps.
 */
static void random_layout(struct data *d)
{
	size_t at = fx_random() % 64, frame = fx_random() % 4;

	d->nr = 0;
	while (frame < FRAMES && d->nr < FRAMES) {
		struct kvmm_gpu_copy *c = &d->copies[d->nr];
		struct kvmm_gpu_run *runs = d->runs[d->nr];
		size_t off = fx_random() % 3 ? 0 : fx_random() % 100;
		size_t room = FRAME - off;

		c->host = d->arena + frame * FRAME + off;
		c->runs = runs;
		c->nr_runs = 0;
		while (c->nr_runs < 1 + fx_random() % MAX_RUNS) {
			struct kvmm_gpu_run *run = &runs[c->nr_runs];
			size_t gap = fx_random() % 3 ?
					     0 : 16 * (fx_random() % 20);

			run->bytes = random_bytes();
			run->count = 1 + fx_random() % 6;
			run->stride = run->bytes + gap;
			run->dev = d->dev + at;
			if (run->bytes * run->count > room ||
			    at + run->stride * run->count > DEV)
				break;
			room -= run->bytes * run->count;
			at += run->stride * run->count;
			if (fx_random() % 2)
				at += fx_random() % 128;
			c->nr_runs++;
		}
		if (c->nr_runs)
			d->nr++;
		frame += 1 + fx_random() % 3;
	}
	assert_true(d->nr > 0);
}

static void model_copy(struct data *d, enum kvmm_gpu_dir dir)
{
	size_t i, r, k;

	for (i = 0; i < d->nr; i++) {
		const struct kvmm_gpu_copy *c = &d->copies[i];
		char *host = d->host_model + ((char *)c->host - d->arena);

		for (r = 0; r < c->nr_runs; r++)
			for (k = 0; k < c->runs[r].count; k++) {
				size_t n = c->runs[r].bytes;
				char *dev = d->dev_model +
					    (c->runs[r].dev - d->dev) +
					    k * c->runs[r].stride;

				if (dir == KVMM_GPU_OUT)
					memcpy(host, dev, n);
				else
					memcpy(dev, host, n);
				host += n;
			}
	}
}

static void test_random(void **state)
{
	struct data d;
	int i;

	data_init(&d, *state);
	fx_fill(d.host_model, ARENA);
	fx_fill(d.dev_model, DEV);
	memcpy(d.arena, d.host_model, ARENA);
	fx_poke(d.fx, d.dev, d.dev_model, DEV);
	for (i = 0; i < ROUNDS; i++) {
		enum kvmm_gpu_dir dir = i % 2 ? KVMM_GPU_IN : KVMM_GPU_OUT;
		size_t at = fx_random() % (DEV - 4096);

		/* fresh bytes, so that a copy left out is seen */
		fx_fill(d.host_model + at % (ARENA - 4096), 4096);
		memcpy(d.arena, d.host_model, ARENA);
		fx_fill(d.dev_model + at, 4096);
		fx_poke(d.fx, d.dev, d.dev_model, DEV);
		random_layout(&d);
		fx_ok(d.fx->gpu, kvmm_gpu_copy(d.stream, dir, d.copies, d.nr),
		      "copy");
		fx_ok(d.fx->gpu, kvmm_gpu_event_record(d.done, d.stream),
		      "record");
		fx_ok(d.fx->gpu, kvmm_gpu_event_wait(d.done), "wait");
		model_copy(&d, dir);
		fx_peek(d.fx, d.dev_now, d.dev, DEV);
		assert_memory_equal(d.arena, d.host_model, ARENA);
		assert_memory_equal(d.dev_now, d.dev_model, DEV);
	}
	data_exit(&d);
}

/* A layout with many fragments: the limits of one launch and one batch. */
static void test_many(void **state)
{
	struct data d;
	size_t i;

	data_init(&d, *state);
	fx_fill(d.dev_model, DEV);
	memset(d.host_model, 0, ARENA);
	fx_poke(d.fx, d.dev, d.dev_model, DEV);
	for (i = 0; i < FRAMES; i++) {
		/* 32 fragments of 512 bytes and 8 of 2 KiB, gaps between */
		d.runs[i][0] = (struct kvmm_gpu_run){
			d.dev + i * FRAME, 1024, 512, 32};
		d.runs[i][1] = (struct kvmm_gpu_run){
			d.dev + i * FRAME + 32768, 4096, 2048, 8};
		d.copies[i] = (struct kvmm_gpu_copy){
			d.arena + i * FRAME, d.runs[i], 2};
	}
	d.nr = FRAMES;
	fx_ok(d.fx->gpu, kvmm_gpu_copy(d.stream, KVMM_GPU_OUT, d.copies, d.nr),
	      "copy");
	fx_ok(d.fx->gpu, kvmm_gpu_stream_sync(d.stream), "sync");
	model_copy(&d, KVMM_GPU_OUT);
	assert_memory_equal(d.arena, d.host_model, ARENA);
	data_exit(&d);
}

#define LARGE_FRAMES	11
#define LARGE_FRAGS	200
#define LARGE_BYTES	4168	/* a page and some, not a whole line */
#define LARGE_STRIDE	5001

/* So much at once that the host device writes past the caches: every byte. */
static void test_large(void **state)
{
	struct fx *fx = *state;
	size_t span = (size_t)LARGE_FRAGS * LARGE_STRIDE, i, k;
	char *host = fx_map(LARGE_FRAMES * MiB), *want;
	uint64_t dev = fx_dev_alloc(fx, LARGE_FRAMES * span + 64);
	struct kvmm_gpu_copy copies[LARGE_FRAMES];
	struct kvmm_gpu_run runs[LARGE_FRAMES];
	struct kvmm_gpu_stream *s;

	want = malloc(LARGE_FRAMES * span);
	assert_non_null(want);
	fx_ok(fx->gpu, kvmm_gpu_register(fx->gpu, host, LARGE_FRAMES * MiB),
	      "register");
	fx_ok(fx->gpu, kvmm_gpu_stream_create(fx->gpu, &s), "stream");
	for (i = 0; i < LARGE_FRAMES; i++) {
		runs[i] = (struct kvmm_gpu_run){dev + 3 + i * span,
						LARGE_STRIDE, LARGE_BYTES,
						LARGE_FRAGS};
		copies[i] = (struct kvmm_gpu_copy){host + i * MiB + 40,
						   &runs[i], 1};
	}
	fx_fill(host, LARGE_FRAMES * MiB);
	memset(want, 0x11, LARGE_FRAMES * span);
	fx_poke(fx, dev + 3, want, LARGE_FRAMES * span);
	fx_ok(fx->gpu, kvmm_gpu_copy(s, KVMM_GPU_IN, copies, LARGE_FRAMES),
	      "in");
	fx_ok(fx->gpu, kvmm_gpu_stream_sync(s), "sync");
	for (i = 0; i < LARGE_FRAMES; i++)
		for (k = 0; k < LARGE_FRAGS; k++)
			memcpy(want + i * span + k * LARGE_STRIDE,
			       host + i * MiB + 40 + k * LARGE_BYTES,
			       LARGE_BYTES);
	memset(host, 0, LARGE_FRAMES * MiB);
	for (i = 0; i < LARGE_FRAMES; i++) {
		char *now = malloc(span);

		fx_peek(fx, now, dev + 3 + i * span, span);
		assert_memory_equal(now, want + i * span, span);
		free(now);
	}
	/* and back */
	fx_ok(fx->gpu, kvmm_gpu_copy(s, KVMM_GPU_OUT, copies, LARGE_FRAMES),
	      "out");
	fx_ok(fx->gpu, kvmm_gpu_stream_sync(s), "sync");
	for (i = 0; i < LARGE_FRAMES; i++) {
		for (k = 0; k < LARGE_FRAGS; k++)
			assert_memory_equal(host + i * MiB + 40 +
						    k * LARGE_BYTES,
					    want + i * span + k * LARGE_STRIDE,
					    LARGE_BYTES);
		for (k = 0; k < 40; k++)
			assert_int_equal(host[i * MiB + k], 0);
		for (k = 40 + LARGE_FRAGS * LARGE_BYTES; k < MiB; k++)
			assert_int_equal(host[i * MiB + k], 0);
	}
	kvmm_gpu_stream_destroy(s);
	fx_ok(fx->gpu, kvmm_gpu_unregister(fx->gpu, host, LARGE_FRAMES * MiB),
	      "unregister");
	fx_dev_free(fx, dev);
	fx_unmap(host, LARGE_FRAMES * MiB);
	free(want);
}

#define CALLS(name) fake.calls(name)

/* Which path a fragment takes, and that neighbours go as one. */
static void test_routing(void **state)
{
	struct fx *fx = *state;
	struct data d;
	struct kvmm_gpu_run small = {0, 4096, 1024, 8};
	struct kvmm_gpu_run large = {0, 8192, 4096, 8};
	struct kvmm_gpu_run packed[3] = {{0, 1024, 1024, 4},
					 {0, 512, 512, 1},
					 {0, 512, 512, 7}};
	struct kvmm_gpu_copy copy = {0};

	data_init(&d, fx);
	small.dev = d.dev;
	large.dev = d.dev + MiB;
	copy = (struct kvmm_gpu_copy){d.arena, &small, 1};
	fx_ok(fx->gpu, kvmm_gpu_copy(d.stream, KVMM_GPU_IN, &copy, 1), "copy");
	assert_int_equal(CALLS("cuLaunchKernel"), 1);
	assert_int_equal(CALLS("cuMemcpyBatchAsync"), 0);
	copy.runs = &large;
	fx_ok(fx->gpu, kvmm_gpu_copy(d.stream, KVMM_GPU_IN, &copy, 1), "copy");
	assert_int_equal(CALLS("cuLaunchKernel"), 1);
	assert_int_equal(CALLS("cuMemcpyBatchAsync"), 1);
	/* 8 KiB that lie together are one fragment, above the crossover */
	packed[0].dev = d.dev;
	packed[1].dev = d.dev + 4096;
	packed[2].dev = d.dev + 4096 + 512;
	copy = (struct kvmm_gpu_copy){d.arena, packed, 3};
	fx_ok(fx->gpu, kvmm_gpu_copy(d.stream, KVMM_GPU_OUT, &copy, 1),
	      "copy");
	assert_int_equal(CALLS("cuLaunchKernel"), 1);
	assert_int_equal(CALLS("cuMemcpyBatchAsync"), 2);
	assert_int_equal(CALLS("cuMemcpyDtoHAsync"), 0);
	assert_int_equal(CALLS("cuMemcpyHtoDAsync"), 0);
	data_exit(&d);
}

#define NR_CONFIGS ARRAY_SIZE(configs)

int copy_tests(void)
{
	static const struct fx_config host = {
		.name = "host",
		.backend = KVMM_GPU_HOST,
	};
	struct CMUnitTest tests[2 * NR_CONFIGS + 2];
	static char names[2 * NR_CONFIGS][64];
	size_t i;

	for (i = 0; i < 2 * NR_CONFIGS; i++) {
		const struct fx_config *cfg = &configs[i / 2];

		snprintf(names[i], sizeof(names[i]), "%s: %s", cfg->name,
			 i % 2 ? "many fragments" : "random layouts");
		tests[i] = (struct CMUnitTest){
			.name = names[i],
			.test_func = i % 2 ? test_many : test_random,
			.setup_func = fx_setup,
			.teardown_func = fx_teardown,
			.initial_state = (void *)cfg,
		};
	}
	tests[i] = (struct CMUnitTest){
		"crossover: which path", test_routing, fx_setup, fx_teardown,
		(void *)&configs[5],
	};
	tests[i + 1] = (struct CMUnitTest){
		"host: a large batch", test_large, fx_setup, fx_teardown,
		(void *)&host,
	};
	return cmocka_run_group_tests_name("copies", tests, NULL, NULL);
}
