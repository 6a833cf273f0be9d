/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * kvmm: memory manager for the key/value blocks of LLM servers.
 *
 * The whole interface of /dev/kvmm: ioctls, io_uring commands, errors and
 * limits.  libkvmm offers the same calls without the module.
 *
 * An open file of /dev/kvmm is a *client*.  KVMM_POOL_CREATE or KVMM_POOL_OPEN
 * binds it to one pool for good; every command below the pool commands acts on
 * that pool, and mmap() at offset 0 maps its arena.  Pins and unpublished
 * blocks belong to the client: they end with the last close of the file.
 */
#ifndef _UAPI_LINUX_KVMM_H
#define _UAPI_LINUX_KVMM_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * DOC: Structs and sizes
 *
 * Each ioctl takes a pointer to a struct whose first field, @size, is set by
 * the caller to sizeof() of the struct it was compiled with.  A kernel that
 * knows a longer struct takes the missing tail as zero; one that knows a
 * shorter struct accepts the call if the unknown tail is all zero, else
 * -E2BIG.  @size below the first published size is -EINVAL.  Unknown @flags
 * and non-zero reserved fields are -EINVAL.  Nothing was done when a call
 * fails, unless said otherwise.  The numbers do not encode the size.
 */

/**
 * DOC: Errors
 *
 * =============  ============================================================
 * -EINVAL        malformed: flags, reserved fields, counts, sizes, a key or
 *                metadata that contradict an earlier part of the same block
 * -E2BIG         @size is larger than known and the tail is not zero
 * -EFAULT        a pointer can't be read or written
 * -ENOTTY        unknown command
 * -EOPNOTSUPP    known, but not offered by this build, backend or file system
 * -ENOTCONN      the file is not bound to a pool
 * -EISCONN       the file is bound already
 * -ENODEV        the pool was destroyed; only close() is left
 * -ENOENT        no pool of that name
 * -EEXIST        the name is taken; publish: the key is, see @existing
 * -ENAMETOOLONG  a pool's name without a final NUL
 * -EACCES        the pool's mode refuses, or the client is read-only
 * -EPERM         the caller is neither the pool's owner nor privileged, or may
 *                not make pools
 * -ESTALE        no such block (any more): freed, evicted, of an old epoch,
 *                or its data could not be read back.  Treat it as a miss
 * -EBUSY         in use: pool with other clients, area claimed by a pool,
 *                block in a state that forbids it now
 * -EAGAIN        no frame now, writing out is under way: try again, or wait
 * -ETIMEDOUT     waited for as long as was asked
 * -ENOSPC        every frame is pinned; area: too small; no slot left to take
 * -ENOBUFS       a table of the pool is full: holds (see @nr_holds), index
 * -EUSERS        too many clients of the pool, or too many pools
 * -EALREADY      this part was published before
 * -ENOMEM        no memory, or a limit on it
 * -EIO           the area could not be written; populate: the system has none
 *                but memory that errors have struck
 * -EHWPOISON     memory that a memory error has struck
 * -EINTR         a signal ended the wait; what was done is in @done
 * -ECANCELED     someone asked for it to end: KVMM_POPULATE_CANCEL
 * =============  ============================================================
 */

/** KVMM_ABI: counts incompatible changes of this file; in kvmm_info.abi. */
#define KVMM_ABI		1

/* Limits: each is enforced, and reported by KVMM_INFO where it can vary. */
#define KVMM_NAME_LEN		64		/* pool name, NUL included */
#define KVMM_KEY_LEN		32		/* bytes */
#define KVMM_MIN_BLOCK_SIZE	4096		/* bytes, a power of two */
#define KVMM_MAX_BLOCK_SIZE	(256 << 20)	/* bytes, a power of two */
#define KVMM_MAX_BLOCKS		(1 << 28)	/* frames + slots of a pool */
#define KVMM_MAX_BATCH		4096		/* entries in one command */
#define KVMM_MAX_PARTS		64		/* parts of one block */
#define KVMM_MAX_CLIENTS	1024		/* clients of one pool */
#define KVMM_MAX_POOLS		256		/* pools of one node */
#define KVMM_MAX_WAIT_MS	60000		/* longest bounded wait */
#define KVMM_MAX_QUARANTINE_MS	600000
#define KVMM_MAX_IO_TIMEOUT_MS	600000		/* longest I/O deadline */
#define KVMM_MAX_EVENTS		4096		/* events a client may queue */
#define KVMM_MAX_LISTENERS	64		/* clients told of each block */
#define KVMM_MAX_WORKERS	64		/* workers of one populate */
#define KVMM_MAX_EXPORTS	1024		/* dma-bufs of one pool */

#define KVMM_NO_FRAME		0xffffffffU	/* kvmm_block_ref.frame */
#define KVMM_NO_SLOT		0xffffffffU

/* Feature bits of kvmm_info.features. */
#define KVMM_FEATURE_URING	(1ULL << 0)	/* io_uring commands */
#define KVMM_FEATURE_CHECKSUM	(1ULL << 1)	/* CRC32C of swapped data */
#define KVMM_FEATURE_ELASTIC	(1ULL << 2)	/* frames given back, leases */
#define KVMM_FEATURE_EVENTS	(1ULL << 3)	/* KVMM_EVENTS, read, poll */
#define KVMM_FEATURE_EXPORT	(1ULL << 4)	/* KVMM_EXPORT */
#define KVMM_FEATURE_WRITEBACK	(1ULL << 5)	/* clean_low, clean_high */
#define KVMM_FEATURE_NUMA	(1ULL << 6)	/* nodes */
#define KVMM_FEATURE_DEADLINE	(1ULL << 7)	/* I/O has a deadline */
#define KVMM_FEATURE_WORKERS	(1ULL << 8)	/* KVMM_POPULATE_ASYNC */

/**
 * enum kvmm_state - state of a block
 * @KVMM_FREE: no block
 * @KVMM_FILLING: has a frame; private to who allocated or pinned it
 * @KVMM_RESIDENT: published; data only in memory
 * @KVMM_WRITING: being written to its slot; still readable
 * @KVMM_CLEAN: in memory and in its slot
 * @KVMM_SWAPPED: in its slot only
 * @KVMM_READING: being read back into a frame; becomes CLEAN
 * @KVMM_NR_STATES: number of states
 */
