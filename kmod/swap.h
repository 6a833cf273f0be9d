/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Moving blocks between the arena and the area.
 *
 * A *command* is what someone asked for: an ioctl's batch, an io_uring command
 * or a batch of reclaim.  An *op* is one block on its way; it belongs to the
 * command that began it, and other commands may wait for it too.  A block's
 * state never depends on who asked: ops end in the pool's own worker.
 *
 * The ops of one command end in the order in which they were begun, whatever
 * the order in which the device does them.  What the core does with a block
 * that has arrived depends on what arrived before it; so the same commands
 * always lead to the same state, if they are of KVMM_CORE_BATCH blocks at most:
 * a longer one goes on beginning ops while its first ones end.
 *
 * All but those that are late.  An op has a deadline, from its beginning.  When
 * it passes, all who wait are told that it failed, the op leaves its command,
 * and those behind it go on in their order.  The late op is then nobody's: it
 * keeps frame, slot, area and pool until its I/O ends, at any time after.
 */
#ifndef KVMM_SWAP_H
#define KVMM_SWAP_H

#include <linux/atomic.h>
#include <linux/bvec.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>

#include "core/core.h"

struct file;
struct kvmm_client;
struct kvmm_pool;

/**
 * struct kvmm_area - a pool's swap area, constant while attached
 * @node: in the list of all areas, with which none is used twice
 * @file: the file or block device
 * @cred: of who attached it: I/O is done in its name
 * @claim: exclusive hold on a block device, or NULL
 * @offset: where slot 0 starts, bytes
 * @end: where the last slot ends
 * @nr_slots: slots
 * @align: lengths and offsets of I/O are multiples of it
 * @checksums: data is checked when it is read back
 * @regular: a regular file: writing keeps the file system from freezing
 * @nowait: I/O can be issued without blocking; may turn out not to be so
 * @timeout_ns: how long one op may take
 * @issue_wq: for what would block: a device that hangs holds no other area's
 * @probe_us: what reading a little took when it was attached
 *
 * Held by the pool; ops in flight keep it attached.
 */
struct kvmm_area {
	struct list_head node;
	struct file *file;
	const struct cred *cred;
	void *claim;
	loff_t offset;
	loff_t end;
	u32 nr_slots;
	u32 align;
	bool checksums;
	bool regular;
	bool nowait;
	u64 timeout_ns;
	struct workqueue_struct *issue_wq;
	u32 probe_us;
};

/**
 * struct kvmm_cmd - a command
 * @pool: the pool; it can't be destroyed while an op is in flight
 * @ops: its ops in flight, in order
 * @pending: ops, entries that wait for others' ops, and 1 while being issued
 * @wake_at: @done is told when @pending has come down to this; 0: of the end
 * @good: entries that are where they were asked to be
 * @err: error of the first entry that failed, by number
 * @err_entry: that number
 * @evicted: writes after which the block had no frame any more
 * @bytes: moved so far
 * @out: they were written
 * @results: each entry's result, or NULL
 * @ioprio: priority of its I/O, 0: of whoever submits it
 * @end: called once when nothing is pending, without locks, from the worker
 * @ready: in the worker's list of commands to look at
 * @ended: in the worker's list of commands to end
 * @done: for who waits
 *
 * All but the constants is under the pool's lock; @ready is the worker's.  @ops,
 * @ready and @done are as kvmm_cmd_ctor() made them when it has ended.
 */
struct kvmm_cmd {
	struct kvmm_pool *pool;
	struct list_head ops;
	u32 pending;
	u32 wake_at;
	u32 good;
	int err;
	u32 err_entry;
	u32 evicted;
	u64 bytes;
	bool out;
	s32 *results;
	u16 ioprio;
	void (*end)(struct kvmm_cmd *cmd);
	struct list_head ready;
	struct list_head ended;
	struct completion done;
};

/**
 * struct kvmm_swap_req - what is asked for with blocks
 * @client: client id
 * @flags: KVMM_SWAP_DROP or KVMM_SWAP_PIN
 * @out: to the area, else from it
 */
struct kvmm_swap_req {
	u32 client;
	u32 flags;
	bool out;
};

/**
 * struct kvmm_op - one block on its way, or one entry that waits for an op
 * @node: in the command's ops, or in another op's waiters
 * @waiters: entries of other commands that wait for this block
 * @age: in the pool's ops that are not late
 * @hash: in the pool's ops in flight
 * @iocb: for the file
 * @issue: to go on from a worker
 * @pool: the pool
 * @cmd: whose it is; NULL: late, the command may be gone
 * @area: where from or to
 * @submit: in the list of ops to submit
 * @done: in the pool's list of ops whose I/O ended
 * @io: the core's decision
 * @entry: number of the entry in its command
 * @started: when, in ns
 * @depth: ops in flight then, this one too
 * @len: bytes to move, @io.length rounded up
 * @pos: bytes moved
 * @part: bytes of the I/O in flight
 * @hands: who has it during the I/O: the submitter, and the I/O
 * @res: its result
 * @err: 0 or why the block could not be moved
 * @crc: checksum of what was written
 * @write: direction
 * @ioprio: the command's
 * @worker: is issued from a worker, where it may block
 * @complete: all I/O has ended; the pool's worker's, as is @late
 * @late: did not end by its deadline
 * @max_segs: room in @bvec
 * @bvec: pages of the I/O in flight
 *
 * Lists are under the pool's lock; the rest belongs to who has the op in hand:
 * the submitter, then the I/O, then the worker.
 *
 * What is before @iocb is made once and is in its first state whenever an op is
 * freed; what is from @pool on is zero in a new one.
 */
