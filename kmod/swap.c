// SPDX-License-Identifier: GPL-2.0
/*
 * Swap commands: what ioctls and io_uring commands have in common, and the
 * ioctls.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "batch.h"
#include "kvmm_mod.h"
#include "poison.h"
#include "swap.h"

/** kvmm_swap_check() - is a command well-formed; 0 or -EINVAL */
int kvmm_swap_check(const struct kvmm_swap_cmd *sc, bool out)
{
	u32 flags = KVMM_SWAP_ONE | (out ? KVMM_SWAP_DROP : KVMM_SWAP_PIN);

	if (sc->flags & ~flags || !sc->count || sc->count > KVMM_MAX_BATCH)
		return -EINVAL;
	if (sc->flags & KVMM_SWAP_ONE && sc->count != 1)
		return -EINVAL;
	return 0;
}

static int kvmm_swap_out_one(struct kvmm_cmd *cmd, struct kvmm_op *op,
			     u64 handle, u32 flags)
{
	struct kvmm_pool *pool = cmd->pool;
	bool writing = false;
	int ret;

	if (pool->area) {
		/* Frozen: the block is as it was, and nobody is kept waiting. */
		if (!kvmm_area_start_write(pool->area))
			return -EBUSY;
		writing = true;
	}
	ret = kvmm_core_swap_out(&pool->core, handle, flags & KVMM_SWAP_DROP,
				 kvmm_pool_now(pool), &op->io);
	if (writing && ret != KVMM_IO_ISSUE)
		kvmm_area_end_write(pool->area);
	return ret;
}

/**
 * kvmm_swap_handles() - read the handles of a command, all of them
 * @sc: the command, well-formed
 * @write_back: see to it that the references can be written, too
 * @handles: room for as many as there are
 *
 * Return: 0 or -EFAULT; no block was touched.
 */
int kvmm_swap_handles(const struct kvmm_swap_cmd *sc, bool write_back,
		      u64 *handles)
{
	struct kvmm_block_ref __user *user = u64_to_user_ptr(sc->addr);
	struct kvmm_block_ref refs[8];
	u32 at, n, i;

	if (sc->flags & KVMM_SWAP_ONE) {
		handles[0] = sc->addr;
		return 0;
	}
	for (at = 0; at < sc->count; at += n) {
		size_t bytes;

		n = min_t(u32, sc->count - at, ARRAY_SIZE(refs));
		bytes = n * sizeof(*refs);
		if (copy_from_user(refs, user + at, bytes) ||
		    (write_back && copy_to_user(user + at, refs, bytes)))
			return -EFAULT;
		for (i = 0; i < n; i++)
			handles[at + i] = refs[i].handle;
	}
	return 0;
}