enum kvmm_state {
	KVMM_FREE,
	KVMM_FILLING,
	KVMM_RESIDENT,
	KVMM_WRITING,
	KVMM_CLEAN,
	KVMM_SWAPPED,
	KVMM_READING,
	KVMM_NR_STATES,
};

/**
 * enum kvmm_policy - who is evicted first
 * @KVMM_POLICY_LRU: the least recently used block
 */
enum kvmm_policy {
	KVMM_POLICY_LRU = 0,
};

/**
 * struct kvmm_block_ref - one block in a batch
 * @handle: generation (upper 32 bits) and index of the block; never 0.  A
 *	handle outlives its block: it is then -ESTALE, never someone else's data
 * @frame: out: the data is at arena offset @frame * block_size; KVMM_NO_FRAME
 *	where the block is not in memory.  Stable only while pinned
 * @result: out: 0 or more (each command says what) or -errno for this entry
 */
struct kvmm_block_ref {
	__aligned_u64 handle;
	__u32 frame;
	__s32 result;
};

/**
 * struct kvmm_batch - a command on blocks known by handle
 * @size: sizeof(struct kvmm_batch)
 * @flags: 0, or as the command says
 * @refs: user address of @count struct kvmm_block_ref
 * @count: 1 to KVMM_MAX_BATCH
 * @done: out: entries whose result is not an error
 *
 * The call returns 0 when the array was gone through, whatever the entries'
 * results are.
 */
struct kvmm_batch {
	__u32 size;
	__u32 flags;
	__aligned_u64 refs;
	__u32 count;
	__u32 done;
};

/**
 * struct kvmm_info - what this kernel offers (KVMM_INFO); any client
 * @size: sizeof(struct kvmm_info)
 * @flags: 0
 * @abi: out: KVMM_ABI
 * @nr_pools: out: pools that exist
 * @features: out: KVMM_FEATURE_*
 * @policies: out: bit N set: enum kvmm_policy N is offered
 * @max_block_size: out: bytes
 * @max_batch: out: entries of one command
 * @pinned_bytes: out: memory held by all pools
 * @version: out: the module's version as text
 */
struct kvmm_info {
	__u32 size;
	__u32 flags;
	__u32 abi;
	__u32 nr_pools;
	__aligned_u64 features;
	__aligned_u64 policies;
	__u32 max_block_size;
	__u32 max_batch;
	__aligned_u64 pinned_bytes;
	char version[32];
};

/* kvmm_pool_create.flags */
#define KVMM_POOL_MANUAL_CLOCK	(1U << 0)	/* time moves by KVMM_POOL_CLOCK */
#define KVMM_POOL_NODES_PREFER	(1U << 1)	/* @nodes where they have room */

/**
 * struct kvmm_pool_create - make a pool and bind to it (KVMM_POOL_CREATE)
 * @size: sizeof(struct kvmm_pool_create)
 * @flags: KVMM_POOL_MANUAL_CLOCK, KVMM_POOL_NODES_PREFER
 * @name: 1 to 63 bytes of [A-Za-z0-9._-], not starting with '.' or '-'
 * @mode: who may open: permission bits as of a file, 0 to 0777, of which the
 *	r and w bits count (w without r is no access); the owner is the
 *	caller's effective uid and gid
 * @policy: enum kvmm_policy
 * @block_size: bytes, a power of two
 * @nr_frames: frames of the arena, at least 1
 * @nr_slots: the most slots a swap area may bring; 0: no swapping
 * @nr_holds: pins by a second and further client that can exist at once;
 *	0: a default (a quarter of the frames, at least 1024)
 * @quarantine_ms: how long a frame that a dead client was filling rests
 *	before it is reused, 0 to KVMM_MAX_QUARANTINE_MS
 * @__reserved: 0
 * @arena_size: out: bytes to mmap
 * @nodes: bit N: memory may come from NUMA node N, below 64; in turns where
 *	there are several.  Populating fails with -ENOMEM when they are full or
 *	the caller's cpuset forbids them, or with KVMM_POOL_NODES_PREFER goes
 *	elsewhere, which is counted (kvmm_pool_stat.frames_misplaced).  A node
 *	that is not there or has no memory that can be pinned is -EINVAL, and so
 *	are, without KVMM_POOL_NODES_PREFER, nodes that the creator's cpuset
 *	forbids altogether.  0: the node of who populates
 * @nr_elastic: the last frames of the arena, a multiple of @chunk_frames as
 *	@nr_frames then is too, that are given back to the system when it is
 *	short of memory, and taken again later.  The frames before them, and
 *	those of chunks that a client holds a lease on, stay
 * @chunk_frames: frames of a chunk, the unit of leases: a power of two, not
 *	smaller than a huge page; 0: a default; out: what it is
 * @clean_low: when less than this share of the frames online, in permille, is
 *	free or of an unpinned CLEAN block, cold blocks are written out in the
 *	background, so that allocating finds victims; 0: never.  Who is
 *	evicted stays the same.  Slots are used that are free, or of swapped
 *	blocks that were last used no later than the block to be written
 * @clean_high: ...until this share is, at least @clean_low, at most 1000
 * @__reserved2: 0
 *
 * No memory for blocks is taken yet: see KVMM_POPULATE.  The client must have
 * been opened for reading and writing, and the caller must have CAP_IPC_LOCK
 * or be in the group that the module's parameter create_gid names (-EPERM).
 * Errors: -EINVAL, -EEXIST, -ENAMETOOLONG, -EISCONN, -EACCES, -EPERM,
 * -EOPNOTSUPP (policy), -EUSERS (too many pools, of the node or the user),
 * -ENOMEM (also: the frames that are not elastic are more than the limits on
 * memory, of the node or the user, leave now).
 */
struct kvmm_pool_create {
	__u32 size;
	__u32 flags;
	char name[KVMM_NAME_LEN];
	__u32 mode;
	__u32 policy;
	__u32 block_size;
	__u32 nr_frames;
	__u32 nr_slots;
	__u32 nr_holds;
	__u32 quarantine_ms;
	__u32 __reserved;
	__aligned_u64 arena_size;
	__aligned_u64 nodes;
	__u32 nr_elastic;
	__u32 chunk_frames;
	__u16 clean_low;
	__u16 clean_high;
	__u32 __reserved2;
};

