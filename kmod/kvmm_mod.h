/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of kvmm.ko share: a pool, a client, the area, and the calls
 * between the files.  Moving blocks has a header of its own, swap.h.
 *
 * Lock order, outermost first; the comment above each struct says what each
 * lock protects:
 *
 *	kvmm_client.lock
 *	  kvmm_pools_lock
 *	    kvmm_pool.area_lock
 *	      kvmm_elastic_lock
 *	      kvmm_arena.unit[]
 *	        kvmm_arena.sem
 *	          kvmm_arena.turn
 *	          kvmm_pool.lock
 *	            kvmm_event_queue.lock
 *
 *	kvmm_event_queue.read
 *	  kvmm_pool.lock
 *
 * All but the innermost, a spinlock, are mutexes or semaphores; all are taken
 * in process context.  Interrupt
 * context sees only kvmm_pool.done_list.  kvmm_pool.lock is held for at most
 * KVMM_CORE_BATCH entries of the core, never over memory allocation, user
 * memory or I/O.
 */
#ifndef KVMM_MOD_H
#define KVMM_MOD_H

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/kobject.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/ktime.h>
#include <linux/llist.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/rwsem.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "core/core.h"

#define KVMM_UNIT_LOCKS		KVMM_MAX_WORKERS

/**
 * struct kvmm_arena - the memory of a pool: one shmem file
 * @mnt: private tmpfs mount, holds one reference
 * @file: the file, of the whole arena's size
 * @size: bytes
 * @sem: readers bring whole huge pages in, a writer smaller pieces; a writer
 *	also ends the arena
 * @turn: one thread tries the other nodes
 * @ino: number of the inode, by which nodes take turns; constant
 * @unit: serialise two threads that populate the same unit, by hash
 * @max_segs: most physically contiguous pieces of a frame that is online;
 *	written under the pool's lock
 *
 * Each frame that is online holds one reference to each folio it touches.
 */
struct kvmm_arena {
	struct vfsmount *mnt;
	struct file *file;
	u64 size;
	struct rw_semaphore sem;
	struct mutex turn;			/* the inode's number */
	unsigned long ino;
	struct mutex unit[KVMM_UNIT_LOCKS];	/* one thread a unit */
	unsigned int max_segs;
};

/**
 * struct kvmm_chunk - a chunk of the arena
 * @holds: leases on it
 * @going: units of it on their way out: no lease can be had
 * @wanted: asked back; without leases: to be given back soon
 */
struct kvmm_chunk {
	u16 holds;
	u16 going;
	bool wanted;
};

/**
 * struct kvmm_elastic - memory that a pool gives back and takes again
 * @node: in the list of pools that do so; kvmm_elastic_lock
 * @nr_chunks: constant
 * @chunk_frames: constant
 * @chunks: @nr_chunks of them
 * @nr_leased: chunks with leases
 * @nr_wanted: of those, asked back
 * @nr_released: asked back, and without leases now
 * @wish: kvmm_pressure_nr when chunks were asked back last
 * @gone: bit N: elastic frame N was given back and has no memory again
 * @nr_gone: such frames
 * @first_gone: none is before this one
 * @was: which frames of the unit at hand had memory; kvmm_elastic_lock
 * @known: pages that might be had, when last looked at; kvmm_elastic_lock
 * @idle_until: nothing was found last time: not to be asked before, jiffies
 * @again_after: memory is not taken again before, jiffies
 * @again: takes memory again
 * @given_back: frames given back so far
 * @taken_again: frames that had been given back and got memory again
 * @shrinks: times that memory was given back
 *
 * Under the pool's lock, but for what is said to be otherwise.
 */
struct kvmm_elastic {
	struct list_head node;
	u32 nr_chunks;
	u32 chunk_frames;
	struct kvmm_chunk *chunks;
	u32 nr_leased;
	u32 nr_wanted;
	u32 nr_released;
	unsigned int wish;
	unsigned long *gone;
	u32 nr_gone;
	u32 first_gone;
	unsigned long *was;
	unsigned long known;
	unsigned long idle_until;
	unsigned long again_after;
	struct work_struct again;
	u64 given_back;
	u64 taken_again;
	u64 shrinks;
};