static bool kvmm_issue(struct kvmm_cmd *cmd, const struct kvmm_swap_req *req,
		       const u64 *handles, u32 n, u32 first, bool last)
{
	struct kvmm_pool *pool = cmd->pool;
	bool ended = false;
	u32 no_room = 0;
	u32 had, i;
	LIST_HEAD(ops);
	LIST_HEAD(submit);

	had = kvmm_ops_alloc(pool, &ops, n);

	mutex_lock(&pool->lock);
	for (i = 0; i < n; i++) {
		struct kvmm_op *op;
		int ret;

		if (pool->dead || i >= had) {
			kvmm_cmd_entry(cmd, first + i,
				       pool->dead ? -ENODEV : -ENOMEM);
			continue;
		}
		if (kvmm_poison_pending())
			kvmm_poison_look(pool, handles[i]);
		op = list_first_entry(&ops, struct kvmm_op, submit);
		if (req->out)
			ret = kvmm_swap_out_one(cmd, op, handles[i],
						req->flags);
		else
			ret = kvmm_core_swap_in(&pool->core, req->client,
						handles[i],
						req->flags & KVMM_SWAP_PIN,
						kvmm_pool_now(pool), &op->io);
		if (!req->out && ret == KVMM_IO_ISSUE && kvmm_poison_ever())
			ret = kvmm_poison_elsewhere(pool, &op->io);
		switch (ret) {
		case KVMM_IO_ISSUE:
			list_del(&op->submit);
			kvmm_op_begin(op, cmd, first + i, req->out, &submit);
			break;
		case KVMM_IO_JOIN:
			list_del(&op->submit);
			kvmm_op_join(op, cmd, first + i);
			break;
		default:
			/* KVMM_IO_NONE or an error: the op serves the next. */
			no_room += !req->out && ret == -EAGAIN;
			kvmm_cmd_entry(cmd, first + i, min(ret, 0));
		}
	}
	if (!pool->dead)
		kvmm_writeback_kick(pool);
	/* From here on only ops that are to be submitted keep the pool. */
	if (last && !no_room)
		ended = kvmm_cmd_drop(cmd);
	mutex_unlock(&pool->lock);

	kvmm_ops_submit(&submit);
	kvmm_ops_free(&ops);
	if (no_room) {
		kvmm_reclaim_start(pool, no_room);
		if (last)
			ended = kvmm_cmd_issued(cmd);
	}
	return ended;
}

/**
 * kvmm_swap_issue() - start moving blocks
 * @cmd: the command
 * @req: what is asked for
 * @handles: the blocks
 * @n: how many, at most KVMM_CORE_BATCH
 * @first: number of the first entry
 */
void kvmm_swap_issue(struct kvmm_cmd *cmd, const struct kvmm_swap_req *req,
		     const u64 *handles, u32 n, u32 first)
{
	kvmm_issue(cmd, req, handles, n, first, false);
}

/**
 * kvmm_swap_issue_last() - kvmm_swap_issue() and kvmm_cmd_issued() in one
 * @cmd: the command
 * @req: what is asked for
 * @handles: the blocks
 * @n: how many, at most KVMM_CORE_BATCH
 * @first: number of the first entry
 *
 * Return: as kvmm_cmd_issued().
 */
bool kvmm_swap_issue_last(struct kvmm_cmd *cmd,
			  const struct kvmm_swap_req *req, const u64 *handles,
			  u32 n, u32 first)
{
	return kvmm_issue(cmd, req, handles, n, first, true);
}

/*
 * A synchronous command.  Up to KVMM_CORE_BATCH blocks start together; of more,
 * half as many start whenever no more than that are under way, so that the
 * device has something to do while others are looked at.
 */
struct kvmm_swap_sync {
	struct kvmm_cmd cmd;
	struct kvmm_block_ref refs[KVMM_CORE_BATCH];
	u64 handles[];		/* then the results */
};

static void kvmm_swap_move(struct kvmm_client *client,
			   struct kvmm_swap_sync *s, bool out, u32 flags,
			   u32 count)
{
	const struct kvmm_swap_req req = { client->id, flags, out };
	u32 step = count;
	u32 at;

	if (step > KVMM_CORE_BATCH)
		step = KVMM_CORE_BATCH / 2;
	for (at = 0; count - at > step; ) {
		kvmm_swap_issue(&s->cmd, &req, s->handles + at, step, at);
		at += step;
		kvmm_cmd_throttle(&s->cmd, step);
		cond_resched();
		if (fatal_signal_pending(current)) {
			while (at < count)
				s->cmd.results[at++] = -EINTR;
			kvmm_cmd_wait(&s->cmd);
			return;
		}
	}
	if (!kvmm_swap_issue_last(&s->cmd, &req, s->handles + at, count - at,
				  at))
		wait_for_completion(&s->cmd.done);
}

/* Fill in where @n blocks from number @at on are.  Return: how many are good. */
static u32 kvmm_swap_result(struct kvmm_client *client,
			    struct kvmm_swap_sync *s, u32 at, u32 n)
{
	struct kvmm_pool *pool = client->pool;
	u32 good = 0;
	bool dead;
	u32 i;

