/* SPDX-License-Identifier: MIT */
/*
 * What the high door's files share: an engine, its jobs and its threads.
 *
 *	caller		kvmm_offload(), kvmm_restore(): a job, an event in the
 *			caller's stream
 *	dispatcher	looks up, allocates, puts copies into a lane's stream;
 *			no other thread does.  Deadlines.  Never waits for I/O
 *	io threads	swap in, wait for frames
 *	lanes		one each way: wait for the copies, then publish or unpin
 *	hook thread	reads the pool's events, where hooks ask for it
 *
 * A block of a job is OPEN, then WANT (its frame is not there yet), IO (an io
 * thread sees to it), HAVE (pinned), SENT (pinned, its copy is queued), END; or
 * DROP (pinned, and no longer wanted) before that.  Only the dispatcher takes
 * blocks from HAVE on, and only it ends blocks that others see to.
 *
 * Locks: engine->lock guards all jobs, queues and figures; it is never held
 * over a call to the pool or the device, except where an event is taken from
 * the cache.  reg_lock (over registration) and the filter's lock are taken
 * alone.
 */
#ifndef LIBKVMM_ENGINE_H
#define LIBKVMM_ENGINE_H

#include "layout.h"

#include <pthread.h>
#include <sys/queue.h>

#define NR_WAYS		3
/* Copies in one call of the shim. */
#define COPY_LOT	64
/* Runs in one call, or those of one block where it has more. */
#define RUN_LOT		4096
/* Events that are kept to be used again. */
#define EVENT_CACHE	1024

enum blk {
	BLK_OPEN,
	BLK_WANT,
	BLK_IO,
	BLK_HAVE,
	BLK_SENT,
	BLK_DROP,
	BLK_END,
};

/* The part of a job's number that is its place in the table. */
#define SLOT_BITS	16

struct job;
TAILQ_HEAD(job_list, job);

/**
 * struct job - blocks on their way
 * @eng: the engine
 * @id: its number; the low 16 bits are the place in the table
 * @refs: the table, queues and threads that hold it
 * @out: an offload
 * @flags: KVMM_JOB_*
 * @n: blocks
 * @last_tokens: of the last block
 * @tag: the caller's
 * @keys: may be NULL
 * @ids: GPU blocks
 * @ref: handle, frame and result of each block
 * @st: enum blk of each
 * @pick: room for numbers of blocks; the dispatcher's
 * @by_handle: the caller gave handles
 * @req: metadata of an offload; its pointers are not used
 * @deadline_ns: of a restore, 0: none
 * @start: recorded in the caller's stream, or NULL
 * @wait: NULL, or the caller's event
 * @group_wait: NULL, or the caller's events of groups, entries may be NULL
 * @ev: an event for each group
 * @marked: groups whose event was recorded
 * @state: enum kvmm_job_state
 * @stop: 0, or why nothing more is to be done
 * @status: once done
 * @publishing: it is too late to cancel
 * @started: the dispatcher has seen it
 * @fenced: the lane waits for @start
 * @nr_sends: times copies were put into the lane
 * @nr_sent: blocks SENT
 * @skip: blocks before this one are the caller's
 * @prefix: see struct kvmm_job_info
 * @bytes: copied
 * @want_bytes: of it, counted in the engine's want_bytes
 * @submit_ns: when the copies were put into the lane
 * @ended: kvmm_job_end() was called
 * @told: is not in the done list (any more)
 * @fd: eventfd, or -1
 * @in_ready: queued for the dispatcher
 * @in_io: queued for io threads
 */
