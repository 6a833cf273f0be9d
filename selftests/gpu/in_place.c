// SPDX-License-Identifier: MIT
/*
 * A kernel reads frames where they are, through their device address: what an
 * engine may do instead of restoring a block that it needs once.
 */
#include "check.h"

#include <string.h>

#define FRAME		(256 * KIB)
#define MAX_FRAMES	2048
#define ROUNDS		7

/* As kvmm_read does it. */
static uint64_t sum_frame(const char *data, size_t bytes)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < bytes / 4; i++) {
		uint32_t word;

		memcpy(&word, data + 4 * i, 4);
		sum += (uint64_t)word * (2 * i + 1);
	}
	return sum;
}

/* Sums of all frames by the GPU, at the start of the arena's last frame. */
static int sums(struct run *r, struct kvmm_gpu_stream *s, uint64_t frames,
		uint64_t out, unsigned int nr, double *seconds)
{
	char *mine = r->arena.data + r->bytes - FRAME;
	struct kvmm_gpu_run run = { .dev = out, .bytes = 8 * nr, .count = 1 };
	struct kvmm_gpu_copy copy = { mine, &run, 1 };
	double t;
	int err;

	memset(mine, 0, 8 * nr);
	err = kvmm_gpu_copy(s, KVMM_GPU_IN, &copy, 1);
	if (!err)
		err = kvmm_gpu_stream_sync(s);
	t = now();
	if (!err)
		err = driver_read(r->drv, kvmm_gpu_stream_native(s), frames,
				  out, FRAME, nr);
	if (!err)
		err = kvmm_gpu_stream_sync(s);
	*seconds = now() - t;
	if (!err)
		err = kvmm_gpu_copy(s, KVMM_GPU_OUT, &copy, 1);
	return err ? err : kvmm_gpu_stream_sync(s);
}

void check_in_place(struct run *r, struct kvmm_gpu *gpu)
{
	unsigned int nr = (unsigned int)(r->bytes / FRAME) - 1, bad = 0, i;
	unsigned int rounds = r->quick ? 1 : ROUNDS;
	struct kvmm_gpu_stream *s = NULL;
	double v[ROUNDS], t;
	uint64_t frames = 0;
	int err;

	if (nr > MAX_FRAMES)
		nr = MAX_FRAMES;
	pattern_fill(r->arena.data, nr * FRAME, 3, 0);
	err = kvmm_gpu_stream_create(gpu, &s);
	if (!err)
		err = kvmm_gpu_dev_ptr(gpu, r->arena.data, r->bytes, &frames);
	/* the sums go to the start of device memory */
	if (!err)
		err = sums(r, s, frames, r->dev, nr, &t);
	for (i = 0; i < nr && !err; i++) {
		uint64_t got;

		memcpy(&got, r->arena.data + r->bytes - FRAME + 8 * i, 8);
		bad += got != sum_frame(r->arena.data + (size_t)i * FRAME,
					FRAME);
	}
	tap_ok(!err && !bad, "a kernel reads %u frames in place: every byte",
	       nr);
	if (err)
		tap_note("error %d: %s", -err, driver_error(r->drv));
	for (i = 0; i < rounds && !err; i++) {
		err = sums(r, s, frames, r->dev, nr, &t);
		v[i] = (double)nr * FRAME / t / 1e9;
	}
	if (!err) {
		double rate = median(v, rounds);

		tap_note("read in place: %.2f GB/s, %.1f %% of one large copy",
			 rate, r->link[KVMM_GPU_IN] > 0 ?
			 rate / r->link[KVMM_GPU_IN] * 100 : 0);
	}
	kvmm_gpu_stream_destroy(s);
}