	memset(s->refs, 0, n * sizeof(*s->refs));
	for (i = 0; i < n; i++)
		s->refs[i].handle = s->handles[at + i];
	mutex_lock(&pool->lock);
	dead = pool->dead;
	if (!dead)
		kvmm_core_query(&pool->core, kvmm_pool_now(pool), s->refs, n);
	mutex_unlock(&pool->lock);
	for (i = 0; i < n; i++) {
		struct kvmm_block_ref *ref = &s->refs[i];

		if (dead || ref->result < 0)
			ref->frame = KVMM_NO_FRAME;
		/* What was moved is gone with the pool. */
		ref->result = dead ? -ENODEV : s->cmd.results[at + i];
		good += ref->result >= 0;
	}
	return good;
}

static int kvmm_swap_results(struct kvmm_client *client,
			     struct kvmm_swap_sync *s, struct kvmm_swap *a,
			     bool pin)
{
	struct kvmm_block_ref __user *user = u64_to_user_ptr(a->cmd.addr);
	int ret = 0;
	u32 at, n;

	for (at = 0; at < a->cmd.count; at += n) {
		n = min_t(u32, a->cmd.count - at, KVMM_CORE_BATCH);
		a->done += kvmm_swap_result(client, s, at, n);
		if (a->cmd.flags & KVMM_SWAP_ONE) {
			a->result = s->refs[0].result;
		} else if (copy_to_user(user + at, s->refs,
					n * sizeof(*user))) {
			if (pin)
				kvmm_unpin_untold(client, s->refs, n);
			ret = -EFAULT;
		}
		cond_resched();
	}
	return ret;
}

static int kvmm_do_swap(struct kvmm_client *client, struct kvmm_swap *a,
			bool out)
{
	u32 count = a->cmd.count;
	struct kvmm_swap_sync *s;
	int ret;

	a->done = 0;
	a->result = 0;
	if (a->flags)
		return -EINVAL;
	ret = kvmm_swap_check(&a->cmd, out);
	if (ret)
		return ret;
	s = kvmalloc(sizeof(*s) + count * (sizeof(*s->handles) +
					   sizeof(*s->cmd.results)),
		     GFP_KERNEL_ACCOUNT);
	if (!s)
		return -ENOMEM;
	kvmm_cmd_init(&s->cmd, client->pool, NULL);
	s->cmd.results = (s32 *)(s->handles + count);
	ret = kvmm_swap_handles(&a->cmd, true, s->handles);
	if (ret)
		goto out;
	kvmm_swap_move(client, s, out, a->cmd.flags, count);
	ret = kvmm_swap_results(client, s, a,
				!out && a->cmd.flags & KVMM_SWAP_PIN);
	if (!ret && !a->done && READ_ONCE(client->pool->dead))
		ret = -ENODEV;
out:
	kvfree(s);
	return ret;
}

int kvmm_do_swap_out(struct kvmm_client *client, struct file *file, void *arg)
{
	return kvmm_do_swap(client, arg, true);
}

int kvmm_do_swap_in(struct kvmm_client *client, struct file *file, void *arg)
{
	return kvmm_do_swap(client, arg, false);
}

/**
 * kvmm_swap_in_told() - the caller knows of its pin, or never will
 * @client: the caller
 * @arg: the command's struct
 * @err: 0 or what the command returns
 *
 * Of one block, the result is in the struct, which can't be written any more.
 */
void kvmm_swap_in_told(struct kvmm_client *client, void *arg, int err)
{
	const u32 flags = KVMM_SWAP_ONE | KVMM_SWAP_PIN;
	const struct kvmm_swap *a = arg;
	struct kvmm_block_ref ref = { .handle = a->cmd.addr };

	if (err == -EFAULT && a->cmd.flags == flags && a->done)
		kvmm_unpin_untold(client, &ref, 1);
}
