/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The bookkeeping of one pool: blocks, their states, keys, frames, slots, pins
 * and the order of eviction.  Compiled into kvmm.ko and into libkvmm.
 *
 * Rules.  Pure C: nothing here sleeps, locks, does I/O or reads a clock, and
 * memory is taken only in kvmm_core_init().  The caller holds the pool's lock
 * around every call (one call handles at most KVMM_CORE_BATCH entries, a few
 * microseconds), passes the time in ms, and carries out what comes back: a
 * struct kvmm_io says "move this frame to that slot" (or back), and every one
 * of them ends in kvmm_core_write_done() or kvmm_core_read_done(), exactly
 * once, whatever becomes of the client that asked.
 *
 * Data path: block.c (states, alloc, drop), publish.c (publish, lookup),
 * index.c (key to block), client.c (who holds what), lru.c (who goes first),
 * frame.c (place in the arena), elastic.c (frames that lose their memory
 * again), bits.c (sets of them), slots.c (place in the area), swap.c (moving out
 * and in, reclaim), clean.c (writing ahead), core.c (creation).
 */
#ifndef KVMM_CORE_H
#define KVMM_CORE_H

#include "types.h"

#define KVMM_CORE_BATCH		64	/* entries of one call under the lock */
#define KVMM_SCAN_MAX		256	/* blocks looked at to find a victim */
#define KVMM_BUCKET		7	/* entries of the index in one bucket */
#define KVMM_PROBE_MAX		512	/* buckets looked at */
#define KVMM_NONE		0xffffffffU

/* kvmm_block.flags above the KVMM_BLOCK_* that publishers give */
#define KVMM_B_ORPHAN		BIT(2)		/* FILLING: a filler died */
#define KVMM_B_CHILD		BIT(3)		/* its parent counts it */
#define KVMM_B_KEYED		BIT(4)		/* is in the index */
#define KVMM_B_DOOMED		BIT(5)		/* freed when idle */
#define KVMM_B_EVICTING		BIT(6)		/* WRITING: drop the frame after */
#define KVMM_B_SHARED		BIT(7)		/* has holds beyond the first */
/* WRITING, READING: its I/O did not end in time; ORPHAN is FILLING only */
#define KVMM_B_LATE		KVMM_B_ORPHAN

/**
 * struct kvmm_hold - pins of one client on one block
 * @client: client id, 0: unused
 * @count: pins, at least 1 where used
 * @prev: hold before it in the client's list
 * @next: hold after it
 *
 * Hold number N below nr_blocks is the one inside block N; above are those of
 * the table for second and further clients.
 */
struct kvmm_hold {
	u32 client;
	u32 count;
	u32 prev;
	u32 next;
};

struct kvmm_extra_hold {
	struct kvmm_hold hold;
	u32 block;
	u32 hash_next;		/* also the free list */
};

/**
 * struct kvmm_block - descriptor of a block
 * @key: valid once the first part is published
 * @gen: generation; upper half of the handle, never 0
 * @link: hash of the key while in the index; free: the next free one
 * @state: enum kvmm_state
 * @flags: KVMM_BLOCK_* and KVMM_B_*
 * @priority: as published
 * @nr_parts: publishes that complete it
 * @frame: its frame or KVMM_NONE
 * @slot: its slot or KVMM_NONE
 * @lru_prev: younger neighbour in the order of memory
 * @lru_next: older neighbour; lru_prev == own index: not in the order
 * @pins: sum of all holds
 * @hold: the first client's hold
 * @parts_done: bit N: part N is complete
 * @parent: handle of the parent, may be stale
 * @touched: time of the last use, ms; FILLING: when a filler died
 * @ttl_ms: expires when untouched for so long; 0: never
 * @cost_us: time to recompute
 * @position: index in its chain
 * @length: bytes of data
 * @epoch: the pool's epoch at allocation
 * @uses: times published, hit or touched, saturating
 * @children: blocks that name this one as parent, sticky at the maximum
 *
 * The first cache line is what lookup and eviction read.
 */
