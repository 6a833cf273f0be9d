/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where the memory of a pool comes from, and who is charged for it.
 */
#ifndef KVMM_PLACE_H
#define KVMM_PLACE_H

#include <linux/types.h>

struct kvmm_pool;
struct kvmm_pool_create;

/* Room for a mount option that names up to 32 ranges of nodes below 64. */
#define KVMM_PLACE_LEN		128

int kvmm_place_check(const struct kvmm_pool_create *a);
void kvmm_place_init(struct kvmm_pool *pool, const struct kvmm_pool_create *a);
void kvmm_place_exit(struct kvmm_pool *pool);
void kvmm_place_option(const struct kvmm_pool *pool, char *buf, size_t size);
unsigned int kvmm_place_cpus(const struct kvmm_pool *pool);
int kvmm_place_worker(const struct kvmm_pool *pool, unsigned int i);
bool kvmm_place_refuses(const struct kvmm_pool *pool, int nid, bool full);
bool kvmm_place_turn(struct kvmm_pool *pool, unsigned int n);
u32 kvmm_place_misplaced(struct kvmm_pool *pool, u32 first, u32 last);

#endif /* KVMM_PLACE_H */
