// SPDX-License-Identifier: GPL-2.0
/*
 * io_uring commands: the same swap commands, without waiting.
 *
 * The task that issued a command is needed for its completion entry only: the
 * blocks have long moved on when that is posted, and if it never is, for the
 * ring is gone or nobody reaps, no block waits for it.
 */
#include <linux/slab.h>

#include "compat/compat.h"
#include "kvmm_mod.h"
#include "swap.h"

struct kvmm_uring {
	struct kvmm_cmd cmd;
	struct io_uring_cmd *ioucmd;
};

static struct kmem_cache *kvmm_uring_cache;

static void kvmm_uring_ctor(void *p)
{
	struct kvmm_uring *u = p;

	kvmm_cmd_ctor(&u->cmd);
}

/** kvmm_uring_init() - make the cache, as kvmm_ops_init(); 0 or -ENOMEM */
int kvmm_uring_init(void)
{
	kvmm_uring_cache = kmem_cache_create("kvmm_uring",
					     sizeof(struct kvmm_uring), 0, 0,
					     kvmm_uring_ctor);
	return kvmm_uring_cache ? 0 : -ENOMEM;
}

/** kvmm_uring_exit() - no command is left */
void kvmm_uring_exit(void)
{
	kmem_cache_destroy(kvmm_uring_cache);
}

/* Lives in the request while its completion travels to the task. */
struct kvmm_uring_pdu {
	ssize_t res;
};

static struct kvmm_uring_pdu *kvmm_uring_pdu(struct io_uring_cmd *ioucmd)
{
	BUILD_BUG_ON(sizeof(struct kvmm_uring_pdu) > sizeof(ioucmd->pdu));
	return (struct kvmm_uring_pdu *)ioucmd->pdu;
}

static void kvmm_uring_post(struct io_uring_cmd *ioucmd,
			    unsigned int issue_flags)
{
	kvmm_uring_done(ioucmd, kvmm_uring_pdu(ioucmd)->res, issue_flags);
}

KVMM_URING_TASK_WORK(kvmm_uring_post_tw, kvmm_uring_post)

static ssize_t kvmm_uring_result(const struct kvmm_cmd *cmd)
{
	if (cmd->good)
		return cmd->good;
	return cmd->err;
}

/* From the pool's worker. */
static void kvmm_uring_end(struct kvmm_cmd *cmd)
{
	struct kvmm_uring *u = container_of(cmd, struct kvmm_uring, cmd);
	struct io_uring_cmd *ioucmd = u->ioucmd;

	kvmm_uring_pdu(ioucmd)->res = kvmm_uring_result(cmd);
	kmem_cache_free(kvmm_uring_cache, u);
	io_uring_cmd_complete_in_task(ioucmd, kvmm_uring_post_tw);
}

/* As kvmm_cmd_issued(). */
static bool kvmm_uring_issue(struct kvmm_cmd *cmd,
			     const struct kvmm_swap_req *req,
			     const u64 *handles, u32 count)
{
	u32 at = 0;

	for (; count - at > KVMM_CORE_BATCH; at += KVMM_CORE_BATCH) {
		kvmm_swap_issue(cmd, req, handles + at, KVMM_CORE_BATCH, at);
		cond_resched();
	}
	return kvmm_swap_issue_last(cmd, req, handles + at, count - at, at);
}

static int kvmm_uring_check(struct kvmm_client *client, bool out)
{
	struct kvmm_pool *pool = kvmm_client_pool(client);

	if (!pool)
		return -ENOTCONN;
	if (READ_ONCE(pool->dead))
		return -ENODEV;
	return out && client->rdonly ? -EACCES : 0;
}

/**
 * kvmm_uring_cmd() - IORING_OP_URING_CMD
 * @ioucmd: the command
 * @issue_flags: of io_uring
 *
 * Where I/O can't be issued without blocking, a worker of the module issues
 * it; so -EAGAIN, which would have io_uring issue all of the command again, is
 * never returned.
 */
int kvmm_uring_cmd(struct io_uring_cmd *ioucmd, unsigned int issue_flags)
{
	struct kvmm_client *client = ioucmd->file->private_data;
	const struct kvmm_swap_cmd *sqe = kvmm_uring_sqe_cmd(ioucmd);
	/* The entry may be in memory that the submitter can change. */
	struct kvmm_swap_cmd sc = {
		.addr = READ_ONCE(sqe->addr),
		.count = READ_ONCE(sqe->count),
		.flags = READ_ONCE(sqe->flags),
	};
	struct kvmm_swap_req req;
	struct kvmm_uring *u;
	u64 one;
	u64 *handles = &one;
	ssize_t res;
	bool ended;
	bool out;
	int ret;

	switch (ioucmd->cmd_op) {
	case KVMM_URING_SWAP_OUT:
	case KVMM_URING_SWAP_IN:
		out = ioucmd->cmd_op == KVMM_URING_SWAP_OUT;
		break;
	default:
		return -ENOTTY;
	}
	ret = kvmm_uring_check(client, out);
	if (!ret)
		ret = kvmm_swap_check(&sc, out);
	if (ret)
		return ret;

	u = kmem_cache_alloc(kvmm_uring_cache, GFP_KERNEL_ACCOUNT);
	if (!u)
		return -ENOMEM;
	if (sc.count > 1) {
		handles = kvmalloc_array(sc.count, sizeof(*handles),
					 GFP_KERNEL_ACCOUNT);
		ret = -ENOMEM;
		if (!handles)
			goto err_free;
	}
	ret = kvmm_swap_handles(&sc, false, handles);
	if (ret)
		goto err_handles;

	u->ioucmd = ioucmd;
	kvmm_cmd_start(&u->cmd, client->pool, kvmm_uring_end);
	req = (struct kvmm_swap_req) { client->id, sc.flags, out };
	ended = kvmm_uring_issue(&u->cmd, &req, handles, sc.count);
	if (handles != &one)
		kvfree(handles);
	if (ended) {
		res = kvmm_uring_result(&u->cmd);
		kmem_cache_free(kvmm_uring_cache, u);
		kvmm_uring_done(ioucmd, res, issue_flags);
	}
	return -EIOCBQUEUED;

err_handles:
	if (handles != &one)
		kvfree(handles);
err_free:
	kmem_cache_free(kvmm_uring_cache, u);
	return ret;
}
