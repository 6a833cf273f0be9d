// SPDX-License-Identifier: GPL-2.0
/*
 * Files whose I/O is over before the call that submitted it has returned.
 *
 * A file system unlocks its inode, and marks the file accessed, after it has
 * queued direct I/O; by then the I/O may have ended on another CPU.  Here it
 * always has: the operations of a file are those of its file system, but who
 * has submitted is held before it returns, and then looks at the I/O once more.
 * For tests, one file at a time.  Not for production use.
 */
#include <linux/atomic.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "kvmm_laggard.h"

/* A test that died lets go. */
#define LAGGARD_LIMIT	(20 * HZ)

static DEFINE_MUTEX(laggard_lock);
static DECLARE_WAIT_QUEUE_HEAD(laggard_wait);
static bool laggard_hold;
static atomic_t laggard_inside, laggard_ended, laggard_bad;

/* The file system's, and ours, which are the same but for two. */
static const struct file_operations *laggard_real;
static struct file_operations laggard_fops;
static void (*laggard_complete)(struct kiocb *iocb, long res);

static void laggard_end(struct kiocb *iocb, long res)
{
	iocb->ki_complete = laggard_complete;
	atomic_inc(&laggard_ended);
	laggard_complete(iocb, res);
}

static ssize_t laggard_iter(struct kiocb *iocb, struct iov_iter *iter,
			    ssize_t (*real)(struct kiocb *iocb,
					    struct iov_iter *iter))
{
	struct file *file = iocb->ki_filp;
	ssize_t ret;

	if (is_sync_kiocb(iocb) || !READ_ONCE(laggard_hold))
		return real(iocb, iter);
	laggard_complete = iocb->ki_complete;
	iocb->ki_complete = laggard_end;
	ret = real(iocb, iter);
	if (ret >= 0) {
		/* It was fast: then it is as if it had been queued. */
		laggard_end(iocb, ret);
		ret = -EIOCBQUEUED;
	} else if (ret != -EIOCBQUEUED) {
		iocb->ki_complete = laggard_complete;
		return ret;
	}
	atomic_inc(&laggard_inside);
	wait_event_timeout(laggard_wait, !READ_ONCE(laggard_hold),
			   LAGGARD_LIMIT);
	/* As a file system does, to mark the file accessed. */
	if (READ_ONCE(iocb->ki_filp) != file)
		atomic_inc(&laggard_bad);
	atomic_dec(&laggard_inside);
	return ret;
}

static ssize_t laggard_read(struct kiocb *iocb, struct iov_iter *iter)
{
	return laggard_iter(iocb, iter, laggard_real->read_iter);
}

static ssize_t laggard_write(struct kiocb *iocb, struct iov_iter *iter)
{
	return laggard_iter(iocb, iter, laggard_real->write_iter);
}

static int laggard_file(void __user *arg)
{
	struct file *file;
	int ret = 0;
	s32 fd;

	if (get_user(fd, (s32 __user *)arg))
		return -EFAULT;
	file = fget(fd);
	if (!file)
		return -EBADF;
	mutex_lock(&laggard_lock);
	if (!file->f_op->read_iter || !file->f_op->write_iter ||
	    file->f_op == &laggard_fops) {
		ret = -EINVAL;
	} else if (laggard_real && laggard_real != file->f_op) {
		ret = -EBUSY;
	} else {
		/* The module of the file system is held by its mount. */
		laggard_real = file->f_op;
		laggard_fops = *laggard_real;
		laggard_fops.owner = THIS_MODULE;
		laggard_fops.read_iter = laggard_read;
		laggard_fops.write_iter = laggard_write;
		__module_get(THIS_MODULE);
		replace_fops(file, &laggard_fops);
	}
	mutex_unlock(&laggard_lock);
	fput(file);
	return ret;
}

static long laggard_ioctl(struct file *file, unsigned int cmd,
			  unsigned long arg)
{
	struct laggard_state state;

	switch (cmd) {
	case LAGGARD_FILE:
		return laggard_file((void __user *)arg);
	case LAGGARD_HOLD:
		atomic_set(&laggard_ended, 0);
		atomic_set(&laggard_bad, 0);
		WRITE_ONCE(laggard_hold, true);
		return 0;
	case LAGGARD_GO:
		WRITE_ONCE(laggard_hold, false);
		wake_up_all(&laggard_wait);
		return 0;
	case LAGGARD_STATE:
		state.inside = atomic_read(&laggard_inside);
		state.ended = atomic_read(&laggard_ended);
		state.bad = atomic_read(&laggard_bad);
		return copy_to_user((void __user *)arg, &state, sizeof(state)) ?
			-EFAULT : 0;
	}
	return -ENOTTY;
}

static const struct file_operations laggard_dev_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = laggard_ioctl,
};

static struct miscdevice laggard_dev = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kvmm-laggard",
	.fops = &laggard_dev_fops,
	.mode = 0600,
};

module_misc_device(laggard_dev);

MODULE_DESCRIPTION("Files for tests whose I/O ends before its submission");
MODULE_LICENSE("GPL");
