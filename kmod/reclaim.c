// SPDX-License-Identifier: GPL-2.0
/*
 * Making room: the coldest blocks are written out or given up.
 *
 * Batches go in lockstep: the next one is asked for when the one before has
 * ended.  So which blocks go depends on the calls alone, not on the device.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "kvmm_mod.h"
#include "swap.h"

/**
 * struct kvmm_reclaim_batch - one batch of writes
 * @cmd: the command
 * @io: the core's decisions
 */
struct kvmm_reclaim_batch {
	struct kvmm_cmd cmd;
	struct kvmm_io io[KVMM_CORE_BATCH];
};

static u32 kvmm_area_start_writes(struct kvmm_area *area, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (!kvmm_area_start_write(area))
			break;
	return i;
}

/*
 * Have the core pick up to @room blocks and start their writes.  Returns how
 * many, 0 when there is nothing to do now; or -errno.
 */
static int kvmm_reclaim_issue(struct kvmm_reclaim_batch *b, u32 keep, u32 room,
			      struct kvmm_reclaim_count *count)
{
	struct kvmm_pool *pool = b->cmd.pool;
	struct kvmm_op *op;
	int ret = 0;
	u32 had, may, n, i;
	LIST_HEAD(ops);
	LIST_HEAD(submit);

	had = kvmm_ops_alloc(pool, &ops, room);
	if (!had)
		return -ENOMEM;

	mutex_lock(&pool->lock);
	if (pool->dead) {
		ret = -ENODEV;
		goto out;
	}
	may = had;
	if (pool->area) {
		may = kvmm_area_start_writes(pool->area, had);
		/* Frozen: what could be written now stays where it is. */
		if (!may)
			goto out;
	}
	n = kvmm_core_reclaim(&pool->core, keep, kvmm_pool_now(pool), b->io,
			      may, count);
	for (i = 0; i < n; i++) {
		op = list_first_entry(&ops, struct kvmm_op, submit);
		list_del(&op->submit);
		op->io = b->io[i];
		kvmm_op_begin(op, &b->cmd, i, true, &submit);
	}
	for (; pool->area && i < may; i++)
		kvmm_area_end_write(pool->area);
	ret = n;
out:
	mutex_unlock(&pool->lock);
	kvmm_ops_submit(&submit);
	kvmm_ops_free(&ops);
	return ret;
}

static void kvmm_reclaim_end(struct kvmm_cmd *cmd)
{
	kfree(container_of(cmd, struct kvmm_reclaim_batch, cmd));
}

/**
 * kvmm_reclaim_start() - start to make room, and don't wait
 * @pool: the pool
 * @want: frames wanted
 *
 * Return: frames that came free at once.
 */
u32 kvmm_reclaim_start(struct kvmm_pool *pool, u32 want)
{
	struct kvmm_reclaim_count count = {};
	struct kvmm_reclaim_batch *b;
	u32 used;

	b = kmalloc(sizeof(*b), GFP_KERNEL | __GFP_NOWARN);
	if (!b)
		return 0;
	want = min_t(u32, want, KVMM_CORE_BATCH);
	mutex_lock(&pool->lock);
	used = pool->dead ? 0 : kvmm_core_frames_used(&pool->core);
	mutex_unlock(&pool->lock);

	kvmm_cmd_init(&b->cmd, pool, kvmm_reclaim_end);
	if (used)
		kvmm_reclaim_issue(b, used - min(want, used), want, &count);
	if (kvmm_cmd_issued(&b->cmd))
		kvmm_reclaim_end(&b->cmd);
	return count.evicted + count.purged;
}

/*
 * Nothing more to hand out, but writes of others may free the frames to come.
 */
static int kvmm_reclaim_wait(struct kvmm_pool *pool, u32 keep, bool *more)
{
	u64 seq;

	mutex_lock(&pool->lock);
	*more = !pool->dead && pool->core.writing &&
		kvmm_core_frames_used(&pool->core) > keep;
	seq = pool->io_seq;
	mutex_unlock(&pool->lock);
	if (!*more)
		return 0;
	return kvmm_pool_wait(pool, READ_ONCE(pool->io_seq) != seq ||
				    READ_ONCE(pool->dead));
}

int kvmm_do_reclaim(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_reclaim *a = arg;
	struct kvmm_reclaim_count count = {};
	struct kvmm_reclaim_batch *b;
	bool more = true;
	int ret = 0;

	if (a->flags)
		return -EINVAL;
	b = kmalloc(sizeof(*b), GFP_KERNEL);
	if (!b)
		return -ENOMEM;
	while (more) {
		kvmm_cmd_init(&b->cmd, pool, NULL);
		count.more = false;
		ret = kvmm_reclaim_issue(b, a->keep, KVMM_CORE_BATCH, &count);
		kvmm_cmd_wait(&b->cmd);
		count.evicted += b->cmd.evicted;
		if (!ret && !count.more)
			ret = kvmm_reclaim_wait(pool, a->keep, &more);
		if (ret < 0)
			break;
		ret = 0;
		if (task_sigpending(current)) {
			ret = -EINTR;
			break;
		}
	}
	kfree(b);

	mutex_lock(&pool->lock);
	if (pool->dead)
		ret = -ENODEV;
	else
		a->in_use = kvmm_core_frames_used(&pool->core);
	mutex_unlock(&pool->lock);
	a->evicted = count.evicted;
	a->purged = count.purged;
	return ret;
}
