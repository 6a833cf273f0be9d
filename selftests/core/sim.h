/* SPDX-License-Identifier: MIT */
/*
 * A pool and a slow model of it, side by side.  Every command goes to both and
 * every result, counter and order is compared; data is followed as a tag for
 * each frame and slot, so that a block with another's bytes is seen.
 *
 * The model is written from the words of core.h and <linux/kvmm.h>: arrays,
 * linear searches, no state that could be computed instead.  Where they leave
 * the core a choice (which free frame, which slot of several CLEAN blocks, which
 * of several errors that apply), the model reads the choice and checks that it
 * is one of those allowed.
 *
 * Users: property.c (random commands), fuzz.c (a fuzzer's commands), explore.c
 * (all commands in all states of a tiny pool).  A difference ends the process.
 */
#ifndef KVMM_CORE_SIM_H
#define KVMM_CORE_SIM_H

#include "core/core.h"

#ifndef SIM_FRAMES
#define SIM_FRAMES	24
#define SIM_SLOTS	24
#define SIM_CLIENTS	4
#endif
#define SIM_BLOCKS	(SIM_FRAMES + SIM_SLOTS)
#define SIM_BLOCK_SIZE	4096U
#define SIM_JUNK	0xdeadbeefdeadbeefULL	/* a tag that no key has */

/** enum m_frame - what the model knows of a frame */
enum m_frame {
	M_OFFLINE,
	M_UNUSED,
	M_USED,
	M_RESTING,
	M_BAD,			/* broken, and its block has it still */
	M_GONE,			/* broken, and never used again */
};

/** struct m_block - a block as the model has it; index as the core's */
struct m_block {
	bool used;
	bool doomed;		/* a miss; gone when nothing holds it */
	bool keyed;
	bool evicting;
	bool child;		/* its parent was there when it was published */
	bool orphan;		/* a client died that was filling it */
	bool late;		/* its move is, and has not ended */
	u8 state;
	u8 flags;
	u8 priority;
	u64 handle;
	u64 id;			/* of its key */
	u64 parent;
	u64 parts;
	u64 touched;
	u64 died;		/* when, for an orphan */
	u32 nr_parts;
	u32 frame;
	u32 slot;
	u32 position;
	u32 length;
	u32 ttl;
	u32 cost;
	u32 epoch;
	u32 uses;
	u32 crc;
	u32 pins[SIM_CLIENTS + 1];	/* by client id */
	bool extra[SIM_CLIENTS + 1];	/* that hold is in the table */
};

/** struct m_order - block indexes, youngest first */
struct m_order {
	u32 n;
	u8 at[SIM_BLOCKS];
};

/** struct m_io - a move in flight */
struct m_io {
	struct kvmm_io io;
	bool read;
};

/**
 * struct sim - both; no pointers but those in @c and @fail
 * @c: the core
 * @now: time passed to commands
 * @block: the model's blocks
 * @mem: order of eviction
 * @swp: order of the blocks in the area alone, or on their way there
 * @frame: what each frame is
 * @due: when a resting frame may be used
 * @rest: resting frames, last come first
 * @owner: block that has the slot, or KVMM_NONE
 * @frame_data: tag of each frame's bytes
 * @slot_data: tag of each slot's bytes
 * @client: ids in use
 * @io: moves in flight
 * @st: the model's counters
 * @ops: commands so far, for messages
 * @what: the command, for messages
 */
struct sim {
	struct kvmm_core c;
	u64 now;
	struct m_block block[SIM_BLOCKS];
	struct m_order mem;
	struct m_order swp;
	u8 frame[SIM_FRAMES];
	u64 due[SIM_FRAMES];
	struct m_order rest;
	u32 owner[SIM_SLOTS];
	u64 frame_data[SIM_FRAMES];
	u64 slot_data[SIM_SLOTS];
	bool client[SIM_CLIENTS + 1];
	struct m_io io[SIM_BLOCKS];
	u32 nr_io;
	u32 nr_frames;
	u32 nr_elastic;
	u32 unit;
	u32 nr_slots;
	u32 nr_holds;
	u32 extra_used;
	u32 quarantine_ms;
	u32 epoch;
	u32 load_us;
	bool degraded;
	bool detaching;
	struct kvmm_pool_stat st;
	u64 ops;
	const char *what;
};

/* Says what differs and does not return; sim_on_failure() is the user's. */
void sim_fail(const struct sim *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));
void sim_on_failure(const struct sim *s);