struct kvmm_block {
	u8 key[KVMM_KEY_LEN];
	u32 gen;
	u32 link;
	u8 state;
	u8 flags;
	u8 priority;
	u8 nr_parts;
	u32 frame;
	u32 slot;
	u32 lru_prev;
	u32 lru_next;
	u32 pins;

	struct kvmm_hold hold;
	u64 parts_done;
	u64 parent;
	u64 touched;
	u32 ttl_ms;
	u32 cost_us;
	u32 position;
	u32 length;
	u32 epoch;
	u16 uses;
	u16 children;
} __aligned(64);

/**
 * struct kvmm_frame - one frame
 * @link: next in the free list or in quarantine, or one of KVMM_FRAME_*
 * @due: quarantine: low 32 bits of the time it ends at, ms
 * @block: in use: its block
 */
struct kvmm_frame {
	u32 link;
	union {
		u32 due;
		u32 block;
	};
};

/* kvmm_frame.link of a frame that is in no list */
#define KVMM_FRAME_OFFLINE	0xfffffffeU
#define KVMM_FRAME_USED		0xfffffffdU
#define KVMM_FRAME_SPARE	0xfffffffcU	/* free, and may go offline */
#define KVMM_FRAME_BAD		0xfffffff9U	/* in use, for the last time */
#define KVMM_FRAME_GONE		0xfffffff8U	/* never used again */

/**
 * struct kvmm_slot - one slot of the area
 * @block: index of its block, KVMM_NONE: free
 * @prev: younger neighbour in its order
 * @next: older neighbour; free slots: next free
 * @crc: CRC32C of the data written
 */
struct kvmm_slot {
	u32 block;
	u32 prev;
	u32 next;
	u32 crc;
};

/**
 * struct kvmm_index_entry - one place of the index
 * @block: index of the block
 * @hash: of its key
 */
struct kvmm_index_entry {
	u32 block;
	u32 hash;
};

/**
 * struct kvmm_index_bucket - a cache line of the index
 * @tags: byte K: lowest byte of entry K's hash; last byte: entries in use
 * @entry: those in use, and then the others
 */
struct kvmm_index_bucket {
	u64 tags;
	struct kvmm_index_entry entry[KVMM_BUCKET];
};

/**
 * struct kvmm_list - ends of an order
 * @head: the youngest
 * @tail: the oldest
 * @count: how many
 */
struct kvmm_list {
	u32 head;
	u32 tail;
	u32 count;
};

/**
 * struct kvmm_core_client - one client
 * @head: first of its holds
 * @nr: how many
 * @used: the id is taken
 * @dying: kvmm_core_client_del() has begun
 */
struct kvmm_core_client {
	u32 head;
	u32 nr;
	bool used;
	bool dying;
};

/**
 * struct kvmm_table - an array in chunks
 * @chunk: the chunks
 * @shift: log2 of the elements in a chunk
 * @nr_chunks: number of chunks
 */
struct kvmm_table {
	void **chunk;
	u32 shift;
	u32 nr_chunks;
};

#define KVMM_BITS_LEVELS	5

/**
 * struct kvmm_bits - a set of numbers, as bits; a bit of a level says whether
 * the word below it has any
 * @words: u64, all levels one after the other
 * @base: first word of each level
 * @nr_levels: levels; the last has one word
 */
struct kvmm_bits {
	struct kvmm_table words;
	u32 base[KVMM_BITS_LEVELS];
	u32 nr_levels;
};

/**
 * enum kvmm_core_note - what the host is told of a published block
 * @KVMM_NOTE_EVICTED: it lost its frame; its data is in its slot
 * @KVMM_NOTE_PURGED: it is lost to make room: it was not in a slot
 * @KVMM_NOTE_SLOT: it is lost with its slot: to another block, or to a detach
 * @KVMM_NOTE_EXPIRED: its time ran out
 * @KVMM_NOTE_UNREADABLE: its data could not be read back
 *
 * What clients drop, and what a reset ends, is not told.
 */