/* kvmm_pool_open.flags */
#define KVMM_POOL_RDONLY	(1U << 0)	/* no command that changes data */

/**
 * struct kvmm_pool_open - bind to a pool that exists (KVMM_POOL_OPEN)
 * @size: sizeof(struct kvmm_pool_open)
 * @flags: KVMM_POOL_RDONLY or 0; a file opened O_RDONLY is read-only anyway
 * @name: the pool's name
 * @block_size: out: bytes
 * @nr_frames: out
 * @nr_slots: out: the most slots an area may bring
 * @policy: out: enum kvmm_policy
 * @arena_size: out: bytes to mmap
 * @nr_elastic: out: frames at the end of the arena that may be given back
 * @chunk_frames: out: frames of a chunk
 *
 * A read-only client may look up, pin, unpin, touch, query, swap in and list,
 * and maps the arena PROT_READ only.
 * Errors: -ENOENT, -EACCES, -EISCONN, -EUSERS, -EINVAL, -ENAMETOOLONG.
 */
struct kvmm_pool_open {
	__u32 size;
	__u32 flags;
	char name[KVMM_NAME_LEN];
	__u32 block_size;
	__u32 nr_frames;
	__u32 nr_slots;
	__u32 policy;
	__aligned_u64 arena_size;
	__u32 nr_elastic;
	__u32 chunk_frames;
};

/* kvmm_pool_destroy.flags */
#define KVMM_POOL_FORCE		(1U << 0)	/* also while clients are bound */

/**
 * struct kvmm_pool_destroy - end a pool by name (KVMM_POOL_DESTROY)
 * @size: sizeof(struct kvmm_pool_destroy)
 * @flags: KVMM_POOL_FORCE or 0
 * @name: the pool's name
 *
 * May be called on any client, bound or not, by the pool's owner or with
 * CAP_SYS_ADMIN.  Waits for I/O in flight, late one too: a device has the
 * memory until it answers.  Who waits can be killed; the pool ends all the
 * same.  With KVMM_POOL_FORCE the other clients get -ENODEV from then on, and
 * SIGBUS when they touch the arena.
 * Errors: -ENOENT, -EPERM, -EBUSY (a client other than the caller is bound and
 * KVMM_POOL_FORCE is not set), -EINVAL, -ENAMETOOLONG.
 */
struct kvmm_pool_destroy {
	__u32 size;
	__u32 flags;
	char name[KVMM_NAME_LEN];
};

/**
 * struct kvmm_pool_entry - one pool of KVMM_POOL_LIST
 * @name: NUL-terminated
 * @mode: permission bits
 * @uid: owner, in the caller's user namespace
 * @gid: owner's group, likewise
 * @block_size: bytes
 * @nr_frames: frames of the arena
 * @nr_slots: the most slots an area may bring
 * @policy: enum kvmm_policy
 * @nr_clients: clients bound now
 */
struct kvmm_pool_entry {
	char name[KVMM_NAME_LEN];
	__u32 mode;
	__u32 uid;
	__u32 gid;
	__u32 block_size;
	__u32 nr_frames;
	__u32 nr_slots;
	__u32 policy;
	__u32 nr_clients;
};

/**
 * struct kvmm_pool_list - the pools of this node (KVMM_POOL_LIST); any client
 * @size: sizeof(struct kvmm_pool_list)
 * @flags: 0
 * @cursor: in: 0, or what the call before returned; out: where to go on
 * @entries: user address of @count struct kvmm_pool_entry
 * @count: entries there is room for, 1 to KVMM_MAX_BATCH
 * @done: out: entries written; 0 at the end
 */
struct kvmm_pool_list {
	__u32 size;
	__u32 flags;
	__aligned_u64 cursor;
	__aligned_u64 entries;
	__u32 count;
	__u32 done;
};

/**
 * struct kvmm_pool_reset - start a new epoch (KVMM_POOL_RESET); writers
 * @size: sizeof(struct kvmm_pool_reset)
 * @flags: 0
 * @epoch: out: the new epoch's number
 *
 * Every block published or allocated before misses at once, and can't be
 * published any more (-ESTALE); pins stay good until dropped.
 */
struct kvmm_pool_reset {
	__u32 size;
	__u32 flags;
	__aligned_u64 epoch;
};

/**
 * struct kvmm_pool_clock - set the time of a pool with a manual clock
 * (KVMM_POOL_CLOCK); writers
 * @size: sizeof(struct kvmm_pool_clock)
 * @flags: 0
 * @now_ms: the new time in ms, not before the present one (-EINVAL)
 *
 * For replaying traces and for tests: expiry and quarantine follow it.
 * Errors: -EINVAL also where the pool has no manual clock.
 */
struct kvmm_pool_clock {
	__u32 size;
	__u32 flags;
	__aligned_u64 now_ms;
};

/**
 * struct kvmm_pool_stat - counters of a pool (KVMM_POOL_STAT); any bound client
 * @size: sizeof(struct kvmm_pool_stat)
 * @flags: 0
 * @epoch: number of resets
 * @block_size: bytes
 * @nr_frames: frames of the arena
 * @nr_slots: slots of the attached area, 0 without one
 * @nr_clients: clients bound now
 * @degraded: 1: the area failed, blocks are no longer written to it
 * @checksums: 1: swapped data is checked
 * @frames_online: frames that have memory
 * @frames_free: of those, unused
 * @frames_quarantined: of those, resting after a client's death
 * @slots_free: unused slots
 * @blocks: number of blocks in each enum kvmm_state
 * @blocks_pinned: blocks with at least one pin
 * @pins: pins of all clients
 * @allocs: blocks allocated
 * @alloc_fails: blocks asked for and not had
 * @publishes: blocks published
 * @publish_dups: refused with -EEXIST
 * @lookups: keys looked up
 * @hits_memory: of those, found in memory
 * @hits_swap: found in the swap area
 * @hits_pending: found while being read back
 * @misses: not found
 * @evicted: blocks that lost their frame to make room, still in their slot
 * @purged: blocks lost to make room (no slot, or cheaper to recompute)
 * @slots_evicted: swapped blocks lost to make room for others
 * @expired: blocks whose time ran out
 * @dropped: blocks dropped by clients or by a reset
 * @swap_outs: blocks written
 * @swap_ins: blocks read back
 * @swap_out_bytes: bytes written
 * @swap_in_bytes: bytes read
 * @write_errors: writes that failed
 * @read_errors: reads that failed or came back short
 * @checksum_errors: blocks that came back with a wrong checksum
 * @requests: requests whose end was told
 * @output_tokens: their output tokens
 * @clients_dead: clients that went with pins or unpublished blocks
 * @nr_elastic: frames that may be given back
 * @chunk_frames: frames of a chunk
 * @frames_poisoned: frames taken out of use for a memory error
 * @frames_misplaced: frames online whose memory is not on a node asked for
 * @frames_populating: frames that populates in progress still have to do
 * @chunks_leased: chunks that clients hold leases on
 * @chunks_wanted: of those, asked back
 * @given_back: frames given back to the system
 * @taken_again: frames that had been given back and got memory again
 * @shrinks: times the system was given memory when it asked
 * @clean_outs: blocks written in the background
 * @io_timeouts: blocks whose I/O did not end by its deadline
 * @events: events queued for clients
 * @events_lost: events a client had no room for
 * @exports: dma-bufs that exist
 */