struct job {
	struct kvmm_engine *eng;
	uint64_t id;
	unsigned int refs;
	bool out;
	unsigned int flags;
	unsigned int n;
	unsigned int last_tokens;
	uint64_t tag;
	uint8_t *keys;
	uint32_t *ids;
	struct kvmm_block_ref *ref;
	uint8_t *st;
	unsigned int *pick;
	bool by_handle;
	struct kvmm_transfer req;
	uint64_t deadline_ns;
	struct kvmm_gpu_event *start;
	struct kvmm_gpu_event *wait;
	struct kvmm_gpu_event **group_wait;
	struct kvmm_gpu_event **ev;
	unsigned int marked;
	enum kvmm_job_state state;
	int stop;
	int status;
	bool publishing;
	bool started;
	bool fenced;
	unsigned int nr_sends;
	unsigned int nr_sent;
	unsigned int skip;
	unsigned int prefix;
	uint64_t bytes;
	uint64_t want_bytes;
	uint64_t submit_ns;
	bool ended;
	bool told;
	int fd;
	bool in_ready;
	bool in_io;

	TAILQ_ENTRY(job) ready_link;
	TAILQ_ENTRY(job) io_link;
	TAILQ_ENTRY(job) lane_link;
	TAILQ_ENTRY(job) done_link;
};

/**
 * struct lane - copies in one direction, in order
 * @eng: the engine
 * @stream: ours
 * @way: KVMM_WAY_OUT or KVMM_WAY_IN
 * @thread: waits for the copies
 * @more: signalled when @queue has something
 * @queue: jobs all of whose copies are in @stream
 * @idle_ns: when the last copy that was waited for had ended
 */
struct lane {
	struct kvmm_engine *eng;
	struct kvmm_gpu_stream *stream;
	enum kvmm_way way;
	pthread_t thread;
	pthread_cond_t more;
	struct job_list queue;
	uint64_t idle_ns;
};

/**
 * struct io_thread - waits for the pool
 * @eng: the engine
 * @thread: the thread
 * @since_ns: a read is under way since then; 0: none is
 * @bytes: of it
 */
struct io_thread {
	struct kvmm_engine *eng;
	pthread_t thread;
	uint64_t since_ns;
	uint64_t bytes;
};

/**
 * struct way_stat - transfers seen, older ones counting less
 * @w: sum of weights
 * @x: of bytes
 * @y: of microseconds
 * @xx: of squares
 * @xy: of products
 * @samples: how many
 */
struct way_stat {
	double w, x, y, xx, xy;
	uint64_t samples;
};

/**
 * struct disk_state - how far the disk can be trusted
 * @bad_until_ns: after a failure: not used until then
 * @backoff_ns: how long the next failure keeps it unused
 * @trial: a few blocks may be tried
 */
struct disk_state {
	uint64_t bad_until_ns;
	uint64_t backoff_ns;
	bool trial;
};

struct filter;

struct kvmm_engine {
	struct kvmm_pool *pool;
	struct kvmm_gpu *gpu;
	bool host;
	struct lay lay;
	size_t block_size;
	unsigned int part, nr_parts;
	struct kvmm_hooks hooks;
	struct filter *filter;

	pthread_mutex_t reg_lock;
	bool elastic;
	uint8_t *piece_done;
	uint8_t *piece_wanted;
	unsigned int *piece_users;
	unsigned int piece_frames;
	unsigned int nr_pieces;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_cond_t work;
	pthread_cond_t io_work;
	struct job **table;
	unsigned int max_jobs;
	unsigned int next_slot;
	unsigned int nr_jobs;
	unsigned int nr_timed;
	uint64_t serial;
	struct job_list ready;
	struct job_list io_queue;
	struct job_list done;
	struct kvmm_gpu_event **events;
	unsigned int nr_events;
	bool stop;
	bool lost;
	int fd;

	pthread_t dispatcher;
	bool have_dispatcher;
	struct lane lane[2];
	unsigned int nr_lanes;
	struct io_thread *io;
	unsigned int nr_io;
	struct kvmm_gpu_copy *copies;
	struct kvmm_gpu_run *runs;
	size_t max_runs;

	bool have_cost;
	struct kvmm_cost cost;
	struct way_stat stat[NR_WAYS];
	struct disk_state disk;
	uint64_t want_bytes;

