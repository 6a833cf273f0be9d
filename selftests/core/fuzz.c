// SPDX-License-Identifier: MIT
/*
 * Fuzz target: the input is a program of commands, malformed ones among them,
 * run on a pool and on its model (sim.h).  fuzz.sh runs it.
 */
#include <stdlib.h>

#include "drive.h"

struct input {
	const u8 *at;
	size_t left;
};

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

void sim_on_failure(const struct sim *s)
{
	(void)s;
	abort();
}

void kvmm_core_report(const char *file, int line, const char *what)
{
	__builtin_printf("# %s:%d: the core found: %s\n", file, line, what);
	abort();
}

static u32 take(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

/* As many bytes as the range wants; 0 when the input is used up. */
static u32 input_below(void *src, u32 n)
{
	u32 v = take(src);

	if (n > 256)
		v |= take(src) << 8;
	return v % n;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static struct drive d;
	struct input in = { data, size };

	d.below = input_below;
	d.src = &in;
	d.check_every = 4;
	drive_open(&d);
	while (in.left)
		drive_step(&d);
	drive_close(&d);
	return 0;
}
