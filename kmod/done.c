// SPDX-License-Identifier: GPL-2.0
/*
 * The pool's worker: ops whose I/O has ended, and ops whose time is up.
 *
 * An op that has ended: checksum, the core's done call, everyone who waits.  An
 * op that is late: everyone who waits is told that it failed, and it leaves its
 * command; the device may still use the frame, so the op stays in flight, and
 * its done call is made when the I/O has ended after all.
 */
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "arena.h"
#include "kvmm_mod.h"
#include "poison.h"
#include "swap.h"
#include "trace.h"

static void kvmm_cmd_put(struct kvmm_cmd *cmd, struct list_head *ended)
{
	if (kvmm_cmd_drop(cmd))
		list_add_tail(&cmd->ended, ended);
}

/* May a worker succeed where the submitter did not? */
static bool kvmm_op_may_retry(struct kvmm_op *op)
{
	if (op->worker || op->late)
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
	case -EOPNOTSUPP:
		/* What is below the file can't do it without blocking. */
		WRITE_ONCE(op->area->nowait, false);
		return true;
	default:
		return false;
	}
}

static u32 kvmm_op_checksum(struct kvmm_op *op)
{
	return kvmm_arena_crc32c(op->pool,
				 (u64)op->io.frame << op->pool->block_shift,
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
		if (op->pos < op->len && !(res % op->area->align) &&
		    !op->late) {
			kvmm_op_issue_later(op);
			return false;
		}
		op->err = op->pos < op->len ? -EIO : 0;
	} else {
		/* Nothing read is the end of the file: someone cut it. */
		op->err = res < 0 ? res : -EIO;
	}

	/* Not to run into the error here; nor is what was read what is there. */
	if (!op->err && kvmm_poison_ever() &&
	    kvmm_frame_poisoned(op->pool, op->io.frame))
		op->err = -EHWPOISON;

	/* What is read too late is not used. */
	if (!op->err && op->area->checksums && (op->write || !op->late)) {
		op->crc = kvmm_op_checksum(op);
		if (!op->write && op->crc != op->io.crc)
			op->err = -EBADMSG;
	}
	op->complete = true;
	return true;
}

static bool kvmm_op_lost_frame(struct kvmm_op *op)
{
	struct kvmm_pool *pool = op->pool;
	struct kvmm_block_ref ref = { .handle = op->io.handle };

	kvmm_core_query(&pool->core, kvmm_pool_now(pool), &ref, 1);
	return ref.result == KVMM_SWAPPED;
}

/*
 * What reading a block back costs, for the core to compare with computing it:
 * its time shared among those in flight when it began, averaged over some.
 */
static void kvmm_op_learn(struct kvmm_op *op, u64 us)
{
	struct kvmm_core *core = &op->pool->core;

	us = (7ULL * core->load_us + div_u64(us, op->depth)) / 8;
	core->load_us = clamp_t(u64, us, 1, U32_MAX);
}

/* Its I/O has ended: the block moves on. */
static void kvmm_op_arrived(struct kvmm_op *op)
{
	struct kvmm_pool *pool = op->pool;
	bool degraded = pool->core.degraded;
	u64 us = kvmm_us_since(op->started);

	if (!op->write && (!op->err || op->err == -EBADMSG) &&
	    kvmm_core_frame_retired(&pool->core, op->io.frame))
		op->err = -EHWPOISON;
	trace_kvmm_swap_done(pool, op, us);
	if (!op->err)
		kvmm_hist_add(&pool->hist[op->write ? KVMM_HIST_LATENCY_OUT :
					  KVMM_HIST_LATENCY_IN], us);
	if (op->err == -EHWPOISON)
		kvmm_core_frame_retire(&pool->core, op->io.handle);
	if (op->write) {
		kvmm_core_write_done(&pool->core, op->io.handle, op->err,
				     op->crc);
		if (pool->core.degraded && !degraded)
			kvmm_event_pool(pool, KVMM_EVENT_DEGRADED, -op->err);
		kvmm_area_end_write(op->area);
	} else {
		kvmm_core_read_done(&pool->core, op->io.handle, op->err);
		if (!op->err)
			kvmm_op_learn(op, us);
	}
	list_del_init(&op->age);
	hash_del(&op->hash);
	WRITE_ONCE(pool->nr_inflight, pool->nr_inflight - 1);
	WRITE_ONCE(pool->io_seq, pool->io_seq + 1);
	kvmm_writeback_kick(pool);
}

/* Tell everyone who waits how it went; the op leaves its command. */
static void kvmm_op_tell(struct kvmm_op *op, bool good,
			 struct list_head *ended)
{
	struct kvmm_cmd *cmd = op->cmd;
	struct kvmm_op *w, *next;
	int err = 0;

	if (!good)
		err = op->write && op->err != -EHWPOISON ? -EIO : -ESTALE;
	list_for_each_entry_safe(w, next, &op->waiters, node) {
		kvmm_cmd_entry(w->cmd, w->entry, err);
		kvmm_cmd_put(w->cmd, ended);
		list_del_init(&w->node);
		kvmm_op_free(w);
	}
	kvmm_cmd_entry(cmd, op->entry, err);
	list_del_init(&op->node);
	kvmm_cmd_put(cmd, ended);
	op->cmd = NULL;
}

