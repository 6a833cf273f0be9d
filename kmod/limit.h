/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who may have how much memory, and make pools.
 */
#ifndef KVMM_LIMIT_H
#define KVMM_LIMIT_H

#include <linux/types.h>
#include <linux/uidgid.h>

struct kvmm_pool;
struct kvmm_user;

extern unsigned int kvmm_max_pools;

u64 kvmm_limit_bytes(void);
u64 kvmm_limit_held(void);
bool kvmm_may_create(void);
struct kvmm_user *kvmm_user_get(kuid_t uid);
void kvmm_user_put(struct kvmm_user *user);
bool kvmm_user_add_pool(struct kvmm_user *user);
void kvmm_user_del_pool(struct kvmm_user *user);
bool kvmm_limit_room(const struct kvmm_user *user, u64 bytes);
int kvmm_limit_charge(struct kvmm_pool *pool, u64 bytes);
void kvmm_limit_uncharge(struct kvmm_pool *pool, u64 bytes);

#endif /* KVMM_LIMIT_H */
