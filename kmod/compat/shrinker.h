/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The module's one shrinker, by either interface of the kernel.
 */
#ifndef KVMM_COMPAT_SHRINKER_H
#define KVMM_COMPAT_SHRINKER_H

#include <linux/errno.h>
#include <linux/shrinker.h>

#include "compat_config.h"

typedef unsigned long (*kvmm_shrinker_fn)(struct shrinker *shrinker,
					  struct shrink_control *sc);

#ifdef KVMM_HAVE_SHRINKER_ALLOC
static struct shrinker *kvmm_shrinker;
#else
static struct shrinker kvmm_shrinker;
#endif

/** kvmm_shrinker_add() - register it; 0 or -errno */
static inline int kvmm_shrinker_add(kvmm_shrinker_fn count,
				    kvmm_shrinker_fn scan, long batch,
				    int seeks)
{
#ifdef KVMM_HAVE_SHRINKER_ALLOC
	kvmm_shrinker = shrinker_alloc(0, "kvmm");
	if (!kvmm_shrinker)
		return -ENOMEM;
	kvmm_shrinker->count_objects = count;
	kvmm_shrinker->scan_objects = scan;
	kvmm_shrinker->batch = batch;
	kvmm_shrinker->seeks = seeks;
	shrinker_register(kvmm_shrinker);
	return 0;
#else
	kvmm_shrinker.count_objects = count;
	kvmm_shrinker.scan_objects = scan;
	kvmm_shrinker.batch = batch;
	kvmm_shrinker.seeks = seeks;
	return register_shrinker(&kvmm_shrinker, "kvmm");
#endif
}

/** kvmm_shrinker_del() - and take it away again */
static inline void kvmm_shrinker_del(void)
{
#ifdef KVMM_HAVE_SHRINKER_ALLOC
	shrinker_free(kvmm_shrinker);
#else
	unregister_shrinker(&kvmm_shrinker);
#endif
}

#endif /* KVMM_COMPAT_SHRINKER_H */