enum kvmm_core_note {
	KVMM_NOTE_EVICTED,
	KVMM_NOTE_PURGED,
	KVMM_NOTE_SLOT,
	KVMM_NOTE_EXPIRED,
	KVMM_NOTE_UNREADABLE,
};

/**
 * struct kvmm_core_config - what a pool is made of
 * @nr_frames: frames, at least 1
 * @nr_slots: the most slots
 * @nr_holds: holds beyond the first of each block; 0: default
 * @max_clients: 1 to KVMM_MAX_CLIENTS
 * @quarantine_ms: rest of a dead client's frames
 * @block_size: bytes, a power of two
 * @nr_elastic: the last frames, that may go offline again
 * @unit_frames: frames that do so together, a power of two; @nr_frames and
 *	@nr_elastic are multiples of it; matters with @nr_elastic only
 * @secret: random, keys are hashed with it
 * @alloc: returns zeroed memory of at most 16 MiB, or NULL
 * @free: takes it back; @bytes as allocated
 * @note: tells what happens to block @b, which still has what it is about to
 *	lose; called in the middle of calls that change blocks, so it must not
 *	call the core; NULL: nobody wants to know
 * @ctx: argument of the three
 */
struct kvmm_core_config {
	u32 nr_frames;
	u32 nr_slots;
	u32 nr_holds;
	u32 max_clients;
	u32 quarantine_ms;
	u32 block_size;
	u32 nr_elastic;
	u32 unit_frames;
	u64 secret[2];
	void *(*alloc)(void *ctx, size_t bytes);
	void (*free)(void *ctx, void *mem, size_t bytes);
	void (*note)(void *ctx, enum kvmm_core_note what, u64 handle,
		     const struct kvmm_block *b);
	void *ctx;
};

/**
 * struct kvmm_core - a pool's bookkeeping; all of it is under the pool's lock
 * @cfg: as given, defaults filled in
 * @nr_blocks: nr_frames + nr_slots
 * @nr_slots: slots that are attached now
 * @epoch: number of resets
 * @degraded: victims are no longer written out
 * @load_us: the host's estimate of reading one block back, us
 * @blocks: struct kvmm_block, @nr_blocks
 * @index: struct kvmm_index_bucket, @nr_buckets
 * @frames: struct kvmm_frame
 * @slots: struct kvmm_slot
 * @holds: struct kvmm_extra_hold
 * @hold_buckets: u32, heads by block
 * @clients: struct kvmm_core_client, index is the id - 1
 * @spare: free frames among the elastic ones, counted from @first_elastic
 * @spare_units: units of them that are all free
 * @first_elastic: frames from here on may go offline
 * @unit_shift: log2 of @cfg.unit_frames
 * @nr_buckets: buckets of @index
 * @hold_mask: number of @hold_buckets - 1
 * @free_block: head of the free descriptors
 * @next_block: descriptors from here on were never used
 * @free_frame: head of the free frames, but for those in @spare
 * @free_slot: head of the free slots
 * @next_slot: slots from here on were never used since the area was attached
 * @free_hold: head of the free holds
 * @quarantine: oldest frame in quarantine
 * @quarantine_tail: youngest
 * @lru: published blocks with a frame, but for those on their way out,
 *	youngest first
 * @lru_busy: of those, blocks pinned, being read or late: no victims
 * @clean_at: block of @lru from which kvmm_core_clean() goes on, to the younger
 *	ones; KVMM_NONE: from the oldest
 * @clean_began: blocks allocated and unpinned by when it last began there; 0:
 *	it may begin there at once
 * @clean_busy: CLEAN blocks that are pinned
 * @unpinned: times that a block lost its last pin
 * @slots_clean: slots whose block is also in memory
 * @slots_swapped: the other slots in use, youngest first
 * @detaching: no more moves are handed out
 * @writing: writes handed out and not done
 * @evicting: of those, blocks that give up their frame after
 * @reading: reads handed out and not done
 * @late: writes and reads of those that nobody waits for any more
 * @frames_online: frames that have memory
 * @frames_free: of those, in no use
 * @elastic_online: frames online from @first_elastic on
 * @elastic_free: of those, in no use
 * @frames_quarantined: of those, resting
 * @slots_free: slots in no use
 * @nr_clients: clients
 * @blocks_pinned: blocks with at least one pin
 * @pins: pins on all blocks
 * @state_count: blocks in each state
 * @stat: counters; the gauges in it are filled by kvmm_core_stat()
 */
