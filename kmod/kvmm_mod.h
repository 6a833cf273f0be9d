/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of kvmm.ko share: a pool, a client, waiting, and the calls of
 * the files that have no header of their own.  Headers of what a pool or a client
 * is made of come with this one.
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
 * in process context.  Interrupt context sees only kvmm_pool.done_list.
 * kvmm_pool.lock is held for at most KVMM_CORE_BATCH entries of the core, never
 * over memory allocation, user memory or I/O.
 */
#ifndef KVMM_MOD_H
#define KVMM_MOD_H

#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/kobject.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/rwsem.h>
#include <linux/sched/signal.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "core/core.h"
#include "elastic.h"
#include "event.h"
#include "hist.h"
#include "writeback.h"

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

struct kvmm_area;
struct kvmm_user;

enum kvmm_pool_state {
	KVMM_POOL_NEW,		/* the name is taken, not to be found yet */
	KVMM_POOL_LIVE,
	KVMM_POOL_DYING,	/* the name is taken, not to be found any more */
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

/* ---- uring.c ---- */

struct io_uring_cmd;
int kvmm_uring_init(void);
void kvmm_uring_exit(void);
int kvmm_uring_cmd(struct io_uring_cmd *ioucmd, unsigned int issue_flags);

/* ---- sysfs.c ---- */

int kvmm_sysfs_init(void);
void kvmm_sysfs_exit(void);
int kvmm_sysfs_add_pool(struct kvmm_pool *pool);
void kvmm_sysfs_del_pool(struct kvmm_pool *pool);

#endif /* KVMM_MOD_H */
