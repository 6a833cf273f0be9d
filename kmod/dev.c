// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/kvmm: file operations and the one table that all ioctls go through.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/uaccess.h>

#include "arena.h"
#include "batch.h"
#include "export.h"
#include "kvmm_mod.h"
#include "populate.h"
#include "swap.h"

/* What a command asks of its client; one of these... */
#define KVMM_ANY	0
#define KVMM_BOUND	1		/* bound to a pool that exists */
#define KVMM_WRITER	2		/* and not read-only */
#define KVMM_CLIENT	3
/* ...and maybe: its struct is only read */
#define KVMM_IN		4

union kvmm_arg {
	struct kvmm_info info;
	struct kvmm_pool_create pool_create;
	struct kvmm_pool_open pool_open;
	struct kvmm_pool_destroy pool_destroy;
	struct kvmm_pool_list pool_list;
	struct kvmm_pool_reset pool_reset;
	struct kvmm_pool_stat pool_stat;
	struct kvmm_pool_clock pool_clock;
	struct kvmm_populate populate;
	struct kvmm_swap_attach swap_attach;
	struct kvmm_swap_detach swap_detach;
	struct kvmm_alloc alloc;
	struct kvmm_publish publish;
	struct kvmm_lookup lookup;
	struct kvmm_batch batch;
	struct kvmm_keys keys;
	struct kvmm_request_end request_end;
	struct kvmm_hint hint;
	struct kvmm_reclaim reclaim;
	struct kvmm_swap swap;
	struct kvmm_events events;
	struct kvmm_export export;
	struct kvmm_export_call export_call;
	struct kvmm_lease lease;
};

/**
 * struct kvmm_ioctl - one command, at its number in the table
 * @size: sizeof() its struct today
 * @min_size: sizeof() its struct when it was first published
 * @needs: KVMM_ANY, KVMM_BOUND or KVMM_WRITER; KVMM_IN
 * @execute: carries it out; the struct goes back to the caller also when it
 *	fails
 * @told: called after that, with what the command returns; may be NULL
 */
struct kvmm_ioctl {
	unsigned int size;
	unsigned int min_size;
	unsigned int needs;
	int (*execute)(struct kvmm_client *client, struct file *file,
		       void *arg);
	void (*told)(struct kvmm_client *client, void *arg, int err);
};

#define KVMM_IOCTL(_cmd, _arg, _min_size, _needs, _execute)		\
	KVMM_IOCTL_TOLD(_cmd, _arg, _min_size, _needs, _execute, NULL)

#define KVMM_IOCTL_TOLD(_cmd, _arg, _min_size, _needs, _execute, _told)	\
	[_IOC_NR(_cmd)] = {						\
		.size = sizeof_field(union kvmm_arg, _arg),		\
		.min_size = (_min_size),				\
		.needs = (_needs),					\
		.execute = (_execute),					\
		.told = (_told),					\
	}

static const struct kvmm_ioctl kvmm_ioctls[] = {
	KVMM_IOCTL(KVMM_INFO, info, 80, KVMM_ANY, kvmm_do_info),
	KVMM_IOCTL(KVMM_POOL_CREATE, pool_create, 136, KVMM_ANY,
		   kvmm_do_pool_create),
	KVMM_IOCTL(KVMM_POOL_OPEN, pool_open, 104, KVMM_ANY,
		   kvmm_do_pool_open),
	KVMM_IOCTL(KVMM_POOL_DESTROY, pool_destroy, 72, KVMM_ANY | KVMM_IN,
		   kvmm_do_pool_destroy),
	KVMM_IOCTL(KVMM_POOL_LIST, pool_list, 32, KVMM_ANY, kvmm_do_pool_list),
	KVMM_IOCTL(KVMM_POOL_RESET, pool_reset, 16, KVMM_WRITER,
		   kvmm_do_pool_reset),
	KVMM_IOCTL(KVMM_POOL_STAT, pool_stat, 448, KVMM_BOUND,
		   kvmm_do_pool_stat),
	KVMM_IOCTL(KVMM_POOL_CLOCK, pool_clock, 16, KVMM_WRITER | KVMM_IN,
		   kvmm_do_pool_clock),
	KVMM_IOCTL(KVMM_POPULATE, populate, 24, KVMM_WRITER, kvmm_do_populate),
	KVMM_IOCTL(KVMM_SWAP_ATTACH, swap_attach, 32, KVMM_WRITER,
		   kvmm_do_swap_attach),
	KVMM_IOCTL(KVMM_SWAP_DETACH, swap_detach, 8, KVMM_WRITER | KVMM_IN,
		   kvmm_do_swap_detach),
	KVMM_IOCTL(KVMM_ALLOC, alloc, 32, KVMM_WRITER, kvmm_do_alloc),
	KVMM_IOCTL(KVMM_PUBLISH, publish, 24, KVMM_WRITER, kvmm_do_publish),
	KVMM_IOCTL(KVMM_LOOKUP, lookup, 32, KVMM_BOUND, kvmm_do_lookup),
	KVMM_IOCTL(KVMM_TOUCH, batch, 24, KVMM_BOUND, kvmm_do_touch),
	KVMM_IOCTL(KVMM_PIN, batch, 24, KVMM_BOUND, kvmm_do_pin),
	KVMM_IOCTL(KVMM_UNPIN, batch, 24, KVMM_BOUND, kvmm_do_unpin),
	KVMM_IOCTL(KVMM_DROP, batch, 24, KVMM_WRITER, kvmm_do_drop),
	KVMM_IOCTL(KVMM_QUERY, batch, 24, KVMM_BOUND, kvmm_do_query),
	KVMM_IOCTL(KVMM_KEYS, keys, 32, KVMM_BOUND, kvmm_do_keys),
	KVMM_IOCTL(KVMM_REQUEST_END, request_end, 24, KVMM_WRITER,
		   kvmm_do_request_end),
	KVMM_IOCTL(KVMM_HINT, hint, 32, KVMM_WRITER, kvmm_do_hint),
	KVMM_IOCTL(KVMM_RECLAIM, reclaim, 24, KVMM_WRITER, kvmm_do_reclaim),
	KVMM_IOCTL(KVMM_SWAP_OUT, swap, 32, KVMM_WRITER, kvmm_do_swap_out),
	KVMM_IOCTL_TOLD(KVMM_SWAP_IN, swap, 32, KVMM_BOUND, kvmm_do_swap_in,
			kvmm_swap_in_told),
	KVMM_IOCTL(KVMM_EVENTS, events, 24, KVMM_BOUND | KVMM_IN,
		   kvmm_do_events),
	KVMM_IOCTL_TOLD(KVMM_EXPORT, export, 24, KVMM_BOUND, kvmm_do_export,
			kvmm_export_told),
	KVMM_IOCTL(KVMM_LEASE, lease, 24, KVMM_BOUND, kvmm_do_lease),
};

