/* SPDX-License-Identifier: MIT */
/*
 * What other commands need to know of pools by name.
 */
#ifndef KVMMCTL_POOL_H
#define KVMMCTL_POOL_H

#include "kvmmctl.h"

#include <jansson.h>

/** pool_check_name() - 0, or EXIT_ERROR, told */
int pool_check_name(const char *name);

/** pool_each() - call @each for every pool until it returns other than 0 */
int pool_each(struct ctx *ctx, int (*each)(const struct kvmm_pool_entry *e,
					   void *arg), void *arg);

/** pool_entry_json() - NULL: no memory */
json_t *pool_entry_json(const struct kvmm_pool_entry *e);

/**
 * pool_read() - the counters of a pool, without this reader among its clients
 *
 * The pool is open only meanwhile, so a watcher never keeps it from being
 * destroyed.  Return: 0 or EXIT_ERROR, told.
 */
int pool_read(struct ctx *ctx, const char *name, struct kvmm_pool_stat *st);

#endif /* KVMMCTL_POOL_H */