struct kvmm_core {
	struct kvmm_core_config cfg;
	u32 nr_blocks;
	u32 nr_slots;
	u32 epoch;
	bool degraded;
	bool detaching;
	u32 load_us;

	struct kvmm_table blocks;
	struct kvmm_table index;
	struct kvmm_table frames;
	struct kvmm_table slots;
	struct kvmm_table holds;
	struct kvmm_table hold_buckets;
	struct kvmm_table clients;
	struct kvmm_bits spare;
	struct kvmm_bits spare_units;
	u32 first_elastic;
	u32 unit_shift;
	u32 nr_buckets;
	u32 hold_mask;

	u32 free_block;
	u32 next_block;
	u32 free_frame;
	u32 free_slot;
	u32 next_slot;
	u32 free_hold;
	u32 quarantine;
	u32 quarantine_tail;

	struct kvmm_list lru;
	u32 lru_busy;
	u32 clean_at;
	u32 clean_busy;
	u64 clean_began;
	u64 unpinned;
	struct kvmm_list slots_clean;
	struct kvmm_list slots_swapped;

	u32 frames_online;
	u32 frames_free;
	u32 elastic_online;
	u32 elastic_free;
	u32 frames_quarantined;
	u32 slots_free;
	u32 writing;
	u32 evicting;
	u32 reading;
	u32 late;
	u32 nr_clients;
	u32 blocks_pinned;
	u64 pins;
	u32 state_count[KVMM_NR_STATES];
	struct kvmm_pool_stat stat;
};

/**
 * struct kvmm_io - a move for the host to carry out
 * @handle: the block; the token of the done call
 * @frame: where in the arena
 * @slot: where in the area
 * @length: bytes of data
 * @crc: reads: the checksum written with the data
 *
 * Frame and slot stay as they are until the done call.
 */
struct kvmm_io {
	u64 handle;
	u32 frame;
	u32 slot;
	u32 length;
	u32 crc;
};

/**
 * struct kvmm_cursor - where the chain of one command is in the orders
 * @mem: handle of the block that the next one is put just behind
 * @swap: the same among swapped blocks
 *
 * Zero it before a command; keep it over the command's batches.
 */
struct kvmm_cursor {
	u64 mem;
	u64 swap;
};

/* ---- creation (core.c) ---- */

/*
 * kvmm_core_init() - make the tables; the only call that takes memory
 * @c: uninitialised
 * @cfg: copied
 *
 * All frames are offline and there is no slot.  Return: 0, -EINVAL, -ENOMEM
 * (everything taken was given back).
 */
int kvmm_core_init(struct kvmm_core *c, const struct kvmm_core_config *cfg);

/* kvmm_core_exit() - give the tables back; no I/O may be in flight */
void kvmm_core_exit(struct kvmm_core *c);

/*
 * kvmm_core_bytes() - memory that kvmm_core_init() takes for @cfg
 */
u64 kvmm_core_bytes(const struct kvmm_core_config *cfg);

/* kvmm_core_stat() - fill @st but for @size and @flags */
void kvmm_core_stat(const struct kvmm_core *c, struct kvmm_pool_stat *st);

/*
 * kvmm_core_frames_online() - frames got memory
 * @first: first frame
 * @count: at most KVMM_CORE_BATCH; frames that are online are passed over
 *
 * Return: frames that came online.
 */
u32 kvmm_core_frames_online(struct kvmm_core *c, u32 first, u32 count);

