// SPDX-License-Identifier: MIT
/*
 * Copies of blocks, whose fragments lie apart in device memory, to frames and
 * back: every byte is compared, then they are timed.  The yardstick is one
 * large copy of registered memory.
 */
#include "check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS		7
#define ENOUGH		0.25	/* seconds of rounds */
#define STALE		0x5a	/* what frames hold before they are filled */
#define BUDGET_PERCENT	95

/**
 * struct layout - blocks in device memory and frames
 * @r: the run
 * @fragment: bytes of one
 * @blocks: how many blocks, and frames
 * @block: of each frame
 * @runs: FRAGMENTS a frame
 * @copies: one a frame
 *
 * Fragment t of block b is at ((blocks + 1) * t + b) * fragment: as in a
 * tensor for each layer's keys and values, with a gap behind each tensor so
 * that nothing of a block touches.
 */
struct layout {
	const struct run *r;
	size_t fragment;
	unsigned int blocks;
	unsigned int *block;
	struct kvmm_gpu_run *runs;
	struct kvmm_gpu_copy *copies;
};

static size_t place(const struct layout *l, unsigned int b, unsigned int t)
{
	return ((size_t)t * (l->blocks + 1) + b) * l->fragment;
}

/* Also in another order than the frames': as after some time of use. */
static void shuffle(struct layout *l)
{
	uint64_t state = 1;

	for (unsigned int i = 0; i < l->blocks; i++)
		l->block[i] = i;
	for (unsigned int i = l->blocks - 1; i > 0; i--) {
		unsigned int k, tmp;

		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		k = (unsigned int)(state >> 33) % (i + 1);
		tmp = l->block[i];
		l->block[i] = l->block[k];
		l->block[k] = tmp;
	}
}

struct layout *layout_make(const struct run *r, size_t fragment)
{
	struct layout *l = calloc(1, sizeof(*l));
	unsigned int f, t;

	if (!l)
		return NULL;
	l->r = r;
	l->fragment = fragment;
	l->blocks = (unsigned int)(r->bytes / (fragment * FRAGMENTS));
	l->block = calloc(l->blocks + 1, sizeof(*l->block));
	l->runs = calloc((size_t)l->blocks * FRAGMENTS + 1, sizeof(*l->runs));
	l->copies = calloc(l->blocks + 1, sizeof(*l->copies));
	if (!l->blocks || !l->block || !l->runs || !l->copies) {
		layout_free(l);
		return NULL;
	}
	shuffle(l);
	for (f = 0; f < l->blocks; f++) {
		struct kvmm_gpu_run *runs = l->runs + (size_t)f * FRAGMENTS;

		for (t = 0; t < FRAGMENTS; t++)
			runs[t] = (struct kvmm_gpu_run){
				.dev = r->dev + place(l, l->block[f], t),
				.bytes = fragment,
				.count = 1,
			};
		l->copies[f] = (struct kvmm_gpu_copy){
			.host = r->arena.data +
				(size_t)f * FRAGMENTS * fragment,
			.runs = runs,
			.nr_runs = FRAGMENTS,
		};
	}
	return l;
}

void layout_free(struct layout *l)
{
	if (!l)
		return;
	free(l->block);
	free(l->runs);
	free(l->copies);
	free(l);
}

size_t layout_bytes(const struct layout *l)
{
	return (size_t)l->blocks * FRAGMENTS * l->fragment;
}

int layout_copy(const struct layout *l, struct kvmm_gpu_stream *s,
		enum kvmm_gpu_dir dir)
{
	return kvmm_gpu_copy(s, dir, l->copies, l->blocks);
}

/* One copy between the arena's start and device memory at @offset; waits. */
static int copy_at(struct run *r, struct kvmm_gpu_stream *s,
		   enum kvmm_gpu_dir dir, size_t offset, size_t bytes)
{
	struct kvmm_gpu_run run = {
		.dev = r->dev + offset,
		.bytes = bytes,
		.count = 1,
	};
	struct kvmm_gpu_copy copy = { r->arena.data, &run, 1 };
	int err = kvmm_gpu_copy(s, dir, &copy, 1);

