/* SPDX-License-Identifier: MIT */
/*
 * Turns numbers - random ones, or a fuzzer's - into commands for a pool and
 * its model (sim.h).
 */
#ifndef KVMM_CORE_DRIVE_H
#define KVMM_CORE_DRIVE_H

#include "sim.h"

#define DRIVE_OLD	32	/* handles remembered beyond their block's end */

/**
 * struct drive - a pool, its model, and where the numbers come from
 * @s: both
 * @below: returns a number below @n (at least 1)
 * @src: its first argument
 * @old: handles of the past
 * @nr_old: how many were remembered
 * @check_every: commands between two whole comparisons
 */
struct drive {
	struct sim s;
	u32 (*below)(void *src, u32 n);
	void *src;
	u64 old[DRIVE_OLD];
	u32 nr_old;
	u32 check_every;
};

/* A pool of some shape; its memory comes from malloc(). */
void drive_open(struct drive *d);
/* One command. */
void drive_step(struct drive *d);
void drive_close(struct drive *d);

#endif /* KVMM_CORE_DRIVE_H */