/* kvmm_core_frame_is_online() - does @frame have memory */
bool kvmm_core_frame_is_online(const struct kvmm_core *c, u32 frame);

/*
 * kvmm_core_frames_used() - frames online that hold a block (neither free nor
 * in quarantine)
 */
u32 kvmm_core_frames_used(const struct kvmm_core *c);

/*
 * kvmm_core_frame_retire() - memory of a block's frame is broken
 * @handle: the block that has the frame
 *
 * The block becomes a miss at once, but for one that is CLEAN and idle, which is
 * still in its slot, and one that is READING: that ends as if read_done() were
 * told -EHWPOISON.  When it lets go of the frame, that counts as online no
 * more and is never used again; its done call, with -EHWPOISON where the move
 * was not made, comes as ever.
 * Return: 0, or -ESTALE: no such block, or it has no frame.
 */
int kvmm_core_frame_retire(struct kvmm_core *c, u64 handle);

/* kvmm_core_frame_block() - handle of the block that has @frame, or 0 */
u64 kvmm_core_frame_block(const struct kvmm_core *c, u32 frame);

/* kvmm_core_frame_retired() - is @frame in use for the last time, or gone */
bool kvmm_core_frame_retired(const struct kvmm_core *c, u32 frame);

/* kvmm_core_reset() - new epoch; returns its number */
u64 kvmm_core_reset(struct kvmm_core *c);

/* ---- clients (client.c) ---- */

/* kvmm_core_client_add() - returns an id from 1 up, or 0: too many */
u32 kvmm_core_client_add(struct kvmm_core *c);

/*
 * kvmm_core_client_del() - a client is gone: drop its pins, at most
 * KVMM_CORE_BATCH a call
 *
 * The frames of its FILLING blocks go to quarantine, of those that others pin
 * when the last of these lets go without publishing.
 * Return: true when done and the id is free again; else call again.
 */
bool kvmm_core_client_del(struct kvmm_core *c, u32 client, u64 now);

/* ---- blocks (block.c); @n is at most KVMM_CORE_BATCH ---- */

/*
 * kvmm_core_alloc() - get up to @n FILLING blocks pinned by @client
 *
 * Takes free frames, frames out of quarantine that are due, then frames of the
 * coldest blocks that can be had without I/O.
 * Return: number had (refs[0..] filled) if not 0, else -EAGAIN (writes in
 * flight, or kvmm_core_reclaim() would find something to write), -ENOSPC
 * (nothing can be had), -ENOBUFS.
 */
int kvmm_core_alloc(struct kvmm_core *c, u32 client, u32 nr_parts, u64 now,
		    struct kvmm_block_ref *refs, u32 n);

/* kvmm_core_publish() - see struct kvmm_publish; sets result and existing */
void kvmm_core_publish(struct kvmm_core *c, u32 client, u32 flags, u64 now,
		       struct kvmm_cursor *cur, struct kvmm_publish_entry *e,
		       u32 n);

/*
 * kvmm_core_lookup() - see struct kvmm_lookup; @keys is n * KVMM_KEY_LEN bytes
 *
 * Return: number of leading hits.  With KVMM_LOOKUP_PREFIX entries after the
 * first miss are set to KVMM_MISS and not counted in the statistics.
 */
u32 kvmm_core_lookup(struct kvmm_core *c, u32 client, u32 flags, u64 now,
		     struct kvmm_cursor *cur, const u8 *keys,
		     struct kvmm_block_ref *refs, u32 n);

/* kvmm_core_touch() - see KVMM_TOUCH */
void kvmm_core_touch(struct kvmm_core *c, u64 now, struct kvmm_cursor *cur,
		     struct kvmm_block_ref *refs, u32 n);

/* kvmm_core_pin() - see KVMM_PIN; @filling: FILLING blocks are allowed */
void kvmm_core_pin(struct kvmm_core *c, u32 client, bool filling,
		   struct kvmm_block_ref *refs, u32 n);