/**
 * struct kvmm_export_call - KVMM_EXPORT on its way
 * @a: what the caller gave and gets
 * @file: the dma-buf, or NULL; it gets its descriptor when the caller was told
 */
struct kvmm_export_call {
	struct kvmm_export a;
	struct file *file;
};

struct kvmm_area;
struct kvmm_user;

/* What is counted by size, for each pool. */
enum kvmm_hist_id {
	KVMM_HIST_LATENCY_OUT,	/* us, of each block written */
	KVMM_HIST_LATENCY_IN,	/* us, of each block read back */
	KVMM_HIST_BYTES_OUT,	/* bytes, of each swap command that wrote */
	KVMM_HIST_BYTES_IN,	/* bytes, of each swap command that read */
	KVMM_HIST_ALLOC_WAIT,	/* us, of each alloc: without a frame */
	KVMM_NR_HISTS,
};

#define KVMM_HIST_BUCKETS	48

/**
 * struct kvmm_hist - how many values of each size there were
 * @bucket: 0: zeros; N: at least 2^(N-1), less than 2^N; the last: and more
 */
struct kvmm_hist {
	atomic64_t bucket[KVMM_HIST_BUCKETS];
};

static inline void kvmm_hist_add(struct kvmm_hist *h, u64 value)
{
	atomic64_inc(&h->bucket[min(fls64(value), KVMM_HIST_BUCKETS - 1)]);
}

/* Since @ns of ktime_get_ns(). */
static inline u64 kvmm_us_since(u64 ns)
{
	return div_u64(ktime_get_ns() - ns, NSEC_PER_USEC);
}

enum kvmm_pool_state {
	KVMM_POOL_NEW,		/* the name is taken, not to be found yet */
	KVMM_POOL_LIVE,
	KVMM_POOL_DYING,	/* the name is taken, not to be found any more */
};

/**
 * struct kvmm_writeback - background writeback of a pool, under its lock
 * @low: it begins below so many permille of the frames online, 0: never
 * @high: and ends there
 * @active: it has begun, and not come to @high
 * @inflight: its writes in flight
 * @outs: blocks that it has written
 * @work: its worker; never runs twice at once
 */
struct kvmm_writeback {
	u32 low;
	u32 high;
	bool active;
	u32 inflight;
	u64 outs;
	struct work_struct work;
};

/**
 * struct kvmm_pool - a pool
 * @node: in the list of pools, by @id; kvmm_pools_lock
 * @state: kvmm_pools_lock
 * @nr_bound: clients bound; kvmm_pools_lock
 * @ref: one for the list, one for each bound client
 * @id: never used twice; the cursor of KVMM_POOL_LIST
 * @name: constant, as all up to @kobj
 * @uid: owner
 * @user: the same, for what its pools may have
 * @gid: owner's group
 * @mode: permission bits
 * @policy: enum kvmm_policy
 * @block_shift: log2 of the block size
 * @manual_clock: time moves by KVMM_POOL_CLOCK only
 * @nodes: NUMA nodes that memory is to come from, 0: the local one
 * @nodes_prefer: ...and may come from others when they are full
 * @memcg: memory cgroup that its memory is charged to; holds one reference
 * @arena: its memory
 * @kobj: /sys/kernel/kvmm/pools/NAME
 * @kobj_gone: completed when sysfs has let go of @kobj
 * @area_lock: attaching and detaching, one at a time
 * @lock: protects what follows, and the core
 * @core: the bookkeeping
 * @elastic: giving memory back
 * @dead: destroyed: nothing below may be used, @core has no tables
 * @now_ms: the manual clock
 * @frames_misplaced: frames whose memory is not on @nodes
 * @fills: struct kvmm_fill: populates in progress
 * @fills_cancelled: of those, told to end; waited for on @wait
 * @frames_populating: frames that they still have to do
 * @has_crew: one of them is by workers; waited for on @wait
 * @area: the swap area or NULL; holds one reference
 * @inflight: struct kvmm_op by block index, from the core's decision to its
 *	done call
 * @nr_inflight: ops in @inflight
 * @ops: those that are not late, oldest first
 * @io_seq: done calls made; waited for on @wait
 * @wait: woken by done calls and by the end of the pool
 * @writeback: writing ahead of need
 * @clients: bound clients
 * @listeners: queues of those that chose to be told of something
 * @event_mask: what any of them chose
 * @nr_block_listeners: how many chose what comes by the block
 * @events: events queued
 * @events_lost: events that a queue had no room for
 * @exports: struct kvmm_export_mem by frames; outlives @core
 * @nr_exports: how many
 * @exports_left: they alone hold memory now
 * @hist: by enum kvmm_hist_id; no lock
 * @done_list: ops whose I/O ended, filled from any context
 * @done_work: the worker: makes the done calls; never runs twice at once
 * @late_work: wakes it up when the oldest op may be late
 * @look_for_late: tells it why
 * @end_work: the end of the pool
 * @ended: the name is free
 */
