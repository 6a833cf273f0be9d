/* SPDX-License-Identifier: MIT */
/*
 * The user backend: pools in this process, around the core that kvmm.ko uses
 * too.
 *
 * backend_user.c		opening; a pool's clock and counters
 * backend_user_pool.c		how pools and their clients begin and end
 * backend_user_arena.c		memory: memfd, huge pages
 * backend_user_fill.c		populates in progress, in the background too
 * backend_user_block.c		commands on blocks, 64 to a hold of the lock
 * backend_user_area.c		the swap area: checks, claim, attach, detach
 * backend_user_io.c		requests: taken, started, waited for, finished
 * backend_user_uring.c		io_uring moves the bytes
 * backend_user_threads.c	threads do, where io_uring is forbidden
 * backend_user_swap.c		swap-out and swap-in
 * backend_user_reclaim.c	making room; allocation that waits for it
 * backend_user_event.c		events
 *
 * Locks, outermost first: user_backend.lock, user_pool.populate,
 * user_pool.lock, user_area.lock.  Nothing waits, moves bytes or calls the
 * system with user_pool.lock held, but for the eventfd of a client's queue when
 * that stops being empty, or becomes so.
 */
#ifndef LIBKVMM_BACKEND_USER_H
#define LIBKVMM_BACKEND_USER_H

#include "backend.h"

#include <core/core.h>
#include <pthread.h>

/* Moves in flight for one area. */
#define USER_DEPTH		128
/* io_uring takes registered buffers of at most this size. */
#define USER_CHUNK_SHIFT	30

struct user_area;
struct user_crew;

/**
 * struct user_fill - a populate in progress; under user_pool.lock
 * @next: another one
 * @left: frames that it has to do
 * @cancelled: it is to end
 */
struct user_fill {
	struct user_fill *next;
	uint32_t left;
	bool cancelled;
};

/**
 * struct user_backend - kvmm.priv
 * @lock: guards the rest
 * @pools: by age, oldest first
 * @nr_pools: how many
 * @next_id: for the next pool
 * @threads: an area is or would be driven by threads; atomic
 */
struct user_backend {
	pthread_mutex_t lock;
	struct user_pool *pools;
	unsigned int nr_pools;
	uint64_t next_id;
	bool threads;
};

/**
 * struct user_pool - one pool
 * @kv: its owner
 * @next: younger pool; under user_backend.lock
 * @id: grows from pool to pool
 * @name: NUL-terminated
 * @mode: permission bits
 * @uid: creator's effective uid
 * @gid: creator's effective gid
 * @flags: KVMM_POOL_MANUAL_CLOCK
 * @block_shift: log2 of the block size
 * @users: clients and, while it is listed, the list; user_backend.lock
 * @arena: writable mapping of all of it, 2 MiB aligned
 * @arena_bytes: its length
 * @chunk_frames: frames of a chunk, for leases
 * @arena_fd: sealed memfd
 * @huge: whole huge pages can be had; atomic, falls once
 * @nr_huge: 2 MiB pages that were made; atomic
 * @populate: read: memory is being brought in; write: taken back
 * @chunk_online: frames online in each piece of USER_CHUNK_SHIFT; atomic
 * @lock: guards all below, the core included
 * @core: the bookkeeping
 * @manual_now: time of a manual clock, ms
 * @gone: destroyed while clients were bound
 * @area: the swap area or NULL
 * @changing: an attach or detach is under way
 * @io_seq: grows whenever I/O has ended or a request became free
 * @io_cond: the same, for those who sleep
 * @listeners: clients that chose to be told of something
 * @event_mask: what any of them chose
 * @nr_block_listeners: how many chose what comes by the block
 * @events: events queued
 * @events_lost: events that a queue had no room for
 * @fills: populates in progress
 * @frames_populating: what they have left
 * @fill_cond: one of them has ended, or the pool is gone
 * @crew: that of the background; NULL: none since the last was joined
 * @crew_nr: how many there were
 * @crew_err: how the last one ended
 */
struct user_pool {
	struct kvmm *kv;
	struct user_pool *next;
	uint64_t id;
	char name[KVMM_NAME_LEN];
	unsigned int mode;
	unsigned int uid;
	unsigned int gid;
	unsigned int flags;
	unsigned int block_shift;
	unsigned int users;