struct kvmm_pool_stat {
	__u32 size;
	__u32 flags;
	__aligned_u64 epoch;
	__u32 block_size;
	__u32 nr_frames;
	__u32 nr_slots;
	__u32 nr_clients;
	__u32 degraded;
	__u32 checksums;
	__aligned_u64 frames_online;
	__aligned_u64 frames_free;
	__aligned_u64 frames_quarantined;
	__aligned_u64 slots_free;
	__aligned_u64 blocks[KVMM_NR_STATES];
	__aligned_u64 blocks_pinned;
	__aligned_u64 pins;
	__aligned_u64 allocs;
	__aligned_u64 alloc_fails;
	__aligned_u64 publishes;
	__aligned_u64 publish_dups;
	__aligned_u64 lookups;
	__aligned_u64 hits_memory;
	__aligned_u64 hits_swap;
	__aligned_u64 hits_pending;
	__aligned_u64 misses;
	__aligned_u64 evicted;
	__aligned_u64 purged;
	__aligned_u64 slots_evicted;
	__aligned_u64 expired;
	__aligned_u64 dropped;
	__aligned_u64 swap_outs;
	__aligned_u64 swap_ins;
	__aligned_u64 swap_out_bytes;
	__aligned_u64 swap_in_bytes;
	__aligned_u64 write_errors;
	__aligned_u64 read_errors;
	__aligned_u64 checksum_errors;
	__aligned_u64 requests;
	__aligned_u64 output_tokens;
	__aligned_u64 clients_dead;
	__u32 nr_elastic;
	__u32 chunk_frames;
	__aligned_u64 frames_poisoned;
	__aligned_u64 frames_misplaced;
	__aligned_u64 frames_populating;
	__aligned_u64 chunks_leased;
	__aligned_u64 chunks_wanted;
	__aligned_u64 given_back;
	__aligned_u64 taken_again;
	__aligned_u64 shrinks;
	__aligned_u64 clean_outs;
	__aligned_u64 io_timeouts;
	__aligned_u64 events;
	__aligned_u64 events_lost;
	__aligned_u64 exports;
};

/* kvmm_populate.flags */
#define KVMM_POPULATE_ASYNC	(1U << 0)	/* by workers, don't wait */
#define KVMM_POPULATE_CANCEL	(1U << 1)	/* end all that are in progress */

/**
 * struct kvmm_populate - give frames their memory (KVMM_POPULATE); writers
 * @size: sizeof(struct kvmm_populate)
 * @flags: KVMM_POPULATE_ASYNC, or KVMM_POPULATE_CANCEL alone (with @first and
 *	@count 0), or 0
 * @first: first frame of the range
 * @count: frames, at least 1; the range must lie in the arena
 * @done: out: frames that are online in the range from @first on, without a
 *	gap; also when the call fails
 * @workers: with KVMM_POPULATE_ASYNC: how many kernel threads do it, at most
 *	KVMM_MAX_WORKERS; 0: as many as the nodes have CPUs, at most 16; else 0
 *
 * Frames that are online already are passed over.  Memory is zeroed, charged
 * to the memory cgroup that the pool's creator was in, and comes in whole huge
 * pages where it can.  May be called by several threads at once on ranges of
 * their own.  KVMM_POPULATE_ASYNC returns at once, with @done as it is then;
 * KVMM_EVENT_POPULATED tells of the end.  It belongs to the pool: it goes on
 * when the client closes, and ends with the pool.  Its workers run near the
 * pool's nodes and take memory where the caller's cpuset allows it.
 * KVMM_POPULATE_CANCEL returns when all that was in progress, of this pool, has
 * ended (-ECANCELED), or on a signal (-EINTR); what is online stays.
 * Errors: -EINVAL, -ENOMEM, -EINTR, -EACCES, -ECANCELED, -EBUSY (async: there
 * is one in progress), -EIO (memory with errors, time and again).
 */
struct kvmm_populate {
	__u32 size;
	__u32 flags;
	__u32 first;
	__u32 count;
	__u32 done;
	__u32 workers;
};

/* kvmm_swap_attach.flags */
#define KVMM_SWAP_NO_CHECKSUM	(1U << 0)	/* don't check data read back */

/**
 * struct kvmm_swap_attach - give the pool a swap area (KVMM_SWAP_ATTACH);
 * owner or CAP_SYS_ADMIN
 * @size: sizeof(struct kvmm_swap_attach)
 * @flags: KVMM_SWAP_NO_CHECKSUM or 0
 * @fd: regular file or block device, open for reading and writing, that
 *	supports O_DIRECT at the pool's block size (tried with a real write
 *	and read of the first slot)
 * @nr_slots: slots to use, 0: as many as fit and the pool allows;
 *	out: slots in use
 * @offset: where in the file the area starts, a multiple of block_size
 * @timeout_ms: deadline of one block's I/O, 1 to KVMM_MAX_IO_TIMEOUT_MS; 0: a
 *	default of 30 s.  A read that passes it is a miss (-ESTALE for who
 *	waits), and its frame rests until the device answers; a write that does
 *	is -EIO and leaves its block in memory; either sets degraded
 * @__reserved: 0
 *
 * The area's content is overwritten.  Allocate and write the file in advance:
 * a sparse file works but each first write of a slot is slower, and a full
 * disk then stops stores (see kvmm_pool_stat.degraded).
 * Errors: -EINVAL, -EBADF, -EBUSY (the pool has an area, or another pool uses
 * this one), -EOPNOTSUPP (no O_DIRECT), -ENOSPC (no room for one slot), -EIO,
 * -ETIMEDOUT (no answer by the deadline), -EINTR, -EPERM.
 */
