/* SPDX-License-Identifier: MIT */
/*
 * What compat.c and compat32.c say to each other, by a socket.
 */
#ifndef KVMM_COMPAT_H
#define KVMM_COMPAT_H

#include <linux/kvmm.h>

/* Files that the 32-bit program begins with. */
#define COMPAT_AREA	3
#define COMPAT_SOCKET	4

#define COMPAT_POOL	"compat32"
#define COMPAT_BLOCK	65536
#define COMPAT_FRAMES	16
#define COMPAT_SLOTS	16
#define COMPAT_N	8	/* blocks 1 to 8 are the 32-bit program's */
#define COMPAT_THEIRS	101	/* 101 to 104 the other's */
#define COMPAT_M	4

/* What the kernel told the 32-bit program, byte for byte. */
struct compat_told {
	struct kvmm_info info;
	struct kvmm_pool_stat stat;
	struct kvmm_pool_entry pool;
	struct kvmm_key_entry keys[COMPAT_FRAMES];
	struct kvmm_event events[COMPAT_N];
	__u32 nr_keys;
	__u32 nr_events;
};

#endif /* KVMM_COMPAT_H */
