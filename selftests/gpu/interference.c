// SPDX-License-Identifier: MIT
/*
 * Copies while the GPU computes: how much each costs the other.  The computing
 * is a matrix product in small whole numbers, so that its result is exact.
 */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECONDS		0.6
#define SAMPLES		64

/**
 * struct product - a matrix product
 * @n: rows and columns
 * @a: device address, then those of the other one and of the result
 * @s: its stream
 */
struct product {
	uint32_t n;
	cu_deviceptr_t a, b, c;
	struct kvmm_gpu_stream *s;
};

static float entry_a(uint32_t i, uint32_t k)
{
	return (float)((int)((7 * i + 3 * k) % 9) - 4);
}

static float entry_b(uint32_t k, uint32_t j)
{
	return (float)((int)((5 * k + 2 * j) % 7) - 3);
}

/* By the arena, which is registered; rows at a time where it is small. */
static int load_matrix(struct run *r, struct product *p, cu_deviceptr_t dev,
		       float (*entry)(uint32_t, uint32_t))
{
	size_t row = (size_t)p->n * sizeof(float);
	uint32_t most = (uint32_t)(r->bytes / row), i, k, n;
	int err = 0;

	for (i = 0; i < p->n && !err; i += n) {
		struct kvmm_gpu_run run = { .dev = dev + i * row, .count = 1 };
		struct kvmm_gpu_copy copy = { r->arena.data, &run, 1 };
		float *to = (float *)r->arena.data;

		n = p->n - i < most ? p->n - i : most;
		run.bytes = n * row;
		for (k = 0; k < n * p->n; k++)
			to[k] = entry(i + k / p->n, k % p->n);
		err = kvmm_gpu_copy(p->s, KVMM_GPU_IN, &copy, 1);
		if (!err)
			err = kvmm_gpu_stream_sync(p->s);
	}
	return err;
}

static float exact(uint32_t n, uint32_t i, uint32_t j)
{
	float sum = 0;

	for (uint32_t k = 0; k < n; k++)
		sum += entry_a(i, k) * entry_b(k, j);
	return sum;
}

/* The first, and rows drawn by chance, some entries of each. */
static long product_wrong(struct run *r, struct product *p)
{
	size_t row = (size_t)p->n * sizeof(float);
	const float *got = (const float *)r->arena.data;
	uint32_t state = 1;
	long wrong = 0;

	for (int k = 0; k < SAMPLES; k++) {
		struct kvmm_gpu_run run = { .bytes = row, .count = 1 };
		struct kvmm_gpu_copy copy = { r->arena.data, &run, 1 };
		uint32_t i, j;

		state = state * 1664525 + 1013904223;
		i = k ? (state >> 8) % p->n : 0;
		run.dev = p->c + i * row;
		if (kvmm_gpu_copy(p->s, KVMM_GPU_OUT, &copy, 1) ||
		    kvmm_gpu_stream_sync(p->s))
			return -1;
		for (int m = 0; m < 4; m++) {
			state = state * 1664525 + 1013904223;
			j = k || m ? (state >> 8) % p->n : 0;
			wrong += got[j] != exact(p->n, i, j);
		}
	}
	return wrong;
}

static int product_make(struct run *r, struct kvmm_gpu *gpu, struct product *p)
{
	size_t bytes;
	int err;

	*p = (struct product){ .n = r->quick ? 128 : 4096 };
	while ((size_t)p->n * p->n * 12 > driver_free_bytes(r->drv) / 2 &&
	       p->n > 128)
		p->n /= 2;
	bytes = (size_t)p->n * p->n * sizeof(float);
	p->a = driver_alloc(r->drv, bytes);
	p->b = driver_alloc(r->drv, bytes);
	p->c = driver_alloc(r->drv, bytes);
	if (!p->a || !p->b || !p->c)
		return -1;
	err = kvmm_gpu_stream_create(gpu, &p->s);
	if (!err)
		err = load_matrix(r, p, p->a, entry_a);
	return err ? err : load_matrix(r, p, p->b, entry_b);
}

static void product_free(struct run *r, struct product *p)
{
	kvmm_gpu_stream_destroy(p->s);
	driver_free(r->drv, p->a);
	driver_free(r->drv, p->b);
	driver_free(r->drv, p->c);
}

