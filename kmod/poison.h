/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory errors: what the kernel tells of them, and what becomes of memory that
 * one has struck.  See poison.c.
 */
#ifndef KVMM_POISON_H
#define KVMM_POISON_H

#include <linux/compiler.h>
#include <linux/kconfig.h>
#include <linux/types.h>

struct folio;
struct kvmm_io;
struct kvmm_pool;

extern unsigned int kvmm_poison_seen;
extern unsigned int kvmm_poison_done;

/**
 * kvmm_poison_ever() - was any memory struck since the module was loaded
 *
 * Also where the kernel does not tell.
 */
static inline bool kvmm_poison_ever(void)
{
	return IS_ENABLED(CONFIG_MEMORY_FAILURE) &&
	       unlikely(READ_ONCE(kvmm_poison_seen));
}

/**
 * kvmm_poison_pending() - may a block be in memory that was struck
 *
 * With the pool's lock held; until it is dropped, but for errors to come.
 */
static inline bool kvmm_poison_pending(void)
{
	return IS_ENABLED(CONFIG_MEMORY_FAILURE) &&
	       unlikely(READ_ONCE(kvmm_poison_seen) !=
			READ_ONCE(kvmm_poison_done));
}

void kvmm_poison_look(struct kvmm_pool *pool, u64 handle);
int kvmm_poison_elsewhere(struct kvmm_pool *pool, struct kvmm_io *io);

u64 kvmm_poison_kept(void);
bool kvmm_folio_struck(struct folio *folio);
void kvmm_folio_drop(struct folio *folio, unsigned int refs);

void kvmm_poison_init(void);
void kvmm_poison_exit(void);

#endif /* KVMM_POISON_H */