/* kvmm_core_unpin() - see KVMM_UNPIN */
void kvmm_core_unpin(struct kvmm_core *c, u32 client,
		     struct kvmm_block_ref *refs, u32 n);

/* kvmm_core_drop() - see KVMM_DROP */
void kvmm_core_drop(struct kvmm_core *c, u32 client,
		    struct kvmm_block_ref *refs, u32 n);

/* kvmm_core_query() - see KVMM_QUERY */
void kvmm_core_query(struct kvmm_core *c, u64 now, struct kvmm_block_ref *refs,
		     u32 n);

/*
 * kvmm_core_keys() - see struct kvmm_keys
 * @cursor: in and out; looks at KVMM_CORE_BATCH descriptors a call
 *
 * Return: entries written; @cursor is KVMM_NONE at the end, so 0 entries does
 * not mean the end.
 */
u32 kvmm_core_keys(struct kvmm_core *c, u64 now, u64 *cursor,
		   struct kvmm_key_entry *e, u32 n);

/*
 * kvmm_core_chain() - touch a chain from its deepest block up (the end of a
 * request), at most KVMM_CORE_BATCH blocks
 * @handle: in: where to start; out: where to go on, 0 at the end
 *
 * Return: blocks touched, or -ESTALE (none: @handle is gone).
 */
int kvmm_core_chain(struct kvmm_core *c, u64 now, u64 *handle);

/* kvmm_core_request_end() - count a request and its output tokens */
void kvmm_core_request_end(struct kvmm_core *c, u32 output_tokens);

/*
 * kvmm_core_hint() - see struct kvmm_hint; at most KVMM_CORE_BATCH blocks
 * @cur: zero at first; keep it over the batches
 * @handle: in: where to start; out: where to go on, 0 at the end
 *
 * Return: blocks acted on, or -ESTALE.
 */
int kvmm_core_hint(struct kvmm_core *c, u32 permille, u64 now,
		   struct kvmm_cursor *cur, u64 *handle);

/* ---- moving (swap.c) ---- */

/* Answers of the two calls below that are not errors. */
#define KVMM_IO_ISSUE	0	/* carry out @io, then call done */
#define KVMM_IO_NONE	1	/* nothing to move, it is there already */
#define KVMM_IO_JOIN	2	/* under way: wait for the done of this block */

/*
 * kvmm_core_swap_out() - write a block to a slot
 * @flags: KVMM_SWAP_DROP or 0
 * @io: filled for KVMM_IO_ISSUE; @io->handle also for the others
 *
 * KVMM_IO_NONE: the block is CLEAN, or (KVMM_SWAP_DROP) SWAPPED by now.
 * Return: KVMM_IO_*, or an entry error of struct kvmm_swap_cmd.
 */
int kvmm_core_swap_out(struct kvmm_core *c, u64 handle, u32 flags, u64 now,
		       struct kvmm_io *io);

/*
 * kvmm_core_swap_in() - read a block into a frame
 * @flags: KVMM_SWAP_PIN or 0: @client's pin is taken now in all three cases,
 *	and given up by kvmm_core_read_done() with an error
 *
 * Return: KVMM_IO_*, or an entry error of struct kvmm_swap_cmd (-EAGAIN:
 * kvmm_core_reclaim() may make room).
 */
int kvmm_core_swap_in(struct kvmm_core *c, u32 client, u64 handle, u32 flags,
		      u64 now, struct kvmm_io *io);

/*
 * kvmm_core_read_elsewhere() - the frame that a read was to go to is broken
 * @handle: as given to kvmm_core_swap_in(), which returned KVMM_IO_ISSUE in the
 *	same hold of the lock, so that nobody else has seen the frame
 * @io: as filled in then
 *
 * Retires the frame.  Return: KVMM_IO_ISSUE: @io has another; or the error that
 * kvmm_core_swap_in() would have returned: the block is as it was before that.
 */
int kvmm_core_read_elsewhere(struct kvmm_core *c, u64 handle, u64 now,
			     struct kvmm_io *io);