static void kvmm_op_finish(struct kvmm_op *op, struct list_head *ended)
{
	kvmm_op_arrived(op);
	if (!op->err) {
		op->cmd->bytes += op->io.length;
		op->cmd->out = op->write;
	}
	if (op->write && !op->err && kvmm_op_lost_frame(op))
		op->cmd->evicted++;
	kvmm_op_tell(op, !op->err, ended);
	kvmm_op_free(op);
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

/* A late op whose I/O has ended after all. */
static void kvmm_op_finish_late(struct kvmm_op *op)
{
	struct kvmm_pool *pool = op->pool;

	mutex_lock(&pool->lock);
	kvmm_op_arrived(op);
	wake_up_all(&pool->wait);
	mutex_unlock(&pool->lock);
	kvmm_op_free(op);
}

/**
 * kvmm_deadline_arm() - see to it that the oldest op is looked at when it is late
 * @pool: the pool, locked
 */
void kvmm_deadline_arm(struct kvmm_pool *pool)
{
	struct kvmm_op *op;
	u64 now, due;

	lockdep_assert_held(&pool->lock);
	op = list_first_entry_or_null(&pool->ops, struct kvmm_op, age);
	if (!op)
		return;
	now = ktime_get_ns();
	due = op->started + op->area->timeout_ns;
	/* Where it waits already, it is for an older one: not too late. */
	queue_delayed_work(kvmm_done_wq, &pool->late_work,
			   due > now ? nsecs_to_jiffies(due - now) + 1 : 1);
}

/** kvmm_late_work() - some op may be late: it is the worker's to say */
void kvmm_late_work(struct work_struct *work)
{
	struct kvmm_pool *pool = container_of(to_delayed_work(work),
					      struct kvmm_pool, late_work);

	WRITE_ONCE(pool->look_for_late, true);
	queue_work(kvmm_done_wq, &pool->done_work);
}

/*
 * Tell those who wait for ops whose time is up; commands that can go on now are
 * in @ready then.  What is complete waits for an older op of its command, which
 * is late itself, and is finished right after.  Return: there may be more.
 */
static bool kvmm_late_batch(struct kvmm_pool *pool, struct list_head *ready,
			    struct list_head *ended)
{
	struct kvmm_op *op, *next;
	unsigned int n = 0;
	bool more = false;
	u64 now;

	mutex_lock(&pool->lock);
	now = ktime_get_ns();
	list_for_each_entry_safe(op, next, &pool->ops, age) {
		struct kvmm_cmd *cmd = op->cmd;

		if (now - op->started < op->area->timeout_ns)
			break;
		more = n++ == KVMM_CORE_BATCH;
		if (more)
			break;
		if (op->complete)
			continue;
		if (!pool->core.degraded)
			kvmm_event_pool(pool, KVMM_EVENT_DEGRADED, ETIMEDOUT);
		kvmm_core_io_late(&pool->core, op->io.handle);
		WRITE_ONCE(op->late, true);
		trace_kvmm_swap_late(pool, op,
				     div_u64(now - op->started, NSEC_PER_USEC));
		list_del_init(&op->age);
		WRITE_ONCE(pool->io_seq, pool->io_seq + 1);
		kvmm_op_tell(op, false, ended);
		if (kvmm_cmd_next(cmd) && list_empty(&cmd->ready))
			list_add_tail(&cmd->ready, ready);
	}
	if (!more)
		kvmm_deadline_arm(pool);
	wake_up_all(&pool->wait);
	mutex_unlock(&pool->lock);
	return more;
}

static void kvmm_finish_ready(struct kvmm_pool *pool, struct list_head *ready,
			      struct list_head *ended)
{
	while (!list_empty(ready)) {
		kvmm_finish_batch(pool, ready, ended);
		cond_resched();
	}
}

/** kvmm_done_work() - the worker */
void kvmm_done_work(struct work_struct *work)
{
	struct kvmm_pool *pool = container_of(work, struct kvmm_pool,
					      done_work);
	struct llist_node *list = llist_del_all(&pool->done_list);
	struct kvmm_cmd *cmd, *next_cmd;
	struct kvmm_op *op, *next_op;
	LIST_HEAD(ready);
	LIST_HEAD(ended);
	bool late;

	list = llist_reverse_order(list);
	llist_for_each_entry_safe(op, next_op, list, done) {
		if (!kvmm_op_complete(op))
			continue;
		if (op->late)
			kvmm_op_finish_late(op);
		else if (list_empty(&op->cmd->ready))
			list_add_tail(&op->cmd->ready, &ready);
		cond_resched();
	}
	kvmm_finish_ready(pool, &ready, &ended);
	for (late = xchg(&pool->look_for_late, false); late; ) {
		late = kvmm_late_batch(pool, &ready, &ended);
		kvmm_finish_ready(pool, &ready, &ended);
	}
	/* From here on the pool is not touched: it may go with its commands. */
	list_for_each_entry_safe(cmd, next_cmd, &ended, ended) {
		if (cmd->end)
			cmd->end(cmd);
		else
			complete(&cmd->done);
	}
}

/**
 * kvmm_swap_drain() - wait for all ops of a pool that begins no more
 * @pool: the pool, dead
 *
 * Late ones too: the device has the frames.
 */
void kvmm_swap_drain(struct kvmm_pool *pool)
{
	wait_event_idle(pool->wait, !READ_ONCE(pool->nr_inflight));
	/* See kvmm_op_put(). */
	synchronize_rcu();
	cancel_delayed_work_sync(&pool->late_work);
	cancel_work_sync(&pool->done_work);
}
