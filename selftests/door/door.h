/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the high door share: a pool, a device with memory, and an
 * engine with a layout; and a model of the layout that shares nothing with the
 * library.
 *
 * Environment, beside that of selftests/lib: KVMM_TEST_DEVICE (host or cuda, the
 * stand-in driver; default host), KVMM_TEST_LIBCUDA (where that is),
 * KVMM_TEST_SEED.
 */
#ifndef DOOR_H
#define DOOR_H

#include "selftests/lib/lt.h"

#include "gpu-shim/cuda_abi.h"
#include "libkvmm/engine.h"
#include "selftests/fakecuda/fakecuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef ARRAY_SIZE
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#endif

/* The stand-in driver: its controls, and what an engine calls. */
struct fake {
	char path[4096];
	__typeof__(&fakecuda_reset) reset;
	__typeof__(&fakecuda_leaks) leaks;
	__typeof__(&fakecuda_violations) violations;
	__typeof__(&fakecuda_failed) failed;
	__typeof__(&fakecuda_peek) peek;
	__typeof__(&fakecuda_poke) poke;
	__typeof__(&fakecuda_hold) hold;
	__typeof__(&fakecuda_fail) fail_call;
	__typeof__(&fakecuda_lose) lose;
	struct cuda_api api;
	cu_result_t (*ctx_set)(cu_context_t ctx);
};

extern struct fake fake;

#define MAX_TEST_MEMS	128

/**
 * struct door - one test
 * @lt: the library's fixture
 * @cuda: on the stand-in driver
 * @pool: named "door", NULL: none
 * @eng: the engine, NULL: none
 * @lay: its layout, the caller's
 * @ctx: current context
 * @mem: device memory
 * @nr_mems: how many
 */
struct door {
	struct lt *lt;
	bool cuda;
	struct kvmm_pool *pool;
	struct kvmm_engine *eng;
	struct kvmm_layout lay;
	struct kvmm_run runs[256];
	cu_context_t ctx;
	uint64_t mem[MAX_TEST_MEMS];
	unsigned int nr_mems;
	unsigned int delay_us;
};

/** door_device() - are the tests on the stand-in driver? */
bool door_cuda(void);
unsigned int door_seed(void);

/**
 * door_start() - a device; @env: "NAME=value" options of the stand-in, NULL at
 * the end
 */
void door_start(struct door *d, struct lt *lt, const char *const *env);
/** door_pool() - a pool named "door" with room for the layout */
void door_pool(struct door *d, unsigned int frames, unsigned int slots);
/** door_open() - an engine on @pool */
struct kvmm_engine *door_open(struct door *d, struct kvmm_pool *pool,
			      const struct kvmm_engine_opts *more);
/** door_end() - close all; fails the test where something is left */
void door_end(struct door *d);

/** door_mem() - device memory, zeroed */
uint64_t door_mem(struct door *d, size_t bytes);
void door_read(struct door *d, uint64_t dev, void *to, size_t n);
void door_write(struct door *d, uint64_t dev, const void *from, size_t n);

/* ---- the model ---- */

/** door_simple() - a layout of @layers x {K, V} in @groups groups */
void door_simple(struct door *d, unsigned int layers, unsigned int groups,
		 unsigned int tokens, unsigned int token_bytes,
		 unsigned int gpu_blocks, unsigned int nr_gpu_blocks);

/** door_pack() - what the frame of a block must hold; returns bytes */
size_t door_pack(struct door *d, const uint32_t *ids, unsigned int tokens,
		 uint8_t *frame);
/** door_fill() - sets the block's bytes on the device to those of @id */
void door_fill(struct door *d, const uint32_t *ids, unsigned int tokens,
	       uint64_t id);
/** door_check() - fails the test if they are not */
void door_check(struct door *d, const uint32_t *ids, unsigned int tokens,
		uint64_t id);
/** door_is() - are they? */
bool door_is(struct door *d, const uint32_t *ids, unsigned int tokens,
	     uint64_t id);
unsigned int door_tokens(const struct door *d);

/* ---- jobs ---- */

/**
 * struct seq - blocks of a sequence
 * @n: blocks
 * @tokens: of the last block, 0: full
 * @first: block i has the content, and the key, of @first + i
 * @ids: GPU blocks
 */
struct seq {
	unsigned int n;
	unsigned int tokens;
	uint64_t first;
	uint32_t ids[4096];
	uint8_t keys[512][KVMM_KEY_LEN];
};

/** seq_new() - GPU blocks are numbered from @gpu on */
void seq_new(struct door *d, struct seq *s, unsigned int n, uint64_t first,
	     uint32_t gpu);
unsigned int seq_tokens(const struct door *d, const struct seq *s,
			unsigned int i);
const uint32_t *seq_ids(const struct door *d, const struct seq *s,
			unsigned int i);
void seq_fill(struct door *d, const struct seq *s);
void seq_clear(struct door *d, const struct seq *s);
void seq_check(struct door *d, const struct seq *s, unsigned int first,
	       unsigned int n);
struct kvmm_transfer seq_transfer(const struct door *d, const struct seq *s);

/** door_offload() - and wait; returns blocks that are good */
unsigned int door_offload(struct door *d, const struct seq *s);
/** door_restore() - and wait; returns the prefix */
unsigned int door_restore(struct door *d, const struct seq *s);
/** door_done() - waits for a job and ends it; returns its status */
int door_done(struct kvmm_engine *eng, uint64_t job,
	      struct kvmm_job_info *info);
/** door_no_pins() - fails the test where a pin is left */
void door_no_pins(struct kvmm_pool *pool);

#endif /* DOOR_H */
