/* SPDX-License-Identifier: MIT */
/*
 * Memory on its way into a pool: watched on a terminal, ended at a signal.
 */
#ifndef KVMMCTL_POPULATE_H
#define KVMMCTL_POPULATE_H

#include "kvmmctl.h"

/**
 * populate_watch() - show how far it is until no populate is in progress
 * @pool: the pool
 * @frames: that there are to do
 *
 * Return: as kvmm_populate_wait(); -EINTR where a signal asks to stop, with
 * the populate still in progress.
 */
int populate_watch(struct kvmm_pool *pool, uint64_t frames);

/**
 * populate_no_memory() - tell why the rest of a pool's memory can't be had
 * @flags: LIMIT_OTHERS, or 0
 *
 * Return: EXIT_ERROR.
 */
int populate_no_memory(struct ctx *ctx, const char *name,
		       struct kvmm_pool *pool, unsigned int flags);

#endif /* KVMMCTL_POPULATE_H */