struct kvmm_swap_attach {
	__u32 size;
	__u32 flags;
	__s32 fd;
	__u32 nr_slots;
	__aligned_u64 offset;
	__u32 timeout_ms;
	__u32 __reserved;
};

/* kvmm_swap_detach.flags */
#define KVMM_SWAP_DISCARD	(1U << 0)	/* swapped blocks may be lost */

/**
 * struct kvmm_swap_detach - let go of the swap area (KVMM_SWAP_DETACH); owner
 * or CAP_SYS_ADMIN
 * @size: sizeof(struct kvmm_swap_detach)
 * @flags: KVMM_SWAP_DISCARD or 0
 *
 * Waits for I/O in flight, late one too.
 * Errors: -ENOENT (no area), -EBUSY (blocks are swapped out and
 * KVMM_SWAP_DISCARD is not set), -EPERM, -EINTR.
 */
struct kvmm_swap_detach {
	__u32 size;
	__u32 flags;
};

/* kvmm_alloc.flags */
#define KVMM_ALLOC_WAIT		(1U << 0)	/* wait for frames, bounded */

/**
 * struct kvmm_alloc - get blocks to fill (KVMM_ALLOC); writers
 * @size: sizeof(struct kvmm_alloc)
 * @flags: KVMM_ALLOC_WAIT or 0
 * @refs: user address of @count struct kvmm_block_ref, written
 * @count: 1 to KVMM_MAX_BATCH
 * @nr_parts: how many publishes complete a block, 1 to KVMM_MAX_PARTS
 *	(0 counts as 1)
 * @timeout_ms: with KVMM_ALLOC_WAIT: longest wait, 1 to KVMM_MAX_WAIT_MS
 * @done: out: blocks allocated, the first @done entries; also on failure
 *
 * A block starts FILLING, pinned once by the caller.  Free frames are taken
 * first, then those of cold unpinned blocks.  Returns 0 when all @count were
 * had, else -EAGAIN, -ENOSPC, -ETIMEDOUT, -EINTR or -ENOBUFS with the first
 * @done blocks allocated.
 */
struct kvmm_alloc {
	__u32 size;
	__u32 flags;
	__aligned_u64 refs;
	__u32 count;
	__u32 nr_parts;
	__u32 timeout_ms;
	__u32 done;
};

/* kvmm_publish_entry.flags */
#define KVMM_BLOCK_PARTIAL	(1U << 0)	/* not all of its tokens yet */
#define KVMM_BLOCK_RECOMPUTABLE	(1U << 1)	/* may be purged if cheaper */

/**
 * struct kvmm_publish_entry - one block to publish
 * @key: names the content; all zero is -EINVAL
 * @handle: a FILLING block that the client has pinned
 * @existing: out: with -EEXIST the block that has the key already, else 0
 * @parent: handle of the block before it in its chain, 0 for the first; may be
 *	stale
 * @position: index in its chain, 0 for the first
 * @length: bytes of data, 1 to block_size; only these are kept by a swap
 * @expiry_ms: lost when not hit for so long; 0: never
 * @cost_us: time to recompute the block, for KVMM_BLOCK_RECOMPUTABLE
 * @part: which part is complete, below nr_parts
 * @priority: 0 to 255; kept, reported, and for policies to use (LRU doesn't)
 * @flags: KVMM_BLOCK_*
 * @result: out: 0 published; 1 part recorded, others are missing; -EEXIST,
 *	-ESTALE, -EALREADY, -EINVAL, -EBUSY (not FILLING), -EACCES (not pinned
 *	by this client), -ENOBUFS
 *
 * The metadata of the first part counts; a later part's key must equal it.
 */
struct kvmm_publish_entry {
	__u8 key[KVMM_KEY_LEN];
	__aligned_u64 handle;
	__aligned_u64 existing;
	__aligned_u64 parent;
	__u32 position;
	__u32 length;
	__u32 expiry_ms;
	__u32 cost_us;
	__u16 part;
	__u8 priority;
	__u8 flags;
	__s32 result;
};

/* kvmm_publish.flags */
#define KVMM_PUBLISH_KEEP	(1U << 0)	/* keep the caller's pin */

/**
 * struct kvmm_publish - make blocks visible under their keys (KVMM_PUBLISH);
 * writers
 * @size: sizeof(struct kvmm_publish)
 * @flags: KVMM_PUBLISH_KEEP or 0
 * @entries: user address of @count struct kvmm_publish_entry
 * @count: 1 to KVMM_MAX_BATCH
 * @done: out: entries whose result is not an error
 *
 * Without KVMM_PUBLISH_KEEP one pin of the caller is dropped for each entry
 * with result 0, 1 or -EEXIST; a FILLING block left without pins is freed, so
 * a duplicate costs nothing.  Entries of one call are taken as a chain: each
 * becomes just older than the one before it.
 */
struct kvmm_publish {
	__u32 size;
	__u32 flags;
	__aligned_u64 entries;
	__u32 count;
	__u32 done;
};

/* kvmm_lookup.flags */
#define KVMM_LOOKUP_PIN		(1U << 0)	/* pin what is in memory */
#define KVMM_LOOKUP_PREFIX	(1U << 1)	/* stop at the first miss */
#define KVMM_LOOKUP_PEEK	(1U << 2)	/* no touch, no statistics */

/**
 * enum kvmm_where - result of a lookup for one key
 * @KVMM_MISS: not here
 * @KVMM_MEMORY: in memory (pinned, with KVMM_LOOKUP_PIN)
 * @KVMM_SWAP: in the swap area: swap it in
 * @KVMM_PENDING: being read back: a swap-in joins the read (pinned, with
 *	KVMM_LOOKUP_PIN; the frame's bytes are good once a swap-in of the handle
 *	has returned)
 */
enum kvmm_where {
	KVMM_MISS,
	KVMM_MEMORY,
	KVMM_SWAP,
	KVMM_PENDING,
};