	unsigned char *arena;
	size_t arena_bytes;
	unsigned int chunk_frames;
	int arena_fd;
	bool huge;
	unsigned int nr_huge;
	pthread_rwlock_t populate;
	uint32_t *chunk_online;

	pthread_mutex_t lock;
	struct kvmm_core core;
	uint64_t manual_now;
	bool gone;
	struct user_area *area;
	bool changing;
	uint64_t io_seq;
	pthread_cond_t io_cond;
	struct user_client *listeners;
	uint64_t event_mask;
	unsigned int nr_block_listeners;
	uint64_t events;
	uint64_t events_lost;
	struct user_fill *fills;
	uint64_t frames_populating;
	pthread_cond_t fill_cond;
	struct user_crew *crew;
	uint64_t crew_nr;
	int crew_err;
};

/**
 * struct user_queue - what a client is to be told; under user_pool.lock
 * @mask: bit N: enum kvmm_event_type N was chosen
 * @ring: the events; NULL: nothing is chosen
 * @size: room in @ring
 * @tail: where the oldest is
 * @nr: how many
 * @lost: those that found @ring full; not 0 only while it is
 * @lost_ms: time of the last of them
 * @fd: an eventfd, readable while there are events and when the pool is gone;
 *	-1: none yet
 * @signalled: it is readable
 */
struct user_queue {
	uint64_t mask;
	struct kvmm_event *ring;
	uint32_t size;
	uint32_t tail;
	uint32_t nr;
	uint64_t lost;
	uint64_t lost_ms;
	int fd;
	bool signalled;
};

/**
 * struct user_client - what a struct kvmm_pool is here
 * @pool: the public part
 * @up: the pool
 * @id: the core's name for it
 * @queue: its events
 * @next_listener: in the pool's listeners; under user_pool.lock
 * @crew_seen: the last crew that it started or saw at work; the same
 */
struct user_client {
	struct kvmm_pool pool;
	struct user_pool *up;
	uint32_t id;
	struct user_queue queue;
	struct user_client *next_listener;
	uint64_t crew_seen;
};

/**
 * struct io_group - the moves of one command; under user_pool.lock
 * @pending: started and not finished
 * @refs: entry N's result is set when its move has ended; may be NULL
 * @failed: moves that failed
 */
struct io_group {
	uint32_t pending;
	struct kvmm_block_ref *refs;
	uint32_t failed;
};

/**
 * struct io_req - one move on its way
 * @next: in whatever list it is in
 * @io: what to move, as the core said
 * @group: whose it is; NULL: nobody waits for it
 * @index: entry of the group's refs
 * @started: when, by user_mono_us()
 * @bytes: to move, a multiple of the area's alignment
 * @moved: of those, done
 * @crc: checksum of the frame's data, set by finishing
 * @write: to the area
 * @busy: handed out by the core and not done; under user_pool.lock
 * @late: of those, did not end in time, nobody waits for it any more; changes
 *	under user_pool.lock and user_area.lock
 * @err: how it ended
 */
struct io_req {
	struct io_req *next;
	struct kvmm_io io;
	struct io_group *group;
	uint32_t index;
	uint64_t started;
	uint32_t bytes;
	uint32_t moved;
	uint32_t crc;
	bool write;
	bool busy;
	bool late;
	int err;
};

/** struct io_list - requests in a row; @nr of them from @head to @tail */
struct io_list {
	struct io_req *head;
	struct io_req *tail;
	uint32_t nr;
};

/**
 * struct io_engine - who moves the bytes
 * @name: for kvmm_io_name()
 * @init: make it ready for an area whose fields are set
 * @exit: nothing is in flight
 * @start: take requests over
 * @wait: come back when requests may have ended: it has finished some, or
 *	io_seq is not @seq any more; @want of them where it has the choice; or
 *	at @until, by user_mono_us(), where that is not 0.  Something is in
 *	flight or being finished
 * @poll: finish what has ended, never wait
 */
struct io_engine {
	const char *name;
	int (*init)(struct user_area *a);
	void (*exit)(struct user_area *a);
	void (*start)(struct user_area *a, struct io_list *list);
	void (*wait)(struct user_area *a, uint64_t seq, uint32_t want,
		     uint64_t until);
	void (*poll)(struct user_area *a);
};