	pthread_t hook_thread;
	bool have_hook_thread;
	int hook_stop_fd;
};

/* engine.c */
uint64_t eng_now(void);
int eng_open_on(struct kvmm_pool *pool, const struct kvmm_engine_opts *opts,
		const struct kvmm_gpu_opts *gpu_opts,
		struct kvmm_engine **out);
/* device.c */

/** eng_gpu_opts() - which device; 0 or -EINVAL */
int eng_gpu_opts(const struct kvmm_engine_opts *o, struct kvmm_gpu_opts *gpu);
/** eng_node_on() - see kvmm_device_node() */
int eng_node_on(struct kvmm *kv, const struct kvmm_gpu_opts *opts);

/* reach.c */
#define EVERY_CHUNK	UINT64_MAX
int reach_init(struct kvmm_engine *eng, bool lazy);
void reach_exit(struct kvmm_engine *eng);
/**
 * eng_reach() - make frames reachable for the device
 *
 * Of those whose result is not an error; where it can't be, the pin goes and
 * the result is the reason.  eng_reached() ends it.
 */
void eng_reach(struct kvmm_engine *eng, struct kvmm_block_ref *refs,
	       unsigned int n);
/** eng_reached() - no copy uses the frame any more */
void eng_reached(struct kvmm_engine *eng, unsigned int frame);
/** eng_unpin() - that, and drop the pins */
void eng_unpin(struct kvmm_engine *eng, struct kvmm_block_ref *refs,
	       unsigned int n);
/** eng_chunk_wanted() - the system wants it back */
void eng_chunk_wanted(struct kvmm_engine *eng, uint64_t chunk);

/* job.c, job_ask.c; those with _locked want the lock */
struct job *job_new(struct kvmm_engine *eng, const struct kvmm_transfer *req,
		    bool out, int *err);
int job_submit(struct job *job, uint64_t *id);
void job_put_locked(struct job *job);
void job_kick_locked(struct job *job);
void job_finish(struct job *job, int err);
void job_remove_locked(struct job *job);
void job_io_locked(struct job *job);
unsigned int job_leading(const struct job *job);
bool job_good(const struct job *job, unsigned int i);
unsigned int job_tokens(const struct job *job, unsigned int i);
size_t job_part_bytes(const struct job *job, unsigned int i);
void job_count_want_locked(struct job *job);
struct kvmm_gpu_event *event_get_locked(struct kvmm_engine *eng);

/* dispatch.c */
void *dispatcher_main(void *arg);
void *lane_main(void *arg);

/* offload.c */
void offload_start(struct job *job);
void offload_alloc(struct job *job);
int offload_publish(struct job *job);
long pin_given(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
	       unsigned int n, bool filling);

/* restore.c */
void restore_start(struct job *job);
void restore_read(struct io_thread *io, struct job *job);
/** restore_lot() - blocks that are read at a time */
unsigned int restore_lot(const struct kvmm_engine *eng);
void *io_main(void *arg);

/* plan.c */
void way_add(struct way_stat *stat, uint64_t bytes, double us);
struct kvmm_speed way_speed(const struct way_stat *stat, enum kvmm_way way);
void disk_result_locked(struct kvmm_engine *eng, bool good);

/* filter.c */
int filter_new(struct filter **out, const struct kvmm_filter *opts);
void filter_free(struct filter *f);
/** filter_keep() - offered: how many of @n keys, from the first on, to store */
unsigned int filter_keep(struct filter *f, const uint8_t *keys,
			 const struct kvmm_block_ref *refs, unsigned int n,
			 unsigned int position);
unsigned int filter_slower_than(const struct filter *f);

/* hooks.c */
int hooks_start(struct kvmm_engine *eng);
void hooks_stop(struct kvmm_engine *eng);

#endif /* LIBKVMM_ENGINE_H */