struct kvmm_pool {
	struct list_head node;
	enum kvmm_pool_state state;
	unsigned int nr_bound;
	struct kref ref;

	u64 id;
	char name[KVMM_NAME_LEN];
	kuid_t uid;
	struct kvmm_user *user;
	kgid_t gid;
	umode_t mode;
	u32 policy;
	unsigned int block_shift;
	bool manual_clock;
	u64 nodes;
	bool nodes_prefer;
	struct mem_cgroup *memcg;

	struct kvmm_arena arena;
	struct kobject kobj;
	struct completion kobj_gone;

	struct mutex area_lock;			/* attach, detach */

	struct mutex lock;			/* all up to @exports_left */
	struct kvmm_core core;
	struct kvmm_elastic elastic;
	bool dead;
	u64 now_ms;
	u32 frames_misplaced;
	struct list_head fills;
	u32 fills_cancelled;
	u32 frames_populating;
	bool has_crew;
	struct kvmm_area *area;
	DECLARE_HASHTABLE(inflight, 8);
	unsigned int nr_inflight;
	struct list_head ops;
	u64 io_seq;
	wait_queue_head_t wait;
	struct kvmm_writeback writeback;
	struct list_head clients;
	struct list_head listeners;
	u64 event_mask;
	unsigned int nr_block_listeners;
	u64 events;
	u64 events_lost;
	struct rb_root_cached exports;
	u32 nr_exports;
	bool exports_left;

	struct kvmm_hist hist[KVMM_NR_HISTS];

	struct llist_head done_list;
	struct work_struct done_work;
	struct delayed_work late_work;
	bool look_for_late;
	struct work_struct end_work;
	struct completion ended;
};

/**
 * struct kvmm_event_queue - what a client is to be told
 * @read: readers and KVMM_EVENTS, one at a time
 * @wait: readers and pollers; woken when @nr rises from 0, when another choice
 *	is made and when the pool ends
 * @node: in the pool's listeners; its lock, as for @mask
 * @mask: bit N: enum kvmm_event_type N was chosen
 * @lock: protects what follows; inside the pool's lock
 * @ring: the events; NULL: nothing is chosen.  Changes under @read and the
 *	pool's lock, too
 * @size: room in @ring
 * @tail: where the oldest is; only who holds @read moves it
 * @nr: how many
 * @lost: those that found @ring full; not 0 only while it is
 * @lost_ms: time of the last of them
 */
struct kvmm_event_queue {
	struct mutex read;			/* @tail, over user memory */
	wait_queue_head_t wait;
	struct list_head node;
	u64 mask;
	spinlock_t lock;			/* all that follows */
	struct kvmm_event *ring;
	u32 size;
	u32 tail;
	u32 nr;
	u64 lost;
	u64 lost_ms;
};

