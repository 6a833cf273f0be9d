// SPDX-License-Identifier: MIT
/*
 * How long it takes to register memory, with and without huge pages.
 */
#include "check.h"

#include <errno.h>
#include <string.h>

#define ROUNDS	3

/* Seconds a GiB, to register and to unregister; 0: it failed. */
static bool measure(struct run *r, struct kvmm_gpu *gpu, size_t bytes,
		    bool huge)
{
	unsigned int n = r->quick ? 1 : ROUNDS, i;
	double reg[ROUNDS], unreg[ROUNDS], gib = (double)bytes / GIB;
	struct arena a;
	bool good = true;
	int err = arena_make(&a, bytes, huge);

	if (err) {
		tap_note("no %zu MiB of memory: %s", bytes / MIB,
			 strerror(-err));
		return false;
	}
	for (i = 0; i < n && good; i++) {
		double t = now();

		good = !kvmm_gpu_register(gpu, a.data, bytes);
		reg[i] = (now() - t) / gib;
		t = now();
		if (good)
			good = !kvmm_gpu_unregister(gpu, a.data, bytes);
		unreg[i] = (now() - t) / gib;
	}
	if (good)
		tap_note("%s pages (%.0f %% in huge ones), %zu MiB: register %.3f s a GiB, unregister %.3f",
			 huge ? "huge " : "small",
			 100.0 * (double)a.huge / (double)bytes, bytes / MIB,
			 median(reg, n), median(unreg, n));
	arena_end(&a);
	return good;
}

void check_registration(struct run *r)
{
	size_t bytes = r->quick ? 8 * MIB : 2 * GIB, free_bytes;
	struct kvmm_gpu *gpu;
	char why[200];
	bool good;

	free_bytes = memory_available();
	while (bytes > free_bytes / 4 && bytes > 8 * MIB)
		bytes /= 2;
	gpu = open_path(r, KVMM_GPU_PATH_PLAIN, why, sizeof(why));
	if (!tap_ok(gpu, "the device once more")) {
		tap_note("%s", why);
		return;
	}
	good = measure(r, gpu, bytes, true);
	good = measure(r, gpu, bytes, false) && good;
	tap_ok(good, "registering memory with and without huge pages");
	close_path(r, gpu);
}