#define sim_assert(s, cond) do {					\
	if (!(cond))							\
		sim_fail(s, "%s:%d: not so: %s", __FILE__, __LINE__, #cond); \
} while (0)

/* sim.c: what the core tells its host, and what the model says it has to */
void m_note(const struct m_block *b, enum kvmm_core_note what);
void sim_compare_notes(struct sim *s);

/* sim.c: the model's parts */
void sim_open(struct sim *s, const struct kvmm_core_config *cfg);
void sim_close(struct sim *s);
void sim_key(u8 *key, u64 id);
u64 sim_id(const u8 *key);

struct m_block *m_get(struct sim *s, u64 handle);
struct m_block *m_find(struct sim *s, u64 id);
u32 m_pins(const struct m_block *b);
bool m_live(struct sim *s, struct m_block *b);
struct m_block *m_get_live(struct sim *s, u64 handle);
struct m_block *m_find_live(struct sim *s, u64 id);
void m_kill(struct sim *s, struct m_block *b, __u64 *counter);
void m_settle(struct sim *s, struct m_block *b);
void m_stop_evicting(struct sim *s, struct m_block *b);
void m_start_evicting(struct sim *s, struct m_block *b);
void m_drop_frame(struct sim *s, struct m_block *b);
int m_hold(struct sim *s, struct m_block *b, u32 client);
bool m_unhold(struct sim *s, struct m_block *b, u32 client);
void m_touch(struct sim *s, struct m_block *b, struct kvmm_cursor *cur);
bool m_take_frame(struct sim *s, u32 got);
int m_no_frame(const struct sim *s);
bool m_may_purge(const struct sim *s, const struct m_block *b);
u32 m_used_frames(const struct sim *s);
u32 m_free_slots(const struct sim *s);
void m_put_frame(struct sim *s, u32 frame);
bool m_online(const struct sim *s, u32 frame);
bool m_in(const struct m_order *o, u32 i);
void m_remove(struct m_order *o, u32 i);
void m_insert(struct m_order *o, u32 i, u32 at);
u32 m_place(const struct m_order *o, u32 i);

/* sim_check.c: both compared */
void sim_compare(struct sim *s);
void sim_compare_all(struct sim *s);

/* sim_block.c, sim_client.c, sim_elastic.c, sim_move.c: commands, given to both */
void sim_alloc(struct sim *s, u32 client, u32 parts, u32 n,
	       struct kvmm_block_ref *refs);
void sim_publish(struct sim *s, u32 client, u32 flags, struct kvmm_cursor *cur,
		 struct kvmm_publish_entry *e, u32 n);
void sim_lookup(struct sim *s, u32 client, u32 flags, struct kvmm_cursor *cur,
		const u64 *ids, struct kvmm_block_ref *refs, u32 n);
void sim_touch(struct sim *s, struct kvmm_cursor *cur,
	       struct kvmm_block_ref *refs, u32 n);
void sim_pin(struct sim *s, u32 client, bool filling,
	     struct kvmm_block_ref *refs, u32 n);
void sim_unpin(struct sim *s, u32 client, struct kvmm_block_ref *refs, u32 n);
void sim_drop(struct sim *s, u32 client, struct kvmm_block_ref *refs, u32 n);
void sim_query(struct sim *s, struct kvmm_block_ref *refs, u32 n);
void sim_keys(struct sim *s, u32 n);
void sim_chain(struct sim *s, u64 handle);
void sim_hint(struct sim *s, u32 permille, u64 handle);
void sim_reset(struct sim *s);
u32 sim_client_add(struct sim *s);
void sim_client_del(struct sim *s, u32 client);
void sim_frames_online(struct sim *s, u32 first, u32 n);
int sim_frames_offline(struct sim *s, u32 first, u32 n, u32 flags);
void sim_retire(struct sim *s, u64 handle);
void sim_free_unit(struct sim *s, u32 below);
void sim_cold_frames(struct sim *s, u32 flags);

int sim_swap_out(struct sim *s, u64 handle, u32 flags);
int sim_swap_in(struct sim *s, u32 client, u64 handle, u32 flags);
int sim_swap_in_bad(struct sim *s, u32 client, u64 handle, u32 flags);
void sim_done(struct sim *s, u32 which, int err);
bool sim_late(struct sim *s, u32 which);
void sim_reclaim(struct sim *s, u32 keep, u32 n);
void sim_clean(struct sim *s, u32 want, u32 n);
void sim_attach(struct sim *s, u32 nr_slots);
void sim_detach(struct sim *s, bool discard);
void sim_detach_cancel(struct sim *s);

#endif /* KVMM_CORE_SIM_H */