/**
 * struct kvmm_lookup - find blocks by key (KVMM_LOOKUP); any bound client
 * @size: sizeof(struct kvmm_lookup)
 * @flags: KVMM_LOOKUP_*
 * @keys: user address of @count keys of KVMM_KEY_LEN bytes, in prefix order
 * @refs: user address of @count struct kvmm_block_ref, written; result is an
 *	enum kvmm_where, or -ENOBUFS where a hit could not be pinned
 * @count: 1 to KVMM_MAX_BATCH
 * @prefix: out: number of leading entries that are hits
 *
 * With KVMM_LOOKUP_PREFIX the entries after the first miss are not looked up
 * and read KVMM_MISS.  What is found is touched as by KVMM_TOUCH.
 */
struct kvmm_lookup {
	__u32 size;
	__u32 flags;
	__aligned_u64 keys;
	__aligned_u64 refs;
	__u32 count;
	__u32 prefix;
};

/**
 * struct kvmm_key_entry - one block of KVMM_KEYS
 * @key: the block's key
 * @handle: the block
 * @parent: its parent's handle as published
 * @position: index in its chain
 * @length: bytes of data
 * @expiry_ms: as published
 * @cost_us: as published
 * @frame: KVMM_NO_FRAME where not in memory
 * @slot: KVMM_NO_SLOT where not in the area
 * @pins: pins of all clients
 * @uses: times it was published, hit or touched, at most 65535
 * @state: enum kvmm_state
 * @priority: as published
 * @flags: KVMM_BLOCK_*
 * @__reserved: 0
 */
struct kvmm_key_entry {
	__u8 key[KVMM_KEY_LEN];
	__aligned_u64 handle;
	__aligned_u64 parent;
	__u32 position;
	__u32 length;
	__u32 expiry_ms;
	__u32 cost_us;
	__u32 frame;
	__u32 slot;
	__u32 pins;
	__u32 uses;
	__u8 state;
	__u8 priority;
	__u8 flags;
	__u8 __reserved[5];
};

/**
 * struct kvmm_keys - enumerate published blocks (KVMM_KEYS); any bound client
 * @size: sizeof(struct kvmm_keys)
 * @flags: 0
 * @cursor: in: 0, or what the call before returned; out: where to go on
 * @entries: user address of @count struct kvmm_key_entry
 * @count: 1 to KVMM_MAX_BATCH
 * @done: out: entries written; 0 at the end
 *
 * A block that is there from the first call to the last is reported exactly
 * once; one that comes or goes meanwhile may or may not be.
 */
struct kvmm_keys {
	__u32 size;
	__u32 flags;
	__aligned_u64 cursor;
	__aligned_u64 entries;
	__u32 count;
	__u32 done;
};

/**
 * struct kvmm_request_end - a request is finished (KVMM_REQUEST_END); writers
 * @size: sizeof(struct kvmm_request_end)
 * @flags: 0
 * @handle: the deepest block of its chain
 * @output_tokens: tokens it generated
 * @done: out: blocks of the chain found, deepest first, up to the first one
 *	that is gone
 *
 * The chain, followed by its parents, counts as used now; a prefix becomes
 * younger than its extension.  Errors: -ESTALE (the deepest block is gone).
 */
struct kvmm_request_end {
	__u32 size;
	__u32 flags;
	__aligned_u64 handle;
	__u32 output_tokens;
	__u32 done;
};

/**
 * struct kvmm_hint - what the engine knows of a chain's future (KVMM_HINT);
 * writers
 * @size: sizeof(struct kvmm_hint)
 * @flags: 0
 * @handle: the deepest block of the chain
 * @permille: probability that the chain is used again, 0 to 1000
 * @delay_ms: how soon, where it is; 0: not known
 * @done: out: blocks the policy acted on
 * @__reserved: 0
 *
 * LRU acts on a probability of 0 only: the chain's blocks that no other chain
 * shares become the oldest.  Errors: -ESTALE, -EINVAL.
 */
struct kvmm_hint {
	__u32 size;
	__u32 flags;
	__aligned_u64 handle;
	__u32 permille;
	__u32 delay_ms;
	__u32 done;
	__u32 __reserved;
};

/**
 * struct kvmm_reclaim - make room (KVMM_RECLAIM); writers
 * @size: sizeof(struct kvmm_reclaim)
 * @flags: 0
 * @keep: frames that may stay in use; the coldest unpinned blocks beyond that
 *	lose theirs, to a slot where there is one
 * @in_use: out: frames in use afterwards; more than @keep where the rest is
 *	pinned or being filled
 * @evicted: out: blocks that lost their frame and are in a slot
 * @purged: out: blocks lost
 *
 * Waits for its writes.  Errors: -EINTR (done so far is reported).
 */
struct kvmm_reclaim {
	__u32 size;
	__u32 flags;
	__u32 keep;
	__u32 in_use;
	__u32 evicted;
	__u32 purged;
};

/* kvmm_lease.flags */
#define KVMM_LEASE_END		(1U << 0)	/* give leases up */

/**
 * struct kvmm_lease - say which chunks a device has registered (KVMM_LEASE);
 * any bound client
 * @size: sizeof(struct kvmm_lease)
 * @flags: KVMM_LEASE_END or 0
 * @first: first chunk
 * @count: chunks, at least 1; the range must lie in the arena
 * @done: out: chunks that are as asked for now, from @first on, without a gap
 * @__reserved: 0
 *
 * Take a lease before memory of a chunk is registered with a GPU driver,
 * io_uring or RDMA, and end it after unregistering: memory that is given back
 * while registered would be two memories, one for the device and one for the
 * CPU.  A chunk under a lease is never given back.  When the system is short,
 * its holders get KVMM_EVENT_CHUNK_WANTED and are asked to unregister it and
 * end the lease.  A client has at most one lease on a chunk; asking again, or
 * ending what is not there, is fine.  Leases end with the client.
 * Errors: -EINVAL, -EBUSY (a chunk is on its way out: ask again later),
 * -ENOMEM.
 */
struct kvmm_lease {
	__u32 size;
	__u32 flags;
	__u32 first;
	__u32 count;
	__u32 done;
	__u32 __reserved;
};

