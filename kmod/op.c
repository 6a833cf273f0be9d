// SPDX-License-Identifier: GPL-2.0
/*
 * Block I/O: one op from the core's decision to its done call.
 *
 * begin (under the pool's lock) -> submit (by who asked, or by a worker where
 * that would block) -> kvmm_op_ended() (any context) -> kvmm_done_work()
 * (checksum, done call, everyone who waits).
 */
#include <linux/blkdev.h>
#include <linux/cred.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "arena.h"
#include "compat/compat.h"
#include "kvmm_mod.h"
#include "swap.h"

/* More pieces than this and a frame is moved in several parts. */
#define KVMM_MAX_SEGS	256

/**
 * kvmm_cmd_init() - make a command, with the caller as its issuer
 * @cmd: the command
 * @pool: the pool
 * @end: called when it has ended after kvmm_cmd_issued(); NULL: someone waits
 */
void kvmm_cmd_init(struct kvmm_cmd *cmd, struct kvmm_pool *pool,
		   void (*end)(struct kvmm_cmd *cmd))
{
	memset(cmd, 0, sizeof(*cmd));
	cmd->pool = pool;
	cmd->pending = 1;
	cmd->end = end;
	INIT_LIST_HEAD(&cmd->ops);
	INIT_LIST_HEAD(&cmd->ready);
	INIT_LIST_HEAD(&cmd->ended);
	init_completion(&cmd->done);
}

/**
 * kvmm_cmd_issued() - the issuer is through with a command
 * @cmd: the command
 *
 * Return: true: it has ended and is the caller's; false: its end will be told,
 * and it may be gone already.
 */
bool kvmm_cmd_issued(struct kvmm_cmd *cmd)
{
	struct kvmm_pool *pool = cmd->pool;
	bool ended;

	mutex_lock(&pool->lock);
	ended = !--cmd->pending;
	mutex_unlock(&pool->lock);
	return ended;
}

/** kvmm_cmd_wait() - wait for a command without an end; its I/O ends it */
void kvmm_cmd_wait(struct kvmm_cmd *cmd)
{
	if (!kvmm_cmd_issued(cmd))
		wait_for_completion(&cmd->done);
}

/**
 * kvmm_cmd_entry() - an entry of a command is settled
 * @cmd: the command; the pool is locked
 * @entry: which
 * @err: 0 or why it is not where it was asked to be
 */
void kvmm_cmd_entry(struct kvmm_cmd *cmd, u32 entry, int err)
{
	if (cmd->results)
		cmd->results[entry] = err;
	if (!err) {
		cmd->good++;
	} else if (!cmd->err || entry < cmd->err_entry) {
		cmd->err = err;
		cmd->err_entry = entry;
	}
}

static void kvmm_cmd_put(struct kvmm_cmd *cmd, struct list_head *ended)
{
	if (!--cmd->pending)
		list_add_tail(&cmd->ended, ended);
}

static void kvmm_op_issue_work(struct work_struct *work);

/**
 * kvmm_ops_alloc() - get memory for ops, before the core is asked
 * @pool: the pool
 * @ops: list they are added to, linked by @submit
 * @n: how many
 *
 * Return: how many there were.
 */