	return err ? err : kvmm_gpu_stream_sync(s);
}

int copy_whole(struct run *r, struct kvmm_gpu_stream *s, enum kvmm_gpu_dir dir)
{
	return copy_at(r, s, dir, 0, r->bytes);
}

/* All device memory of the layout, gaps too, gets the pattern. */
static int fill_device(const struct layout *l, struct run *r,
		       struct kvmm_gpu_stream *s, uint64_t seed)
{
	size_t all = (size_t)FRAGMENTS * (l->blocks + 1) * l->fragment, at, n;
	int err = 0;

	for (at = 0; at < all && !err; at += n) {
		n = all - at < r->bytes ? all - at : r->bytes;
		pattern_fill(r->arena.data, n, seed, at);
		err = copy_at(r, s, KVMM_GPU_IN, at, n);
	}
	return err;
}

/* Offload: frames hold their blocks.  Returns wrong words, or -errno. */
static long offload(const struct layout *l, struct run *r,
		    struct kvmm_gpu_stream *s)
{
	size_t wrong = 0;
	int err = fill_device(l, r, s, 1);

	memset(r->arena.data, STALE, r->bytes);
	if (!err)
		err = layout_copy(l, s, KVMM_GPU_OUT);
	if (!err)
		err = kvmm_gpu_stream_sync(s);
	for (unsigned int f = 0; f < l->blocks && !err; f++)
		for (unsigned int t = 0; t < FRAGMENTS; t++)
			wrong += pattern_wrong((char *)l->copies[f].host +
					       t * l->fragment, l->fragment, 1,
					       place(l, l->block[f], t));
	return err ? err : (long)wrong;
}

/* What device memory at @at should be after a restore: seed and place. */
static size_t wrong_at(const struct layout *l, const unsigned int *frame_of,
		       const char *data, size_t at)
{
	size_t nth = at / l->fragment, frame = l->fragment * FRAGMENTS;
	unsigned int t = (unsigned int)(nth / (l->blocks + 1));
	unsigned int b = (unsigned int)(nth % (l->blocks + 1));

	if (b == l->blocks)	/* a gap: as it was */
		return pattern_wrong(data, l->fragment, 1, at);
	return pattern_wrong(data, l->fragment, 2,
			     frame_of[b] * frame + t * l->fragment);
}

/* Restore: blocks hold their frames, and the gaps what they did before. */
static long restore(const struct layout *l, struct run *r,
		    struct kvmm_gpu_stream *s)
{
	size_t all = (size_t)FRAGMENTS * (l->blocks + 1) * l->fragment, at, n, k;
	unsigned int *frame_of = calloc(l->blocks, sizeof(*frame_of));
	size_t wrong = 0;
	int err;

	if (!frame_of)
		return -ENOMEM;
	for (unsigned int f = 0; f < l->blocks; f++)
		frame_of[l->block[f]] = f;
	err = fill_device(l, r, s, 1);
	pattern_fill(r->arena.data, r->bytes, 2, 0);
	if (!err)
		err = layout_copy(l, s, KVMM_GPU_IN);
	if (!err)
		err = kvmm_gpu_stream_sync(s);
	for (at = 0; at < all && !err; at += n) {
		n = all - at < r->bytes ? all - at : r->bytes;
		memset(r->arena.data, STALE, n);
		err = copy_at(r, s, KVMM_GPU_OUT, at, n);
		for (k = 0; k < n && !err; k += l->fragment)
			wrong += wrong_at(l, frame_of, r->arena.data + k,
					  at + k);
	}
	free(frame_of);
	return err ? err : (long)wrong;
}

/* GB/s: the median of rounds. */
static double rate(const struct layout *l, struct run *r,
		   struct kvmm_gpu_stream *s, enum kvmm_gpu_dir dir)
{
	unsigned int rounds = r->quick ? 1 : ROUNDS, n = 0;
	double v[ROUNDS], start = now();