/*
 * kvmm_core_write_done() - the write of @handle has ended
 * @err: 0, or -errno: the block stays in memory, its slot is free again
 * @crc: CRC32C of what was written
 *
 * An error sets @degraded, which ends writing until an area is attached anew.
 */
void kvmm_core_write_done(struct kvmm_core *c, u64 handle, int err, u32 crc);

/*
 * kvmm_core_read_done() - the read of @handle has ended
 * @err: 0; -EBADMSG: wrong checksum; -EHWPOISON: the frame is broken (see
 *	kvmm_core_frame_retire()); else any -errno.  With an error the block is
 *	lost: its key misses, its handle is stale, its pins are gone
 *
 * But with -EHWPOISON it is SWAPPED again, under its key and another handle: who
 * has the old one, and maybe had it pinned, is told as if it were lost.  The same
 * where the frame was retired and @err is 0 or -EBADMSG.
 */
void kvmm_core_read_done(struct kvmm_core *c, u64 handle, int err);

/*
 * kvmm_core_io_late() - the move of @handle has not ended by its deadline
 *
 * At most once for a move; its done call still comes, whenever the device is
 * through with the frame.  A block that was to be read is lost as if the read
 * had failed, but keeps frame and slot until then.  One that is being written
 * stays in memory, may be used, and is written if that still succeeds; until
 * then it is no victim, and a swap-out of it is -EIO.  Both set @degraded.
 */
void kvmm_core_io_late(struct kvmm_core *c, u64 handle);

/* kvmm_core_is_late() - has @handle a move that was said to be late */
bool kvmm_core_is_late(const struct kvmm_core *c, u64 handle);

/*
 * kvmm_core_moving() - moves in flight that are worth waiting for
 */
u32 kvmm_core_moving(const struct kvmm_core *c);

/**
 * struct kvmm_reclaim_count - what kvmm_core_reclaim() did
 * @evicted: blocks that lost their frame at once (their slot has the data)
 * @purged: blocks lost
 * @more: out: another call will find more to do, also where this one had no
 *	move to hand out
 *
 * Zero it before the first call.
 */
struct kvmm_reclaim_count {
	u32 evicted;
	u32 purged;
	bool more;
};

/*
 * kvmm_core_reclaim() - bring the frames in use down to @keep, coldest first
 * @io: room for @n moves (at most KVMM_CORE_BATCH)
 * @count: added to
 *
 * Frames of writes handed out (here or before) count as given up already.
 * Carry out the moves (their blocks lose the frame when the write is done,
 * unless someone wants them meanwhile) and call again after they are done,
 * until it returns 0 and @count->more is false.  Pinned blocks and blocks
 * being read that are met become the youngest.
 * Return: moves in @io.
 */
u32 kvmm_core_reclaim(struct kvmm_core *c, u32 keep, u64 now,
		      struct kvmm_io *io, u32 n,
		      struct kvmm_reclaim_count *count);

/* ---- writing ahead (clean.c) ---- */

/*
 * kvmm_core_ready() - frames that can be had without I/O: free, or of a CLEAN
 * block that nobody has pinned
 */
u32 kvmm_core_ready(const struct kvmm_core *c);

/*
 * kvmm_core_may_clean() - is kvmm_core_clean() worth a call; O(1)
 */
bool kvmm_core_may_clean(const struct kvmm_core *c);

/*
 * kvmm_core_clean() - write cold blocks ahead of need; they stay in memory
 * @want: frames that shall be ready, writes in flight counted as done
 * @io: room for @n moves (at most KVMM_CORE_BATCH)
 * @more: out: there are others to write, or to look at: call again
 *
 * Picks unpinned RESIDENT blocks, coldest first, that could be victims only
 * after a write.  What was found clean is not looked at again: a call goes on
 * where the one before stopped, and from the oldest once it came to the
 * youngest and some blocks were allocated or unpinned since.
 * No order changes, so that who is evicted is the same with and without.
 * A write takes a free slot, or that of the oldest swapped block, which is then
 * lost, where that was last used no later than the block to be written; never
 * the slot of a block in memory.
 * Return: moves in @io; none without an area, or with a degraded one.
 */