u32 kvmm_ops_alloc(struct kvmm_pool *pool, struct list_head *ops, u32 n)
{
	u32 segs = min_t(u32, READ_ONCE(pool->arena.max_segs), KVMM_MAX_SEGS);
	u32 i;

	for (i = 0; i < n; i++) {
		struct kvmm_op *op;

		op = kzalloc(struct_size(op, bvec, segs),
			     GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
		if (!op)
			break;
		op->max_segs = segs;
		INIT_LIST_HEAD(&op->node);
		INIT_LIST_HEAD(&op->waiters);
		INIT_HLIST_NODE(&op->hash);
		INIT_WORK(&op->issue, kvmm_op_issue_work);
		list_add_tail(&op->submit, ops);
	}
	return i;
}

/** kvmm_ops_free() - give ops back that were not begun */
void kvmm_ops_free(struct list_head *ops)
{
	struct kvmm_op *op, *next;

	list_for_each_entry_safe(op, next, ops, submit)
		kfree(op);
	INIT_LIST_HEAD(ops);
}

static u32 kvmm_block_index(u64 handle)
{
	return (u32)handle;
}

/**
 * kvmm_op_begin() - the core has decided on @op->io: the block is in flight
 * @op: with @io; off any list
 * @cmd: whose it is
 * @entry: which of its entries
 * @write: to the area; kvmm_area_start_write() was had, and is given to the op
 * @submit: the list to hand to kvmm_ops_submit() once the pool is unlocked
 */
void kvmm_op_begin(struct kvmm_op *op, struct kvmm_cmd *cmd, u32 entry,
		   bool write, struct list_head *submit)
{
	struct kvmm_pool *pool = cmd->pool;

	lockdep_assert_held(&pool->lock);
	op->cmd = cmd;
	op->area = pool->area;
	op->entry = entry;
	op->write = write;
	op->nowait = cmd->nowait;
	op->len = round_up(op->io.length, op->area->align);
	hash_add(pool->inflight, &op->hash, kvmm_block_index(op->io.handle));
	WRITE_ONCE(pool->nr_inflight, pool->nr_inflight + 1);
	op->started = ktime_get_ns();
	op->depth = pool->nr_inflight;
	list_add_tail(&op->node, &cmd->ops);
	cmd->pending++;
	list_add_tail(&op->submit, submit);
}

/**
 * kvmm_op_join() - the block of @op->io.handle is in flight: wait for it
 * @op: stands for the entry that waits; off any list
 * @cmd: whose it is
 * @entry: which of its entries
 */
void kvmm_op_join(struct kvmm_op *op, struct kvmm_cmd *cmd, u32 entry)
{
	struct kvmm_pool *pool = cmd->pool;
	u32 index = kvmm_block_index(op->io.handle);
	struct kvmm_op *other;

	lockdep_assert_held(&pool->lock);
	hash_for_each_possible(pool->inflight, other, hash, index) {
		if (kvmm_block_index(other->io.handle) != index)
			continue;
		op->cmd = cmd;
		op->entry = entry;
		list_add_tail(&op->node, &other->waiters);
		cmd->pending++;
		return;
	}
	/* The core says it is under way, so it is in the table. */
	WARN_ON_ONCE(1);
	kvmm_cmd_entry(cmd, entry, -EAGAIN);
	kfree(op);
}

/*
 * One of the two that have an op in hand during I/O, who submits it and the I/O
 * itself, is through with it.  A file system goes on using the kiocb and the
 * file after it has queued the I/O, which may be long over by then; so the
 * second one hands the op on.  Any context.  The section keeps the pool until
 * the worker is queued: the worker may already be through with the op then.
 */
static void kvmm_op_put(struct kvmm_op *op)
{
	struct kvmm_pool *pool = op->cmd->pool;

	if (!atomic_dec_and_test(&op->hands))
		return;
	rcu_read_lock();
	if (llist_add(&op->done, &pool->done_list))
		queue_work(kvmm_done_wq, &pool->done_work);
	rcu_read_unlock();
}

/* The I/O of an op has ended.  Any context. */
static void kvmm_op_ended(struct kiocb *iocb, long res)
{
	struct kvmm_op *op = container_of(iocb, struct kvmm_op, iocb);

	op->res = res;
	kvmm_op_put(op);
}

static void kvmm_op_submit(struct kvmm_op *op)
{
	struct kvmm_pool *pool = op->cmd->pool;
	struct kvmm_area *area = op->area;
	struct file *file = area->file;
	const struct cred *old;
	struct iov_iter iter;
	unsigned int segs;
	size_t bytes;
	ssize_t ret;

	segs = kvmm_arena_bvec(pool,
			       ((u64)op->io.frame << pool->block_shift) +
			       op->pos, op->len - op->pos, op->bvec,
			       op->max_segs, &bytes);
	op->part = bytes;
	op->iocb = (struct kiocb) {
		.ki_filp = file,
		.ki_pos = area->offset + op->pos +
			  ((loff_t)op->io.slot << pool->block_shift),
		.ki_flags = IOCB_DIRECT | (op->write ? IOCB_WRITE : 0) |
			    (op->nowait ? IOCB_NOWAIT : 0),
		.ki_ioprio = get_current_ioprio(),
		.ki_complete = kvmm_op_ended,
	};
	iov_iter_bvec(&iter, op->write ? WRITE : READ, op->bvec, segs, bytes);

	atomic_set(&op->hands, 2);
	old = override_creds(area->cred);
	if (op->write)
		ret = file->f_op->write_iter(&op->iocb, &iter);
	else
		ret = file->f_op->read_iter(&op->iocb, &iter);
	revert_creds(old);
	if (ret != -EIOCBQUEUED)
		kvmm_op_ended(&op->iocb, ret);
	kvmm_op_put(op);
}

static void kvmm_op_issue_work(struct work_struct *work)
{
	kvmm_op_submit(container_of(work, struct kvmm_op, issue));
}

static void kvmm_op_issue_later(struct kvmm_op *op)
{
	op->nowait = false;
	op->retried = true;
	queue_work(kvmm_issue_wq, &op->issue);
}

/*
 * Writing past the caller's limit of file size would kill it with SIGXFSZ; the
 * limit is not meant for the area.
 */
static bool kvmm_op_wants_worker(const struct kvmm_op *op)
{
	if (op->nowait && !op->area->nowait)
		return true;
	return op->write && op->area->regular &&
	       rlimit(RLIMIT_FSIZE) < op->area->end;
}

/**
 * kvmm_ops_submit() - start the I/O of ops that were begun
 * @submit: the list; empty afterwards, its ops may be gone
 */
void kvmm_ops_submit(struct list_head *submit)
{
	struct kvmm_op *op, *next;
	struct blk_plug plug;

	blk_start_plug(&plug);
	list_for_each_entry_safe(op, next, submit, submit) {
		if (kvmm_op_wants_worker(op))
			kvmm_op_issue_later(op);
		else
			kvmm_op_submit(op);
	}
	blk_finish_plug(&plug);
	INIT_LIST_HEAD(submit);
}

/* May a worker succeed where the submitter did not? */
static bool kvmm_op_may_retry(const struct kvmm_op *op)
{
	if (op->retried)
		return false;
	switch (op->res) {
	case -EAGAIN:
	case -EINTR:
	case -ENOMEM:
	case -EFBIG:
	case -ERESTARTSYS:
	case -ERESTARTNOINTR:
	case -ERESTARTNOHAND:
	case -ERESTART_RESTARTBLOCK:
		return true;
	default:
		return false;
	}
}

static u32 kvmm_op_checksum(struct kvmm_op *op)
{
	struct kvmm_pool *pool = op->cmd->pool;

	return kvmm_arena_crc32c(pool, (u64)op->io.frame << pool->block_shift,
				 op->io.length);
}

/*
 * Look at an I/O that ended.  Return: false: the op goes on, else @err tells.
 */
static bool kvmm_op_complete(struct kvmm_op *op)
{
	long res = op->res;

	if (res < 0 && kvmm_op_may_retry(op)) {
		kvmm_op_issue_later(op);
		return false;
	}
	if (res > 0 && res <= op->part) {
		op->pos += res;
		if (op->pos < op->len && !(res % op->area->align)) {
			kvmm_op_issue_later(op);
			return false;
		}
		op->err = op->pos < op->len ? -EIO : 0;
	} else {
		/* Nothing read is the end of the file: someone cut it. */
		op->err = res < 0 ? res : -EIO;
	}

	if (!op->err && op->area->checksums) {
		op->crc = kvmm_op_checksum(op);
		if (!op->write && op->crc != op->io.crc)
			op->err = -EBADMSG;
	}
	op->complete = true;
	return true;
}

static bool kvmm_op_lost_frame(struct kvmm_op *op)
{
	struct kvmm_pool *pool = op->cmd->pool;
	struct kvmm_block_ref ref = { .handle = op->io.handle };

	kvmm_core_query(&pool->core, kvmm_pool_now(pool), &ref, 1);
	return ref.result == KVMM_SWAPPED;
}

/*
 * What reading a block back costs, for the core to compare with computing it:
 * its time shared among those in flight when it began, averaged over some.
 */
static void kvmm_op_learn(struct kvmm_op *op)
{
	struct kvmm_core *core = &op->cmd->pool->core;
	u64 us = div_u64(ktime_get_ns() - op->started,
			 NSEC_PER_USEC * op->depth);

	us = (7ULL * core->load_us + us) / 8;
	core->load_us = clamp_t(u64, us, 1, U32_MAX);
}

/* Tell the core, then everyone who waits. */
static void kvmm_op_finish(struct kvmm_op *op, struct list_head *ended)
{
	struct kvmm_cmd *cmd = op->cmd;
	struct kvmm_pool *pool = cmd->pool;
	struct kvmm_op *w, *next;
	bool degraded = pool->core.degraded;
	int err = 0;

	if (op->write) {
		kvmm_core_write_done(&pool->core, op->io.handle, op->err,
				     op->crc);
		if (pool->core.degraded && !degraded)
			kvmm_event_pool(pool, KVMM_EVENT_DEGRADED, -op->err);
		kvmm_area_end_write(op->area);
		if (!op->err && kvmm_op_lost_frame(op))
			cmd->evicted++;
	} else {
		kvmm_core_read_done(&pool->core, op->io.handle, op->err);
		if (!op->err)
			kvmm_op_learn(op);
	}
	if (op->err)
		err = op->write ? -EIO : -ESTALE;

	hash_del(&op->hash);
	WRITE_ONCE(pool->nr_inflight, pool->nr_inflight - 1);
	WRITE_ONCE(pool->io_seq, pool->io_seq + 1);

	list_for_each_entry_safe(w, next, &op->waiters, node) {
		kvmm_cmd_entry(w->cmd, w->entry, err);
		kvmm_cmd_put(w->cmd, ended);
		kfree(w);
	}
	kvmm_cmd_entry(cmd, op->entry, err);
	list_del(&op->node);
	kvmm_cmd_put(cmd, ended);
	kfree(op);
}

/* The next op of @cmd, if it is complete. */
static struct kvmm_op *kvmm_cmd_next(struct kvmm_cmd *cmd)
{
	struct kvmm_op *op;

	op = list_first_entry_or_null(&cmd->ops, struct kvmm_op, node);
	return op && op->complete ? op : NULL;
}

/*
 * Finish what can be finished of the commands in @ready.  A command that is
 * still in the list has an op in hand, so it is not gone.
 */
static void kvmm_finish_batch(struct kvmm_pool *pool, struct list_head *ready,
			      struct list_head *ended)
{
	unsigned int n = 0;

	mutex_lock(&pool->lock);
	while (!list_empty(ready) && n++ < KVMM_CORE_BATCH) {
		struct kvmm_cmd *cmd = list_first_entry(ready, struct kvmm_cmd,
							ready);
		struct kvmm_op *op = kvmm_cmd_next(cmd);

		if (op)
			kvmm_op_finish(op, ended);
		if (!kvmm_cmd_next(cmd))
			list_del_init(&cmd->ready);
	}
	wake_up_all(&pool->wait);
	mutex_unlock(&pool->lock);
}

/** kvmm_done_work() - take ops whose I/O ended to their done calls */
void kvmm_done_work(struct work_struct *work)
{
	struct kvmm_pool *pool = container_of(work, struct kvmm_pool,
					      done_work);
	struct llist_node *list = llist_del_all(&pool->done_list);
	struct kvmm_cmd *cmd, *next_cmd;
	struct kvmm_op *op, *next_op;
	LIST_HEAD(ready);
	LIST_HEAD(ended);

	list = llist_reverse_order(list);
	llist_for_each_entry_safe(op, next_op, list, done) {
		if (kvmm_op_complete(op) && list_empty(&op->cmd->ready))
			list_add_tail(&op->cmd->ready, &ready);
		cond_resched();
	}
	while (!list_empty(&ready)) {
		kvmm_finish_batch(pool, &ready, &ended);
		cond_resched();
	}
	/* From here on the pool is not touched: it may go with its commands. */
	list_for_each_entry_safe(cmd, next_cmd, &ended, ended) {
		if (cmd->end)
			cmd->end(cmd);
		else
			complete(&cmd->done);
	}
}

/** kvmm_swap_drain() - wait for all ops of a pool that begins no more */
void kvmm_swap_drain(struct kvmm_pool *pool)
{
	wait_event(pool->wait, !READ_ONCE(pool->nr_inflight));
	/* See kvmm_op_put(). */
	synchronize_rcu();
	cancel_work_sync(&pool->done_work);
}