	while (n < rounds && (n < 3 || now() - start < ENOUGH)) {
		double t = now();

		if (layout_copy(l, s, dir) || kvmm_gpu_stream_sync(s))
			return 0;
		v[n++] = (double)layout_bytes(l) / (now() - t) / 1e9;
	}
	return median(v, n);
}

static void check_one(struct run *r, struct kvmm_gpu *gpu,
		      struct kvmm_gpu_stream *s, enum kvmm_gpu_path path,
		      unsigned int i)
{
	size_t fragment = FIRST_SIZE << i;
	struct layout *l = layout_make(r, fragment);
	static const char *const words[] = { "offload", "restore" };
	char why[200];

	if (!l && r->quick)
		return;		/* as meant */
	for (int dir = 0; dir < 2; dir++) {
		long wrong;

		if (!l) {
			tap_skip("too little memory", "%s %zu KiB by %s",
				 words[dir], fragment / KIB, path_name(path));
			continue;
		}
		wrong = dir == KVMM_GPU_OUT ? offload(l, r, s) :
					      restore(l, r, s);
		tap_ok(!wrong, "%s %u x %u x %zu KiB by %s: every byte",
		       words[dir], l->blocks, FRAGMENTS, fragment / KIB,
		       path_name(path));
		if (wrong < 0) {
			kvmm_gpu_error(gpu, why, sizeof(why));
			tap_note("error %ld: %s", -wrong, why);
		} else if (wrong) {
			tap_note("%ld words are wrong", wrong);
		}
		if (!wrong)
			r->rate[path][i][dir] =
				rate(l, r, s, (enum kvmm_gpu_dir)dir);
	}
	layout_free(l);
}

void check_copies(struct run *r, struct kvmm_gpu *gpu, enum kvmm_gpu_path path)
{
	struct kvmm_gpu_stream *s;
	unsigned int i;

	if (!tap_ok(!kvmm_gpu_stream_create(gpu, &s), "a stream"))
		return;
	for (i = 0; i < NR_SIZES; i++) {
		if (time_left(r))
			check_one(r, gpu, s, path, i);
		else
			tap_skip("no time left", "%zu KiB by %s",
				 (FIRST_SIZE << i) / KIB, path_name(path));
	}
	kvmm_gpu_stream_destroy(s);
}

/* ---- the yardstick ---- */

/* Seconds of one copy of all; @dir 2: half of it each way at once. */
static double time_link(struct run *r, struct kvmm_gpu_stream *s[2], int dir)
{
	size_t half = r->bytes / 2;
	struct kvmm_gpu_run run[2] = {
		{ .dev = r->dev, .bytes = dir == 2 ? half : r->bytes,
		  .count = 1 },
		{ .dev = r->dev + half, .bytes = half, .count = 1 },
	};
	struct kvmm_gpu_copy copy[2] = {
		{ r->arena.data, &run[0], 1 },
		{ r->arena.data + half, &run[1], 1 },
	};
	double t = now();
	int err;

	err = kvmm_gpu_copy(s[0], dir == 2 ? KVMM_GPU_OUT :
			    (enum kvmm_gpu_dir)dir, &copy[0], 1);
	if (!err && dir == 2)
		err = kvmm_gpu_copy(s[1], KVMM_GPU_IN, &copy[1], 1);
	for (int i = 0; i < 2 && !err; i++)
		err = kvmm_gpu_stream_sync(s[i]);
	return err ? -1 : now() - t;
}