/* Products a second for some time; 0: an error. */
static double product_rate(struct run *r, struct product *p, double seconds)
{
	double start = now();
	unsigned int n = 0;

	do {
		/* two in the stream, so that the GPU never waits for us */
		for (int i = 0; i < 2; i++)
			if (driver_product(r->drv,
					   kvmm_gpu_stream_native(p->s), p->a,
					   p->b, p->c, p->n))
				return 0;
		if (kvmm_gpu_stream_sync(p->s))
			return 0;
		n += 2;
	} while (now() - start < seconds);
	return n / (now() - start);
}

/**
 * struct copier - a thread that offloads and restores, over and over
 * @l: what
 * @s: in which streams: out and in at once
 * @stop: set to end it
 * @moved: bytes until then
 * @err: an error ended it
 */
struct copier {
	struct layout *l;
	struct kvmm_gpu_stream *s;
	atomic_bool stop;
	double moved;
	double seconds;
	int err;
};

static void *copy_on(void *arg)
{
	struct copier *c = arg;
	double start = now();

	while (!c->err && !atomic_load(&c->stop)) {
		c->err = layout_copy(c->l, c->s, KVMM_GPU_OUT);
		if (!c->err)
			c->err = layout_copy(c->l, c->s, KVMM_GPU_IN);
		if (!c->err)
			c->err = kvmm_gpu_stream_sync(c->s);
		c->moved += 2.0 * (double)layout_bytes(c->l);
	}
	c->seconds = now() - start;
	return NULL;
}

/* With @p: products meanwhile, at *@rate a second.  Returns GB/s; 0: error. */
static double copies_rate(struct run *r, struct copier *c, struct product *p,
			  double *rate)
{
	double seconds = r->quick ? 0.05 : SECONDS;
	pthread_t thread;

	atomic_store(&c->stop, false);
	c->moved = 0;
	if (pthread_create(&thread, NULL, copy_on, c))
		return 0;
	if (p) {
		*rate = product_rate(r, p, seconds);
	} else {
		const struct timespec ts = {
			.tv_nsec = (long)(seconds * 1e9),
		};

		nanosleep(&ts, NULL);
	}
	atomic_store(&c->stop, true);
	pthread_join(thread, NULL);
	return c->err ? 0 : c->moved / c->seconds / 1e9;
}

static void one_path(struct run *r, enum kvmm_gpu_path path, size_t fragment)
{
	struct copier c = { .l = layout_make(r, fragment) };
	struct product p = { 0 };
	double alone, quiet, busy, rate = 0;
	struct kvmm_gpu *gpu;
	long wrong = -1;
	char why[200];

	gpu = open_path(r, path, why, sizeof(why));
	if (!gpu || !c.l) {
		tap_skip(gpu ? "too little memory" : why,
			 "computing while copies go by %s", path_name(path));
		goto out;
	}
	if (product_make(r, gpu, &p) || kvmm_gpu_stream_create(gpu, &c.s))
		goto report;
	(void)product_rate(r, &p, 0);	/* warms up */
	alone = product_rate(r, &p, r->quick ? 0.05 : SECONDS);
	quiet = copies_rate(r, &c, NULL, NULL);
	busy = copies_rate(r, &c, &p, &rate);
	wrong = alone > 0 && quiet > 0 && busy > 0 && rate > 0 ?
			product_wrong(r, &p) : -1;
	if (!wrong)
		tap_note("%zu KiB by %-6s: products %.2f TFLOP/s alone, %.2f with copies (%.1f %%); copies %.2f GB/s alone, %.2f with products (%.1f %%)",
			 fragment / KIB, path_name(path),
			 alone * 2e-12 * p.n * p.n * p.n,
			 rate * 2e-12 * p.n * p.n * p.n, rate / alone * 100,
			 quiet, busy, busy / quiet * 100);
report:
	tap_ok(!wrong, "computing while copies of %zu KiB go by %s: the result is right",
	       fragment / KIB, path_name(path));
	if (wrong < 0)
		tap_note("%s", driver_error(r->drv));
	kvmm_gpu_stream_destroy(c.s);
	product_free(r, &p);
out:
	if (gpu)
		close_path(r, gpu);
	layout_free(c.l);
}

void check_interference(struct run *r)
{
	static const size_t sizes[] = { 16 * KIB, 128 * KIB };

	for (unsigned int i = 0; i < ARRAY_SIZE(sizes); i++)
		for (int p = KVMM_GPU_PATH_KERNEL; p <= KVMM_GPU_PATH_PLAIN;
		     p++) {
			if (time_left(r))
				one_path(r, (enum kvmm_gpu_path)p, sizes[i]);
			else
				tap_skip("no time left", "computing while copies go by %s",
					 path_name((enum kvmm_gpu_path)p));
		}
}
