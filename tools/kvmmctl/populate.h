/* SPDX-License-Identifier: MIT */
/*
 * Memory on its way into a pool: watched on a terminal, ended at a signal.
 */
#ifndef KVMMCTL_POPULATE_H
#define KVMMCTL_POPULATE_H

#include <kvmm.h>

/**
 * populate_watch() - show how far it is until no populate is in progress
 * @pool: the pool
 * @frames: that there are to do
 *
 * Return: as kvmm_populate_wait(); -EINTR where a signal asks to stop, with
 * the populate still in progress.
 */
int populate_watch(struct kvmm_pool *pool, uint64_t frames);

#endif /* KVMMCTL_POPULATE_H */