static int kvmm_check_client(struct kvmm_client *client, unsigned int needs)
{
	struct kvmm_pool *pool;

	needs &= KVMM_CLIENT;
	if (needs == KVMM_ANY)
		return 0;
	pool = kvmm_client_pool(client);
	if (!pool)
		return -ENOTCONN;
	/* Only an early answer: who takes the pool's lock looks again. */
	if (READ_ONCE(pool->dead))
		return -ENODEV;
	if (needs == KVMM_WRITER && client->rdonly)
		return -EACCES;
	return 0;
}

static long kvmm_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
{
	struct kvmm_client *client = file->private_data;
	void __user *ptr = (void __user *)uarg;
	unsigned int nr = _IOC_NR(cmd);
	const struct kvmm_ioctl *op;
	union kvmm_arg arg;
	u32 usize;
	int ret;

	if (nr >= ARRAY_SIZE(kvmm_ioctls))
		return -ENOTTY;
	op = &kvmm_ioctls[array_index_nospec(nr, ARRAY_SIZE(kvmm_ioctls))];
	if (!op->execute || cmd != _IO(KVMM_IOCTL_TYPE, nr))
		return -ENOTTY;

	if (get_user(usize, (u32 __user *)ptr))
		return -EFAULT;
	if (usize < op->min_size)
		return -EINVAL;
	if (usize > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(&arg, op->size, ptr, usize);
	if (ret)
		return ret;
	/* The caller's own: it may have changed in user memory meanwhile. */
	*(u32 *)&arg = usize;

	ret = kvmm_check_client(client, op->needs);
	if (ret)
		return ret;
	if (op->needs & KVMM_IN)
		return op->execute(client, file, &arg);
	/* First see that it can be written: what is done can't be undone. */
	if (copy_to_user(ptr, &arg, min(usize, op->size)))
		return -EFAULT;
	ret = op->execute(client, file, &arg);
	if (copy_to_user(ptr, &arg, min(usize, op->size)) && !ret)
		ret = -EFAULT;
	if (op->told)
		op->told(client, &arg, ret);
	return ret;
}

static int kvmm_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct kvmm_client *client = file->private_data;
	int ret;

	ret = kvmm_check_client(client, KVMM_BOUND);
	if (ret)
		return ret;
	return kvmm_arena_mmap(client->pool, vma, client->rdonly);
}

/* The arena's own choice of address, so that huge pages can be mapped whole. */
static unsigned long kvmm_get_unmapped_area(struct file *file,
					    unsigned long addr,
					    unsigned long len,
					    unsigned long pgoff,
					    unsigned long flags)
{
	struct kvmm_client *client = file->private_data;
	struct file *arena;
	int ret;

	ret = kvmm_check_client(client, KVMM_BOUND);
	if (ret)
		return ret;
	arena = client->pool->arena.file;
	return arena->f_op->get_unmapped_area(arena, addr, len, pgoff, flags);
}

const struct file_operations kvmm_fops = {
	.owner = THIS_MODULE,
	.open = kvmm_open,
	.release = kvmm_release,
	.unlocked_ioctl = kvmm_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = kvmm_mmap,
	.get_unmapped_area = kvmm_get_unmapped_area,
	.uring_cmd = kvmm_uring_cmd,
	.read_iter = kvmm_event_read,
	.poll = kvmm_event_poll,
};
