/* SPDX-License-Identifier: MIT */
/*
 * What the unit tests of the core share: a small pool with one client, calls on
 * a single block, and an allocator that counts and can be told to fail.
 *
 * Every call on the pool is followed by kvmm_core_check(), so that a test only
 * has to say what it is about.
 */
#ifndef KVMM_CORE_FIXTURE_H
#define KVMM_CORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/core.h"

#define FX_BLOCK_SIZE	4096U
#define FX_QUARANTINE	1000U
#define FX_HOLDS	8U
#define FX_CLIENTS	4U

/**
 * struct fx - a pool under test
 * @c: the core
 * @cfg: what it was made of
 * @me: a client
 * @now: time passed to every call, ms
 * @taken: bytes that the core holds
 * @fail_after: allocations that may still succeed, -1: all
 * @lazy: don't check after every call: for large pools
 * @position: of the last block that was published with a parent
 */
struct fx {
	struct kvmm_core c;
	struct kvmm_core_config cfg;
	u32 me;
	u64 now;
	size_t taken;
	long fail_after;
	u32 position;
	bool lazy;
};

void fx_config(struct fx *f, u32 frames, u32 slots);
void fx_open(struct fx *f, u32 frames, u32 slots);
void fx_open_elastic(struct fx *f, u32 frames, u32 slots, u32 elastic,
		     u32 unit);
void fx_close(struct fx *f);
void fx_check(struct fx *f);
struct kvmm_pool_stat fx_stat(struct fx *f);

void fx_key(u8 *key, u64 id);
struct kvmm_publish_entry fx_entry(u64 handle, u64 id);

u64 fx_alloc(struct fx *f);
u64 fx_alloc_by(struct fx *f, u32 client, u32 parts);
int fx_alloc_fails(struct fx *f);
s32 fx_publish_entry(struct fx *f, u32 client, u32 flags,
		     struct kvmm_publish_entry *e);
s32 fx_publish(struct fx *f, u64 handle, u64 id);
u64 fx_block(struct fx *f, u64 id);
u64 fx_block_with(struct fx *f, u64 id, u64 parent, u32 expiry_ms,
		  u32 cost_us, u8 flags);
void fx_fill(struct fx *f, u64 *handles, u64 first_id, u32 n);

s32 fx_lookup(struct fx *f, u64 id, u32 flags);
struct kvmm_block_ref fx_lookup_by(struct fx *f, u32 client, u64 id,
				   u32 flags);
s32 fx_touch(struct fx *f, u64 handle);
s32 fx_pin(struct fx *f, u64 handle);
s32 fx_pin_by(struct fx *f, u32 client, u64 handle);
s32 fx_unpin(struct fx *f, u64 handle);
s32 fx_unpin_by(struct fx *f, u32 client, u64 handle);
s32 fx_drop(struct fx *f, u64 handle);
s32 fx_query(struct fx *f, u64 handle);

int fx_out_start(struct fx *f, u64 handle, u32 flags, struct kvmm_io *io);
void fx_out_end(struct fx *f, u64 handle, int err);
void fx_out(struct fx *f, u64 handle, u32 flags);
int fx_in_start(struct fx *f, u64 handle, u32 flags, struct kvmm_io *io);
void fx_in_end(struct fx *f, u64 handle, int err);
void fx_in(struct fx *f, u64 handle, u32 flags);
void fx_client_del(struct fx *f, u32 client);
u32 fx_reclaim(struct fx *f, u32 keep, struct kvmm_reclaim_count *count);
int fx_detach(struct fx *f, bool discard);
bool fx_has(struct fx *f, u64 id);
int fx_chain(struct fx *f, u64 *handle);
int fx_hint(struct fx *f, u32 permille, u64 *handle);

/* Reports of the core, where a test provokes them; else -1 (unit.c). */
extern int fx_reports;

/* The tests of each file, run by unit.c. */
struct fx_tests {
	const struct CMUnitTest *tests;
	size_t nr;
};

extern const struct fx_tests create_tests;
extern const struct fx_tests block_tests;
extern const struct fx_tests publish_tests;
extern const struct fx_tests pin_tests;
extern const struct fx_tests order_tests;
extern const struct fx_tests swap_tests;
extern const struct fx_tests slot_tests;
extern const struct fx_tests reclaim_tests;
extern const struct fx_tests client_tests;
extern const struct fx_tests index_tests;
extern const struct fx_tests detach_tests;
extern const struct fx_tests late_tests;
extern const struct fx_tests elastic_tests;
extern const struct fx_tests retire_tests;
extern const struct fx_tests state_tests;
extern const struct fx_tests note_tests;
extern const struct fx_tests clean_tests;

#define FX_TESTS(name, array)						\
	const struct fx_tests name = {					\
		.tests = array,						\
		.nr = sizeof(array) / sizeof(array[0]),			\
	}

#endif /* KVMM_CORE_FIXTURE_H */
