// SPDX-License-Identifier: GPL-2.0
/*
 * Trying a swap area before it is used: real I/O, in a worker, for the device
 * may hang.
 */
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "kvmm_mod.h"
#include "swap.h"

static ssize_t kvmm_area_probe_io(struct kvmm_area *area, bool write,
				  struct page *page, size_t len)
{
	struct file *file = area->file;
	struct bio_vec bvec = { .bv_page = page, .bv_len = len };
	struct kiocb iocb = {
		.ki_filp = file,
		.ki_pos = area->offset,
		.ki_flags = IOCB_DIRECT | (write ? IOCB_WRITE : 0),
	};
	struct iov_iter iter;
	ssize_t ret;

	iov_iter_bvec(&iter, write ? WRITE : READ, &bvec, 1, len);
	if (write) {
		if (!kvmm_area_start_write(area))
			return -EBUSY;
		ret = file->f_op->write_iter(&iocb, &iter);
		kvmm_area_end_write(area);
	} else {
		ret = file->f_op->read_iter(&iocb, &iter);
	}
	if (ret == -EINVAL)
		return -EOPNOTSUPP;
	if (ret >= 0 && ret < len)
		return -EIO;
	/* The file system fell back to its cache. */
	if (ret > 0 && !(iocb.ki_flags & IOCB_DIRECT))
		return -EOPNOTSUPP;
	return ret;
}

/* What an area is tried with: @state says whose it is when the work is done. */
struct kvmm_probe {
	struct work_struct work;
	struct kvmm_area *area;
	struct page *page;
	size_t len;
	struct completion done;
	atomic_t state;
	int ret;
};

enum {
	KVMM_PROBE_TRYING,
	KVMM_PROBE_TRIED,	/* who attaches */
	KVMM_PROBE_GIVEN_UP,	/* nobody else */
};

/*
 * Write the start of the first slot and read it back.  What a file system says
 * of direct I/O and what it does are two things.
 */
static int kvmm_area_try(struct kvmm_probe *p)
{
	struct kvmm_area *area = p->area;
	u64 *data = page_address(p->page);
	u64 magic = get_random_u64();
	u64 start;
	ssize_t ret;
	size_t i;

	for (i = 0; i < p->len / sizeof(*data); i++)
		data[i] = magic + i;
	ret = kvmm_area_probe_io(area, true, p->page, p->len);
	if (ret < 0)
		return ret;
	memset(data, 0, p->len);
	start = ktime_get_ns();
	ret = kvmm_area_probe_io(area, false, p->page, p->len);
	if (ret < 0)
		return ret;
	area->probe_us = clamp_t(u64, div_u64(ktime_get_ns() - start,
					      NSEC_PER_USEC), 1, U32_MAX);
	for (i = 0; i < p->len / sizeof(*data); i++)
		if (data[i] != magic + i)
			return -EIO;
	return 0;
}

static void kvmm_probe_free(struct kvmm_probe *p)
{
	__free_pages(p->page, get_order(p->len));
	kfree(p);
}

static void kvmm_probe_work(struct work_struct *work)
{
	struct kvmm_probe *p = container_of(work, struct kvmm_probe, work);
	const struct cred *old = override_creds(p->area->cred);

	p->ret = kvmm_area_try(p);
	revert_creds(old);
	if (atomic_cmpxchg(&p->state, KVMM_PROBE_TRYING, KVMM_PROBE_TRIED) ==
	    KVMM_PROBE_TRYING) {
		complete(&p->done);
		return;
	}
	kvmm_area_unclaim(p->area);
	kvmm_area_free(p->area);
	kvmm_probe_free(p);
	/* Unloading waits for this work to return. */
	module_put(THIS_MODULE);
}

/**
 * kvmm_area_probe() - try an area that is claimed, and measure it
 * @areap: the area; NULL afterwards where it did not answer by the deadline, or
 *	the caller was killed: the worker lets go of it when it has
 *
 * Return: 0 or -errno.
 */
int kvmm_area_probe(struct kvmm_area **areap)
{
	struct kvmm_area *area = *areap;
	struct kvmm_probe *p;
	unsigned long timeout;
	long left;
	int ret;

	p = kzalloc(sizeof(*p), GFP_KERNEL_ACCOUNT);
	if (!p)
		return -ENOMEM;
	p->area = area;
	p->len = max_t(size_t, area->align, PAGE_SIZE);
	p->page = alloc_pages(GFP_KERNEL | __GFP_COMP, get_order(p->len));
	if (!p->page) {
		kfree(p);
		return -ENOMEM;
	}
	INIT_WORK(&p->work, kvmm_probe_work);
	init_completion(&p->done);
	atomic_set(&p->state, KVMM_PROBE_TRYING);
	/* The caller's open file holds the module until here. */
	__module_get(THIS_MODULE);
	timeout = nsecs_to_jiffies(area->timeout_ns) + 1;
	queue_work(kvmm_end_wq, &p->work);
	left = wait_for_completion_killable_timeout(&p->done, timeout);
	if (left <= 0) {
		if (atomic_cmpxchg(&p->state, KVMM_PROBE_TRYING,
				   KVMM_PROBE_GIVEN_UP) == KVMM_PROBE_TRYING) {
			*areap = NULL;
			return left ? -EINTR : -ETIMEDOUT;
		}
		wait_for_completion(&p->done);
	}
	ret = p->ret;
	kvmm_probe_free(p);
	module_put(THIS_MODULE);
	return ret;
}