/**
 * enum kvmm_event_type - what a client can be told of
 * @KVMM_EVENT_LOST: @value events had no room; never masked
 * @KVMM_EVENT_PRESSURE: the system wants memory: @value frames of this pool
 * @KVMM_EVENT_CHUNK_WANTED: chunk @value, on which the client has a lease
 * @KVMM_EVENT_EVICTED: a block lost its frame; it is in its slot
 * @KVMM_EVENT_PURGED: a published block is lost: no slot, expired, or its data
 *	could not be read
 * @KVMM_EVENT_DEGRADED: the area failed, @value is the errno
 * @KVMM_EVENT_POPULATED: a populate by workers ended; @value frames are online,
 *	@flags is 0 or the errno it ended with
 * @KVMM_EVENT_GIVEN_BACK: @value frames were given back to the system
 * @KVMM_NR_EVENTS: number of types
 */
enum kvmm_event_type {
	KVMM_EVENT_LOST,
	KVMM_EVENT_PRESSURE,
	KVMM_EVENT_CHUNK_WANTED,
	KVMM_EVENT_EVICTED,
	KVMM_EVENT_PURGED,
	KVMM_EVENT_DEGRADED,
	KVMM_EVENT_POPULATED,
	KVMM_EVENT_GIVEN_BACK,
	KVMM_NR_EVENTS,
};

/**
 * struct kvmm_event - what read() on a client returns, any number of them
 * @type: enum kvmm_event_type
 * @flags: as the type says, else 0
 * @time_ms: when, in the pool's time
 * @handle: the block, or 0
 * @value: as the type says
 * @key: the block's key, or zero
 */
struct kvmm_event {
	__u32 type;
	__u32 flags;
	__aligned_u64 time_ms;
	__aligned_u64 handle;
	__aligned_u64 value;
	__u8 key[KVMM_KEY_LEN];
};

/**
 * struct kvmm_events - choose what to be told of (KVMM_EVENTS); any bound
 * client
 * @size: sizeof(struct kvmm_events)
 * @flags: 0
 * @mask: bit N: enum kvmm_event_type N; 0: nothing more
 * @count: events the queue has room for, 1 to KVMM_MAX_EVENTS; 0: 256
 * @__reserved: 0
 *
 * Replaces the choice made before, and empties the queue.  read() takes whole
 * events, as many as there are and fit (-EINVAL: not even one fits; -ENOTCONN:
 * nothing was chosen); it waits for the first one unless O_NONBLOCK is set.
 * poll() has POLLIN while there are events, and POLLHUP when the pool was
 * destroyed; read() is then 0, when the queue is empty.  What finds the queue
 * full is counted, and told as KVMM_EVENT_LOST once there is room, where the
 * lost events would have been.  Each event is read once, by whichever of the
 * file's readers comes first.
 * Errors: -EINVAL, -ENOMEM, -EUSERS (KVMM_EVENT_EVICTED or KVMM_EVENT_PURGED,
 * which KVMM_MAX_LISTENERS clients of a pool can choose).
 */
struct kvmm_events {
	__u32 size;
	__u32 flags;
	__aligned_u64 mask;
	__u32 count;
	__u32 __reserved;
};

/* kvmm_export.flags */
#define KVMM_EXPORT_RDONLY	(1U << 0)	/* nobody writes through it */

/**
 * struct kvmm_export - memory of frames as a dma-buf (KVMM_EXPORT); any bound
 * client, read-only ones with KVMM_EXPORT_RDONLY
 * @size: sizeof(struct kvmm_export)
 * @flags: KVMM_EXPORT_RDONLY or 0
 * @first: first frame
 * @count: frames, at least 1; all of them must be online
 * @fd: out: the dma-buf, with O_CLOEXEC
 * @__reserved: 0
 *
 * For DRM (PRIME) and RDMA.  The frames keep their memory until the last
 * reference to the dma-buf is gone, also when the pool is destroyed before;
 * what is in them is stable only for blocks that are pinned, as in a mapping.
 * A buffer with KVMM_EXPORT_RDONLY can be mapped PROT_READ, and by devices that
 * say that they only read (DMA_TO_DEVICE); importers that map memory for both
 * directions, as most DRM drivers do, get -EACCES.
 * Errors: -EINVAL, -EAGAIN (a frame is not online), -EBUSY (a chunk is on its
 * way out), -EHWPOISON (a memory error has struck a frame), -EACCES, -EMFILE,
 * -EUSERS (too many), -ENOMEM, -EINTR, -EOPNOTSUPP (the kernel has no dma-buf).
 */
struct kvmm_export {
	__u32 size;
	__u32 flags;
	__u32 first;
	__u32 count;
	__s32 fd;
	__u32 __reserved;
};

/* kvmm_swap_cmd.flags */
#define KVMM_SWAP_ONE		(1U << 0)	/* @addr is the handle itself */
#define KVMM_SWAP_DROP		(1U << 1)	/* out: give up the frame after */
#define KVMM_SWAP_PIN		(1U << 2)	/* in: pin what comes in */

/**
 * struct kvmm_swap_cmd - what to move, for the ioctls and for io_uring
 * @addr: user address of @count struct kvmm_block_ref, of which io_uring reads
 *	the handles when the command is issued and writes nothing; with
 *	KVMM_SWAP_ONE a handle
 * @count: blocks, 1 to KVMM_MAX_BATCH; 1 with KVMM_SWAP_ONE
 * @flags: KVMM_SWAP_*
 *
 * For io_uring: IORING_OP_URING_CMD on the client's file, this struct in the
 * 16 bytes of sqe->cmd, KVMM_URING_SWAP_OUT or KVMM_URING_SWAP_IN in
 * sqe->cmd_op.  cqe->res is the number of blocks that are where they were
 * asked to be, or -errno where that is none; KVMM_QUERY tells of each.
 *
 * Swap-out writes RESIDENT blocks, pinned ones too; a CLEAN block is done
 * already.  With KVMM_SWAP_DROP an unpinned block then gives up its frame.
 * Entry errors: -ESTALE, -EBUSY (FILLING or READING), -ENOSPC (no slot),
 * -EOPNOTSUPP (no area), -EIO.
 *
 * Swap-in reads SWAPPED blocks, and joins a read in flight; a block in memory
 * is done already.  With KVMM_SWAP_PIN each block that is in memory at the end
 * carries one more pin of the caller's, and one that failed does not.
 * Entry errors: -ESTALE (also: the data is lost), -EAGAIN, -ENOSPC (no frame
 * can be had), -ENOBUFS, -EBUSY (FILLING).
 *
 * With -ESTALE all pins on the block are gone, whoever had them.  Its key may
 * be a hit still, with another handle: where a memory error struck the frame that
 * it was being read into.
 */
