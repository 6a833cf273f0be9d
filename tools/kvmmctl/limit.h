/* SPDX-License-Identifier: MIT */
/*
 * Why the kernel would not make a pool, or give it its memory: which limit, how
 * large it is and where it is set.
 */
#ifndef KVMMCTL_LIMIT_H
#define KVMMCTL_LIMIT_H

#include "kvmmctl.h"

/* What limit_memory() is told about the pool beside its size. */
#define LIMIT_MORE	1U	/* it has some memory already */
#define LIMIT_OTHERS	2U	/* perhaps another user made it, or another cgroup */

/**
 * limit_memory() - tell which limit on memory it was
 * @name: of the pool
 * @bytes: what it was to get
 * @flags: LIMIT_*
 *
 * The kernel says -ENOMEM, whatever the reason; so this looks at the limits as
 * they are a moment later, in the order in which the kernel does.  With --json
 * the same is printed as an object, too.  Return: EXIT_ERROR.
 */
int limit_memory(struct ctx *ctx, const char *name, uint64_t bytes,
		 unsigned int flags);

/** limit_pools() - tell which limit on the number of pools; EXIT_ERROR */
int limit_pools(struct ctx *ctx, const char *name);

/** limit_creators() - tell who may make pools; EXIT_ERROR */
int limit_creators(void);

#endif /* KVMMCTL_LIMIT_H */