/**
 * struct kvmm_client - an open file of /dev/kvmm
 * @pool: what it is bound to; set once, with release semantics
 * @id: client id in the core
 * @rdonly: bound read-only
 * @node: in the pool's clients; its lock
 * @events: what it is told of
 * @leases: bit N: has a lease on chunk N; changes under @lock and the pool's
 * @nr_leases: how many
 * @lock: binding; and @buf, over one command
 * @buf: entries of a command on their way between user memory and the core
 */
struct kvmm_client {
	struct kvmm_pool *pool;
	u32 id;
	bool rdonly;
	struct list_head node;
	struct kvmm_event_queue events;
	unsigned long *leases;
	u32 nr_leases;
	struct mutex lock;			/* binding, @buf */
	union {
		struct kvmm_block_ref refs[KVMM_CORE_BATCH];
		struct kvmm_publish_entry publish[KVMM_CORE_BATCH];
		struct kvmm_key_entry keys[KVMM_CORE_BATCH];
		struct {
			struct kvmm_block_ref refs[KVMM_CORE_BATCH];
			u8 keys[KVMM_CORE_BATCH][KVMM_KEY_LEN];
		} lookup;
	} buf;
};

/**
 * kvmm_pool_wait() - wait for something about a pool, or for a signal
 * @pool: the pool
 * @cond: what is waited for; does not sleep
 *
 * io_uring interrupts the waits of a task to post its completions; restarting
 * a command for that would lose what it did.  So only real signals count, and
 * those that don't kill are looked for now and then.
 *
 * Return: 0 or -EINTR.
 */
#define kvmm_pool_wait(pool, cond)					\
({									\
	wait_queue_head_t *__head = &(pool)->wait;			\
	int __wait_ret = 0;						\
	DEFINE_WAIT(__wait);						\
									\
	for (;;) {							\
		prepare_to_wait(__head, &__wait, TASK_KILLABLE);	\
		if (cond)						\
			break;						\
		if (task_sigpending(current)) {				\
			__wait_ret = -EINTR;				\
			break;						\
		}							\
		schedule_timeout(KVMM_SIGNAL_JIFFIES);			\
	}								\
	finish_wait(__head, &__wait);					\
	__wait_ret;							\
})

#define KVMM_SIGNAL_JIFFIES	(HZ / 100 ?: 1)

/* ---- main.c ---- */

extern struct workqueue_struct *kvmm_done_wq;
extern struct workqueue_struct *kvmm_end_wq;
extern struct workqueue_struct *kvmm_populate_wq;
extern struct workqueue_struct *kvmm_clean_wq;

/* ---- dev.c ---- */

extern const struct file_operations kvmm_fops;

/* ---- client.c ---- */

int kvmm_open(struct inode *inode, struct file *file);
int kvmm_release(struct inode *inode, struct file *file);
int kvmm_client_bind(struct kvmm_client *client, struct kvmm_pool *pool,
		     bool rdonly);
struct kvmm_pool *kvmm_client_pool(struct kvmm_client *client);

/* ---- pool.c ---- */

extern struct mutex kvmm_pools_lock;

u64 kvmm_pool_now(struct kvmm_pool *pool);
struct kvmm_pool *kvmm_pool_after(u64 id);
void kvmm_pool_put(struct kvmm_pool *pool);
bool kvmm_pool_owned(const struct kvmm_pool *pool);
u32 kvmm_pools_count(void);
int kvmm_do_pool_create(struct kvmm_client *client, struct file *file,
			void *arg);
int kvmm_do_pool_open(struct kvmm_client *client, struct file *file, void *arg);
int kvmm_do_pool_destroy(struct kvmm_client *client, struct file *file,
			 void *arg);

/* ---- info.c ---- */

void kvmm_pool_stat(struct kvmm_pool *pool, struct kvmm_pool_stat *st);

int kvmm_do_info(struct kvmm_client *client, struct file *file, void *arg);
int kvmm_do_pool_list(struct kvmm_client *client, struct file *file, void *arg);
int kvmm_do_pool_reset(struct kvmm_client *client, struct file *file,
		       void *arg);