u32 kvmm_core_clean(struct kvmm_core *c, u32 want, u64 now, struct kvmm_io *io,
		    u32 n, bool *more);

/* ---- frames that go offline again (elastic.c) ---- */

/* Flags of the calls below. */
#define KVMM_OFFLINE_HARD	BIT(0)	/* purge all that can be recomputed */
#define KVMM_OFFLINE_TRY	BIT(1)	/* only say what would be */

/*
 * kvmm_core_frames_offline() - frames lose their memory
 * @first: first frame, an elastic one
 * @count: at most KVMM_CORE_BATCH; frames that are offline are passed over
 * @flags: KVMM_OFFLINE_*
 * @done: added to
 *
 * Each must be free or hold an idle block without pins that is CLEAN, expired
 * or of an old epoch, or may be purged; else none of them goes offline and nothing
 * changes.  Frames in quarantine stay.
 * Return: frames that went offline (KVMM_OFFLINE_TRY: that would), -EBUSY, or
 * -EINVAL.
 */
int kvmm_core_frames_offline(struct kvmm_core *c, u32 first, u32 count,
			     u32 flags, u64 now,
			     struct kvmm_reclaim_count *done);

/*
 * kvmm_core_free_unit() - a unit of elastic frames that are all free
 * @below: and before this frame
 *
 * Return: the first frame of the last such unit, or KVMM_NONE.
 */
u32 kvmm_core_free_unit(const struct kvmm_core *c, u32 below);

/*
 * kvmm_core_cold_frame() - an elastic frame that a cold block could give up,
 * coldest first; looks at KVMM_SCAN_MAX blocks
 * @flags: KVMM_OFFLINE_HARD or 0
 * @cursor: 0 at first; where to go on, 0 at the end.  Starts again where the
 *	block it stood at is gone
 *
 * Return: the frame, or KVMM_NONE: none of those looked at.
 */
u32 kvmm_core_cold_frame(const struct kvmm_core *c, u32 flags, u64 now,
			 u64 *cursor);

/*
 * kvmm_core_chunk_frames() - frames of a chunk, the unit of leases
 * @block_size: bytes
 * @huge: bytes of a huge page
 * @want: what was asked for, 0: a default of at most 64 MiB
 *
 * Return: how many; 0: no power of two, smaller than a frame or a huge page, or
 * frames and elastic frames are not whole chunks.
 */
u32 kvmm_core_chunk_frames(u32 block_size, u32 huge, u32 nr_frames,
			   u32 nr_elastic, u32 want);

/* ---- area (slots.c) ---- */

/*
 * kvmm_core_attach() - an area of @nr_slots slots is there (at most
 * cfg.nr_slots, none may be attached); ends @degraded
 */
int kvmm_core_attach(struct kvmm_core *c, u32 nr_slots);

/*
 * kvmm_core_detach() - let go of the area, at most KVMM_CORE_BATCH slots a
 * call; stops handing out writes and reads from the first call on
 * @discard: swapped blocks may be lost
 *
 * Return: 0 done; -EAGAIN: call again (after the I/O in flight, if any);
 * -EBUSY: swapped blocks and not @discard, nothing changed; -ENOENT.
 */
int kvmm_core_detach(struct kvmm_core *c, bool discard, u64 now);

/*
 * kvmm_core_detach_cancel() - give up on kvmm_core_detach() after -EAGAIN
 *
 * The area is in use again, less what was let go of by then.
 */
void kvmm_core_detach_cancel(struct kvmm_core *c);

/* ---- checking (check.c) ---- */

/*
 * kvmm_core_check() - is everything consistent; O(everything), for tests
 *
 * Return: NULL, or what is wrong.
 */
const char *kvmm_core_check(const struct kvmm_core *c);

#endif /* KVMM_CORE_H */
