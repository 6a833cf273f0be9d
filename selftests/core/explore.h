/* SPDX-License-Identifier: MIT */
/*
 * What the files of the model check share.  It has a model of its own, compiled
 * for pools no larger than these (explore_sim.c): states are copied by the
 * million.
 */
#ifndef KVMM_CORE_EXPLORE_H
#define KVMM_CORE_EXPLORE_H

#define SIM_FRAMES	2
#define SIM_SLOTS	2
#define SIM_CLIENTS	2
#include "sim.h"

#define TICK		10	/* ms; also quarantine and expiry of key 2 */
#define MAX_OPS		512	/* commands in one state */

/**
 * struct shape - a pool to explore
 * @what: in words
 * @frames: its frames
 * @slots: its slots
 * @clients: how many may come
 * @keys: keys in use
 * @parts: of each block
 * @errors: I/O may fail
 * @elastic: frames that may go offline
 * @unit: how many of them together
 * @broken: frames that a memory error may strike
 */
struct shape {
	const char *what;
	u32 frames;
	u32 slots;
	u32 clients;
	u32 keys;
	u32 parts;
	bool errors;
	u32 elastic;
	u32 unit;
	u32 broken;
};

enum kind {
	ALLOC, PUBLISH, LOOKUP, PIN, UNPIN, DROP, TOUCH, SWAP_OUT, SWAP_IN,
	DONE, RECLAIM, HINT, CHAIN, ATTACH, DETACH, RESET, CLIENT_ADD,
	CLIENT_DEL, TIME, CANCEL, LATE, CLEAN, OFFLINE, ONLINE,
	RETIRE, SWAP_IN_BAD, NR_KINDS
};

/** struct op - a command: enum kind, and up to three arguments */
struct op {
	u8 kind;
	u8 a;
	u8 b;
	u8 c;
};

/* The pool at hand. */
extern struct sim pool;

/* explore_state.c: equal for states that are the same */
u64 hash_state(const struct sim *s);

/* explore_ops.c: what can be done now, at most MAX_OPS; and doing it */
u32 all_ops(struct op *ops, const struct shape *sh);
void do_op(const struct op *op);
void print_op(const struct op *op);

#endif /* KVMM_CORE_EXPLORE_H */