struct kvmm_op {
	struct list_head node;
	struct list_head waiters;
	struct list_head age;
	struct hlist_node hash;
	struct kiocb iocb;
	struct work_struct issue;
	struct kvmm_pool *pool;
	struct kvmm_cmd *cmd;
	struct kvmm_area *area;
	struct list_head submit;
	struct llist_node done;
	struct kvmm_io io;
	u32 entry;
	u64 started;
	u32 depth;
	u32 len;
	u32 pos;
	u32 part;
	refcount_t hands;
	long res;
	int err;
	u32 crc;
	bool write;
	u16 ioprio;
	bool worker;
	bool complete;
	bool late;
	u32 max_segs;
	struct bio_vec bvec[];
};

/* ---- op.c: the life of ops and commands ---- */

int kvmm_ops_init(void);
void kvmm_ops_exit(void);
void kvmm_cmd_ctor(struct kvmm_cmd *cmd);
void kvmm_cmd_start(struct kvmm_cmd *cmd, struct kvmm_pool *pool,
		    void (*end)(struct kvmm_cmd *cmd));
void kvmm_cmd_init(struct kvmm_cmd *cmd, struct kvmm_pool *pool,
		   void (*end)(struct kvmm_cmd *cmd));
bool kvmm_cmd_drop(struct kvmm_cmd *cmd);
bool kvmm_cmd_issued(struct kvmm_cmd *cmd);
void kvmm_cmd_throttle(struct kvmm_cmd *cmd, u32 n);
void kvmm_cmd_wait(struct kvmm_cmd *cmd);
void kvmm_cmd_entry(struct kvmm_cmd *cmd, u32 entry, int err);
u32 kvmm_ops_alloc(struct kvmm_pool *pool, struct list_head *ops, u32 n);
void kvmm_op_free(struct kvmm_op *op);
void kvmm_ops_free(struct list_head *ops);
void kvmm_op_begin(struct kvmm_op *op, struct kvmm_cmd *cmd, u32 entry,
		   bool write, struct list_head *submit);
void kvmm_op_join(struct kvmm_op *op, struct kvmm_cmd *cmd, u32 entry);
void kvmm_ops_submit(struct list_head *submit);
void kvmm_op_issue_later(struct kvmm_op *op);

/* ---- done.c: the pool's worker ---- */

void kvmm_deadline_arm(struct kvmm_pool *pool);
void kvmm_late_work(struct work_struct *work);
void kvmm_done_work(struct work_struct *work);
void kvmm_swap_drain(struct kvmm_pool *pool);

/* ---- area.c ---- */

bool kvmm_area_start_write(struct kvmm_area *area);
u32 kvmm_area_start_writes(struct kvmm_area *area, u32 n);
void kvmm_area_end_write(struct kvmm_area *area);
bool kvmm_area_checksums(const struct kvmm_pool *pool);
void kvmm_area_drop(struct kvmm_pool *pool);
void kvmm_area_unclaim(struct kvmm_area *area);
void kvmm_area_free(struct kvmm_area *area);
int kvmm_do_swap_attach(struct kvmm_client *client, struct file *file,
			void *arg);
int kvmm_do_swap_detach(struct kvmm_client *client, struct file *file,
			void *arg);

/* ---- probe.c ---- */

int kvmm_area_probe(struct kvmm_area **areap);

/* ---- swap.c ---- */

int kvmm_swap_check(const struct kvmm_swap_cmd *sc, bool out);
int kvmm_swap_handles(const struct kvmm_swap_cmd *sc, bool write_back,
		      u64 *handles);
void kvmm_swap_issue(struct kvmm_cmd *cmd, const struct kvmm_swap_req *req,
		     const u64 *handles, u32 n, u32 first);
bool kvmm_swap_issue_last(struct kvmm_cmd *cmd,
			  const struct kvmm_swap_req *req, const u64 *handles,
			  u32 n, u32 first);
int kvmm_do_swap_out(struct kvmm_client *client, struct file *file, void *arg);
int kvmm_do_swap_in(struct kvmm_client *client, struct file *file, void *arg);
void kvmm_swap_in_told(struct kvmm_client *client, void *arg, int err);

/* ---- reclaim.c ---- */

u32 kvmm_reclaim_start(struct kvmm_pool *pool, u32 want);
int kvmm_do_reclaim(struct kvmm_client *client, struct file *file, void *arg);

#endif /* KVMM_SWAP_H */