struct kvmm_swap_cmd {
	__aligned_u64 addr;
	__u32 count;
	__u32 flags;
};

/**
 * struct kvmm_swap - synchronous twin of the io_uring commands (KVMM_SWAP_OUT:
 * writers, KVMM_SWAP_IN: any bound client)
 * @size: sizeof(struct kvmm_swap)
 * @flags: 0
 * @cmd: as for io_uring; the refs' frame and result are written
 * @done: out: entries whose result is not an error
 * @result: out: with KVMM_SWAP_ONE the entry's result
 *
 * Waits for the I/O.  A signal does not cut it short: it ends with the device,
 * or at the deadline.  All references are read, and written back as they were,
 * before the first block is touched.
 */
struct kvmm_swap {
	__u32 size;
	__u32 flags;
	struct kvmm_swap_cmd cmd;
	__u32 done;
	__s32 result;
};

#define KVMM_IOCTL_TYPE		0xbd

#define KVMM_INFO		_IO(KVMM_IOCTL_TYPE, 0x00) /* kvmm_info */
#define KVMM_POOL_CREATE	_IO(KVMM_IOCTL_TYPE, 0x01) /* kvmm_pool_create */
#define KVMM_POOL_OPEN		_IO(KVMM_IOCTL_TYPE, 0x02) /* kvmm_pool_open */
#define KVMM_POOL_DESTROY	_IO(KVMM_IOCTL_TYPE, 0x03) /* kvmm_pool_destroy */
#define KVMM_POOL_LIST		_IO(KVMM_IOCTL_TYPE, 0x04) /* kvmm_pool_list */
#define KVMM_POOL_RESET		_IO(KVMM_IOCTL_TYPE, 0x05) /* kvmm_pool_reset */
#define KVMM_POOL_STAT		_IO(KVMM_IOCTL_TYPE, 0x06) /* kvmm_pool_stat */
#define KVMM_POOL_CLOCK		_IO(KVMM_IOCTL_TYPE, 0x07) /* kvmm_pool_clock */
#define KVMM_POPULATE		_IO(KVMM_IOCTL_TYPE, 0x08) /* kvmm_populate */
#define KVMM_SWAP_ATTACH	_IO(KVMM_IOCTL_TYPE, 0x09) /* kvmm_swap_attach */
#define KVMM_SWAP_DETACH	_IO(KVMM_IOCTL_TYPE, 0x0a) /* kvmm_swap_detach */
#define KVMM_ALLOC		_IO(KVMM_IOCTL_TYPE, 0x10) /* kvmm_alloc */
#define KVMM_PUBLISH		_IO(KVMM_IOCTL_TYPE, 0x11) /* kvmm_publish */
#define KVMM_LOOKUP		_IO(KVMM_IOCTL_TYPE, 0x12) /* kvmm_lookup */

/**
 * KVMM_TOUCH: the blocks count as used now (kvmm_batch; any bound client).
 * Given in prefix order: the first becomes the youngest, each further one is
 * just older than the one before it.  Result: 0 or -ESTALE; frame is set.
 */
#define KVMM_TOUCH		_IO(KVMM_IOCTL_TYPE, 0x13)

/**
 * KVMM_PIN: hold blocks in memory (kvmm_batch; any bound client).  Counts: each
 * pin wants its unpin.  A FILLING block may be pinned by writers that know its
 * handle.  Result: 0; -ESTALE; -EAGAIN (swapped, or being read: swap it in);
 * -ENOBUFS; -EACCES (FILLING, read-only client).
 */
#define KVMM_PIN		_IO(KVMM_IOCTL_TYPE, 0x14)

/**
 * KVMM_UNPIN: drop one pin of this client's (kvmm_batch; any bound client).  A
 * FILLING block that loses its last pin is freed.  Result: 0; -ESTALE; -EINVAL
 * (this client has no pin on it).
 */
#define KVMM_UNPIN		_IO(KVMM_IOCTL_TYPE, 0x15)

/**
 * KVMM_DROP: forget blocks (kvmm_batch; writers).  The key misses at once;
 * memory and slot follow when the last pin falls and I/O has ended.  Result: 0
 * or -ESTALE; -EACCES: FILLING, and not pinned by this client.
 */
#define KVMM_DROP		_IO(KVMM_IOCTL_TYPE, 0x16)

/**
 * KVMM_QUERY: where blocks are (kvmm_batch; any bound client).  Touches
 * nothing.  Result: enum kvmm_state or -ESTALE; frame is set.  A block that can't
 * be found any more (dropped, late, of an old epoch) is told of while pinned.
 */
#define KVMM_QUERY		_IO(KVMM_IOCTL_TYPE, 0x17)

#define KVMM_KEYS		_IO(KVMM_IOCTL_TYPE, 0x18) /* kvmm_keys */
#define KVMM_REQUEST_END	_IO(KVMM_IOCTL_TYPE, 0x19) /* kvmm_request_end */
#define KVMM_HINT		_IO(KVMM_IOCTL_TYPE, 0x1a) /* kvmm_hint */
#define KVMM_RECLAIM		_IO(KVMM_IOCTL_TYPE, 0x1b) /* kvmm_reclaim */
#define KVMM_SWAP_OUT		_IO(KVMM_IOCTL_TYPE, 0x1c) /* kvmm_swap */
#define KVMM_SWAP_IN		_IO(KVMM_IOCTL_TYPE, 0x1d) /* kvmm_swap */
#define KVMM_LEASE		_IO(KVMM_IOCTL_TYPE, 0x1e) /* kvmm_lease */
#define KVMM_EVENTS		_IO(KVMM_IOCTL_TYPE, 0x1f) /* kvmm_events */
#define KVMM_EXPORT		_IO(KVMM_IOCTL_TYPE, 0x20) /* kvmm_export */

/* io_uring: sqe->cmd_op of IORING_OP_URING_CMD, struct kvmm_swap_cmd in cmd. */
#define KVMM_URING_SWAP_OUT	0x01
#define KVMM_URING_SWAP_IN	0x02

#endif /* _UAPI_LINUX_KVMM_H */