/**
 * struct user_area - an attached swap area
 * @up: its pool
 * @fd: open with O_DIRECT, holding the claim
 * @shared: @fd is another name of the caller's open file
 * @claimed: where it is, that open file is this area's alone
 * @offset: where in the file it starts
 * @nr_slots: slots in use
 * @align: of lengths on the medium, bytes
 * @checksums: data is checked when read back
 * @engine: who moves the bytes
 * @priv: the engine's own
 * @timeout_us: how long one move may take
 * @due: no move is late before, by user_mono_us(); 0: none is under way; under
 *	user_pool.lock, as @refs
 * @refs: commands that use it
 * @lock: guards what is below, and the engine's state
 * @nr_late: requests that are late
 * @free: requests that nobody uses
 * @reqs: all of them
 */
struct user_area {
	struct user_pool *up;
	int fd;
	bool shared;
	bool claimed;
	uint64_t offset;
	uint32_t nr_slots;
	uint32_t align;
	bool checksums;
	const struct io_engine *engine;
	void *priv;
	uint64_t timeout_us;
	uint64_t due;
	uint32_t refs;

	pthread_mutex_t lock;
	uint32_t nr_late;
	struct io_list free;
	struct io_req reqs[USER_DEPTH];
};

static inline struct user_client *user_client(struct kvmm_pool *pool)
{
	return (struct user_client *)pool;
}

static inline struct user_backend *user_backend(const struct kvmm *kv)
{
	return kv->priv;
}

/* backend_user.c */

/** user_mono_us() - CLOCK_MONOTONIC, us */
uint64_t user_mono_us(void);

/** user_mono_ms() - CLOCK_MONOTONIC, ms */
uint64_t user_mono_ms(void);

/** user_now() - the pool's time; @up->lock is held */
uint64_t user_now(const struct user_pool *up);

/* backend_user_pool.c */
int user_pool_create(struct kvmm *kv, struct kvmm_pool_create *arg,
		     struct kvmm_pool **out);
int user_pool_open(struct kvmm *kv, struct kvmm_pool_open *arg,
		   struct kvmm_pool **out);
void user_pool_close(struct kvmm_pool *pool);
int user_pool_destroy(struct kvmm *kv, struct kvmm_pool_destroy *arg);
long user_pool_list(struct kvmm *kv, uint64_t *cursor,
		    struct kvmm_pool_entry *e, unsigned int n);
/** user_pool_put() - one user less, and the list of pools is one, too */
void user_pool_put(struct user_pool *up);
/** user_pool_end() - end a pool that is not listed any more */
void user_pool_end(struct user_pool *up);

/* backend_user_arena.c */
int user_arena_init(struct user_pool *up);
void user_arena_exit(struct user_pool *up);
int user_room(struct kvmm_pool *pool);
/**
 * user_arena_fill() - memory for frames that become online, all or none
 *
 * A part of them may be online already.
 */
int user_arena_fill(struct user_pool *up, unsigned int first,
		    unsigned int count);
/** user_chunk_bytes() - length of piece @chunk, if all its frames are online */
size_t user_chunk_bytes(const struct user_pool *up, uint32_t chunk);

/* backend_user_fill.c */
int user_populate(struct kvmm_pool *pool, unsigned int first,
		  unsigned int count, unsigned int *done);
int user_populate_start(struct kvmm_pool *pool, unsigned int first,
			unsigned int count, unsigned int threads);
int user_populate_wait(struct kvmm_pool *pool, int timeout_ms);
int user_populate_cancel(struct kvmm_pool *pool);
/** user_fill_drain() - no thread brings memory in any more: a pool is gone */
void user_fill_drain(struct user_pool *up);

/* backend_user_block.c */
long user_publish(struct kvmm_pool *pool, struct kvmm_publish_entry *e,
		  unsigned int n, unsigned int flags);
long user_lookup(struct kvmm_pool *pool, const uint8_t *keys,
		 struct kvmm_block_ref *refs, unsigned int n,
		 unsigned int flags);
long user_batch(struct kvmm_pool *pool, unsigned int cmd,
		struct kvmm_block_ref *refs, unsigned int n);
long user_keys(struct kvmm_pool *pool, uint64_t *cursor,
	       struct kvmm_key_entry *e, unsigned int n);
long user_request_end(struct kvmm_pool *pool, uint64_t handle,
		      unsigned int output_tokens);
long user_hint(struct kvmm_pool *pool, uint64_t handle, unsigned int permille,
	       unsigned int delay_ms);

