/* SPDX-License-Identifier: MIT */
/*
 * Memory errors, and what the kernel says of pages (kt_poison.c).
 */
#ifndef KT_POISON_H
#define KT_POISON_H

#include "kvmm_test.h"

/* Can the machine be told of memory errors? */
bool kt_can_strike(void);

/* The physical address of what the caller has touched at @at; 0. */
uint64_t kt_address(const void *at);

/*
 * A memory error at that address, as the hardware would tell of it.  Where the
 * kernel can't take the page away it is marked all the same.
 */
void kt_strike(uint64_t address);

/* How many pages of the arena have that mark; all are touched.  -1: unknown. */
int kt_marked(struct kt *t);

/* Bytes that the module keeps from the system for it; -1. */
long long kt_kept(void);

#endif /* KT_POISON_H */