void check_link(struct run *r, struct kvmm_gpu *gpu)
{
	static const char *const words[] = {
		"device to host", "host to device", "both at once, added up",
	};
	struct kvmm_gpu_stream *s[2] = { NULL, NULL };
	bool good = !kvmm_gpu_stream_create(gpu, &s[0]) &&
		    !kvmm_gpu_stream_create(gpu, &s[1]);

	for (int dir = 0; dir < 3 && good; dir++) {
		unsigned int n = r->quick ? 1 : ROUNDS, i;
		double v[ROUNDS];

		good = time_link(r, s, dir) > 0;	/* warms up */
		for (i = 0; i < n && good; i++) {
			double t = time_link(r, s, dir);

			good = t > 0;
			v[i] = (double)r->bytes / t / 1e9;
		}
		if (good)
			r->link[dir] = median(v, n);
		tap_note("one copy of %zu MiB, %s: %.2f GB/s", r->bytes / MIB,
			 words[dir], r->link[dir]);
	}
	tap_ok(good, "one large copy, each way and both at once");
	kvmm_gpu_stream_destroy(s[0]);
	kvmm_gpu_stream_destroy(s[1]);
}

/* ---- what was chosen, and how good it is ---- */

static double best(const struct run *r, unsigned int i, int dir)
{
	double most = 0;

	for (int p = KVMM_GPU_PATH_KERNEL; p <= KVMM_GPU_PATH_PLAIN; p++)
		if (r->rate[p][i][dir] > most)
			most = r->rate[p][i][dir];
	return most;
}

/* "12.34", or "-" for what was not measured. */
static const char *number(double v, char text[16])
{
	if (v > 0)
		snprintf(text, 16, "%.2f", v);
	else
		strcpy(text, "-");
	return text;
}

static void table(const struct run *r, int dir)
{
	static const char *const words[] = { "offload", "restore" };
	char text[4][16];

	tap_note("%s of %u fragments a block, GB/s; large copy %.2f",
		 words[dir], FRAGMENTS, r->link[dir]);
	tap_note("%10s %9s %9s %9s %9s %9s", "fragment", "kernel", "batch",
		 "plain", "chosen", "of large");
	for (unsigned int i = 0; i < NR_SIZES; i++) {
		double chosen = r->rate[KVMM_GPU_PATH_AUTO][i][dir];

		if (chosen <= 0 && best(r, i, dir) <= 0)
			continue;
		tap_note("%6zu KiB %9s %9s %9s %9s %7.1f %%",
			 (FIRST_SIZE << i) / KIB,
			 number(r->rate[KVMM_GPU_PATH_KERNEL][i][dir], text[0]),
			 number(r->rate[KVMM_GPU_PATH_BATCH][i][dir], text[1]),
			 number(r->rate[KVMM_GPU_PATH_PLAIN][i][dir], text[2]),
			 number(chosen, text[3]),
			 r->link[dir] > 0 ? chosen / r->link[dir] * 100 : 0);
	}
}

void check_choice(struct run *r)
{
	double worst = 1, share = 1;
	size_t worst_size = 0, share_size = 0;

	for (int dir = 0; dir < 2; dir++) {
		table(r, dir);
		for (unsigned int i = 0; i < NR_SIZES; i++) {
			double chosen = r->rate[KVMM_GPU_PATH_AUTO][i][dir];
			double most = best(r, i, dir);

			if (chosen <= 0 || most <= 0)
				continue;
			if (chosen / most < worst) {
				worst = chosen / most;
				worst_size = FIRST_SIZE << i;
			}
			if (chosen / r->link[dir] < share) {
				share = chosen / r->link[dir];
				share_size = FIRST_SIZE << i;
			}
		}
	}
	tap_note("chosen at start: the kernel below %zu KiB out and %zu KiB in, else DMA by %s%s",
		 r->info.crossover[KVMM_GPU_OUT] / KIB,
		 r->info.crossover[KVMM_GPU_IN] / KIB,
		 path_name(r->info.dma_path),
		 r->info.calibrated ? "" : " (not measured)");
	tap_note("the choice at its worst: %.1f %% of the best path, at %zu KiB",
		 worst * 100, worst_size / KIB);
	tap_note("of one large copy at its worst: %.1f %%, at %zu KiB (wanted: %d %%)",
		 share * 100, share_size / KIB, BUDGET_PERCENT);
	tap_ok(r->info.calibrated || !r->info.has_kernel,
	       "the paths were measured when the device was opened");
}