/* backend_user_area.c */
int user_swap_attach(struct kvmm_pool *pool, struct kvmm_swap_attach *arg);
int user_swap_detach(struct kvmm_pool *pool, unsigned int flags);
/** user_area_end() - let go of the area of a pool that nobody uses */
void user_area_end(struct user_pool *up);
/**
 * user_area_get() - use the area; @up->lock is held
 * @held: what the command holds already, or NULL
 *
 * Return: the area, with a reference if @held was NULL; NULL without an area.
 * A command calls it in the same hold of the lock in which the core hands it
 * a move.
 */
struct user_area *user_area_get(struct user_pool *up, struct user_area *held);
/** user_area_put() - end of use; @a may be NULL */
void user_area_put(struct user_area *a);

/* backend_user_io.c */
void io_list_add(struct io_list *list, struct io_req *req);
struct io_req *io_list_take(struct io_list *list);
/**
 * io_take() - get requests, at most @most
 * @least: get none when there are fewer
 */
uint32_t io_take(struct user_area *a, struct io_list *list, uint32_t least,
		 uint32_t most);
/**
 * io_take_wait() - at least @least, at most KVMM_CORE_BATCH; waits for them
 *
 * Return: false: too many are late, there won't be as many for now; the area is
 * degraded then.
 */
bool io_take_wait(struct user_area *a, struct io_list *list, uint32_t least);
/** io_give_back() - requests that were not needed */
void io_give_back(struct user_area *a, struct io_list *list);
/** io_prepare() - fill @req->io's companions */
void io_prepare(struct user_area *a, struct io_req *req, bool write,
		struct io_group *group, uint32_t index);
/** io_finish() - tell the core, and whoever waits, that requests have ended */
void io_finish(struct user_area *a, struct io_list *list);
/**
 * io_wait() - the engine's wait(), and what is late by then is said so
 * @seq: io_seq as it was when there was something to wait for
 */
void io_wait(struct user_area *a, uint64_t seq, uint32_t want);
/** io_poll() - the same without waiting */
void io_poll(struct user_area *a);
/** io_group_wait() - until all of a group's moves have ended */
void io_group_wait(struct user_area *a, struct io_group *group);
/** io_sync() - move the bytes of @req here and now; sets its err */
void io_sync(struct user_area *a, struct io_req *req);
/** io_seq_wait() - sleep until io_seq is not @seq, or until @until if not 0 */
void io_seq_wait(struct user_pool *up, uint64_t seq, uint64_t until);
/** io_crc32c() - CRC32C as in iSCSI */
uint32_t io_crc32c(const void *data, uint32_t bytes);

extern const struct io_engine io_engine_uring;
extern const struct io_engine io_engine_threads;
/** io_uring_probe() - 0, or why io_uring can't be used here */
int io_uring_probe(void);

/* backend_user_swap.c */
long user_swap_out(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		   unsigned int n, unsigned int flags);
long user_swap_in(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		  unsigned int n, unsigned int flags);

/* backend_user_reclaim.c */
long user_alloc(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		unsigned int n, unsigned int nr_parts, unsigned int timeout_ms);
int user_reclaim(struct kvmm_pool *pool, struct kvmm_reclaim *arg);
/**
 * user_make_room() - write out until @want frames are free or can be had
 *
 * One lot of writes at a time.  Return: true if anything was done or has
 * ended, so that trying again is worth it.
 */
bool user_make_room(struct user_pool *up, uint32_t want);

/* backend_user_event.c */
void user_event_init(struct user_queue *q);
/** user_event_exit() - a client is told nothing more, and is not polled */
void user_event_exit(struct user_client *cl);
/** user_event_hangup() - a pool is gone: whoever waits finds out; locked */
void user_event_hangup(struct user_pool *up);
/** user_event() - tell all clients of a pool that chose @type; locked */
void user_event(struct user_pool *up, uint32_t type, uint64_t value);
/** user_event_flags() - the same with flags */
void user_event_flags(struct user_pool *up, uint32_t type, uint64_t value,
		      uint32_t flags);
/** user_note() - kvmm_core_config.note */
void user_note(void *ctx, enum kvmm_core_note what, uint64_t handle,
	       const struct kvmm_block *b);
int user_events(struct kvmm_pool *pool, uint64_t mask, unsigned int count);
int user_event_fd(struct kvmm_pool *pool);
long user_event_read(struct kvmm_pool *pool, struct kvmm_event *events,
		     unsigned int n);

#endif /* LIBKVMM_BACKEND_USER_H */