int kvmm_do_pool_stat(struct kvmm_client *client, struct file *file, void *arg);
int kvmm_do_pool_clock(struct kvmm_client *client, struct file *file,
		       void *arg);

/* ---- arena.c ---- */

int kvmm_arena_init(struct kvmm_pool *pool);
void kvmm_arena_revoke(struct kvmm_pool *pool);
void kvmm_arena_exit(struct kvmm_pool *pool);
int kvmm_arena_mmap(struct kvmm_pool *pool, struct vm_area_struct *vma,
		    bool rdonly);

/* ---- populate.c ---- */

int kvmm_do_populate(struct kvmm_client *client, struct file *file, void *arg);

/* ---- fill.c ---- */

void kvmm_fill_drain(struct kvmm_pool *pool);

/* ---- limit.c ---- */

extern unsigned int kvmm_max_pools;

u64 kvmm_limit_bytes(void);
u64 kvmm_limit_held(void);
bool kvmm_may_create(void);
struct kvmm_user *kvmm_user_get(kuid_t uid);
void kvmm_user_put(struct kvmm_user *user);
bool kvmm_user_add_pool(struct kvmm_user *user);
void kvmm_user_del_pool(struct kvmm_user *user);
bool kvmm_limit_room(const struct kvmm_user *user, u64 bytes);
int kvmm_limit_charge(struct kvmm_pool *pool, u64 bytes);
void kvmm_limit_uncharge(struct kvmm_pool *pool, u64 bytes);

/* ---- place.c ---- */

int kvmm_place_check(const struct kvmm_pool_create *a);
void kvmm_place_init(struct kvmm_pool *pool, const struct kvmm_pool_create *a);
void kvmm_place_exit(struct kvmm_pool *pool);
void kvmm_place_option(const struct kvmm_pool *pool, char *buf, size_t size);
unsigned int kvmm_place_cpus(const struct kvmm_pool *pool);
int kvmm_place_worker(const struct kvmm_pool *pool, unsigned int i);
bool kvmm_place_refuses(const struct kvmm_pool *pool, int nid, bool full);
bool kvmm_place_turn(struct kvmm_pool *pool, unsigned int n);
u32 kvmm_place_misplaced(struct kvmm_pool *pool, u32 first, u32 last);

/* ---- lease.c ---- */

struct kvmm_chunk *kvmm_chunk_of(struct kvmm_pool *pool, u32 frame);
void kvmm_wishes_end(struct kvmm_pool *pool);
void kvmm_chunk_unwant(struct kvmm_pool *pool, struct kvmm_chunk *chunk);
void kvmm_chunk_want(struct kvmm_pool *pool, u32 i);
void kvmm_lease_end_all(struct kvmm_client *client);
int kvmm_do_lease(struct kvmm_client *client, struct file *file, void *arg);

/* ---- elastic.c ---- */

void kvmm_elastic_setup(struct kvmm_pool *pool);
int kvmm_elastic_init(struct kvmm_pool *pool,
		      const struct kvmm_pool_create *a);
void kvmm_elastic_add(struct kvmm_pool *pool);
void kvmm_elastic_del(struct kvmm_pool *pool);
void kvmm_elastic_exit(struct kvmm_pool *pool);
void kvmm_elastic_online(struct kvmm_pool *pool, u32 first, u32 n);
void kvmm_elastic_miss(struct kvmm_pool *pool);
unsigned long kvmm_elastic_pages(struct kvmm_pool *pool);
void kvmm_elastic_stat(struct kvmm_pool *pool, struct kvmm_pool_stat *st);

/* ---- giveback.c ---- */

u64 kvmm_give_back(struct kvmm_pool *pool, u64 pages, bool hard);

/* ---- shrink.c ---- */

extern struct mutex kvmm_elastic_lock;
extern struct list_head kvmm_elastic_pools;

extern struct workqueue_struct *kvmm_elastic_wq;
extern unsigned int kvmm_pressure_nr;

unsigned long kvmm_pressure_jiffies(void);
bool kvmm_pressure_recent(void);
void kvmm_shrink_kick(void);
void kvmm_shrink_flush(void);
void kvmm_shrink_freed(unsigned long pages);
int kvmm_shrink_init(void);
void kvmm_shrink_exit(void);

/* ---- op.c ---- */

int kvmm_ops_init(void);
void kvmm_ops_exit(void);

/* ---- area.c ---- */

int kvmm_do_swap_attach(struct kvmm_client *client, struct file *file,
			void *arg);
int kvmm_do_swap_detach(struct kvmm_client *client, struct file *file,
			void *arg);

/* ---- swap.c ---- */

int kvmm_do_swap_out(struct kvmm_client *client, struct file *file, void *arg);
int kvmm_do_swap_in(struct kvmm_client *client, struct file *file, void *arg);
void kvmm_swap_in_told(struct kvmm_client *client, void *arg, int err);

/* ---- reclaim.c ---- */

u32 kvmm_reclaim_start(struct kvmm_pool *pool, u32 want);
int kvmm_do_reclaim(struct kvmm_client *client, struct file *file, void *arg);

/* ---- writeback.c ---- */

void kvmm_writeback_init(struct kvmm_pool *pool);
void kvmm_writeback_exit(struct kvmm_pool *pool);
int kvmm_writeback_set(struct kvmm_pool *pool, u32 low, u32 high);
void kvmm_writeback_kick(struct kvmm_pool *pool);

/* ---- event.c ---- */

struct kiocb;
struct iov_iter;
struct poll_table_struct;

void kvmm_event_init(struct kvmm_event_queue *q);
void kvmm_event_exit(struct kvmm_event_queue *q);
void kvmm_event_unlisten(struct kvmm_client *client);
void kvmm_event_hangup(struct kvmm_pool *pool);
/* All three: with the pool's lock held; they take no memory. */
void kvmm_event_raise(struct kvmm_pool *pool, struct kvmm_event *ev);
void kvmm_event_pool(struct kvmm_pool *pool, u32 type, u64 value);
void kvmm_event_client(struct kvmm_client *client, u32 type, u64 value);
void kvmm_event_note(void *ctx, enum kvmm_core_note what, u64 handle,
		     const struct kvmm_block *b);
ssize_t kvmm_event_read(struct kiocb *iocb, struct iov_iter *to);
__poll_t kvmm_event_poll(struct file *file, struct poll_table_struct *wait);
int kvmm_do_events(struct kvmm_client *client, struct file *file, void *arg);

/* ---- uring.c ---- */

struct io_uring_cmd;
int kvmm_uring_init(void);
void kvmm_uring_exit(void);
int kvmm_uring_cmd(struct io_uring_cmd *ioucmd, unsigned int issue_flags);

/* ---- export.c ---- */

#ifdef CONFIG_DMA_SHARED_BUFFER
bool kvmm_export_covers(struct kvmm_pool *pool, u32 first, u32 count);
u32 kvmm_export_revoke(struct kvmm_pool *pool);
int kvmm_do_export(struct kvmm_client *client, struct file *file, void *arg);
void kvmm_export_told(struct kvmm_client *client, void *arg, int err);
#else
static inline bool kvmm_export_covers(struct kvmm_pool *pool, u32 first,
				      u32 count)
{
	return false;
}

static inline u32 kvmm_export_revoke(struct kvmm_pool *pool)
{
	return 0;
}

static inline int kvmm_do_export(struct kvmm_client *client, struct file *file,
				 void *arg)
{
	return -EOPNOTSUPP;
}

static inline void kvmm_export_told(struct kvmm_client *client, void *arg,
				    int err)
{
}
#endif

/* ---- sysfs.c ---- */

int kvmm_sysfs_init(void);
void kvmm_sysfs_exit(void);
int kvmm_sysfs_add_pool(struct kvmm_pool *pool);
void kvmm_sysfs_del_pool(struct kvmm_pool *pool);

#endif /* KVMM_MOD_H */
