// SPDX-License-Identifier: GPL-2.0
/*
 * kvmm: load and unload, the device node.
 */
#include <linux/miscdevice.h>
#include <linux/module.h>

#include "compat/compat.h"
#include "kvmm_mod.h"
#include "poison.h"
#include "swap.h"

/* Completions, in order; and what may have to wait for a device. */
struct workqueue_struct *kvmm_done_wq;
struct workqueue_struct *kvmm_end_wq;
/* Zeroing memory. */
struct workqueue_struct *kvmm_populate_wq;
struct workqueue_struct *kvmm_clean_wq;

static struct miscdevice kvmm_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kvmm",
	.fops = &kvmm_fops,
	.mode = 0660,
};

static int __init kvmm_init(void)
{
	int ret;

	ret = kvmm_ops_init();
	if (ret)
		return ret;
	ret = kvmm_uring_init();
	if (ret)
		goto err_ops;
	/*
	 * Where the device's interrupt was: another CPU takes long to wake.  Of
	 * no higher priority than what ends a file system's direct I/O, which
	 * it would interrupt after each block.
	 */
	kvmm_done_wq = alloc_workqueue("kvmm_done",
				       WQ_PERCPU | WQ_CPU_INTENSIVE |
				       WQ_MEM_RECLAIM, 0);
	if (!kvmm_done_wq) {
		ret = -ENOMEM;
		goto err_uring;
	}
	kvmm_end_wq = alloc_workqueue("kvmm_end", WQ_UNBOUND, WQ_MAX_ACTIVE);
	if (!kvmm_end_wq) {
		ret = -ENOMEM;
		goto err_done_wq;
	}
	kvmm_populate_wq = alloc_workqueue("kvmm_populate", WQ_UNBOUND, 0);
	if (!kvmm_populate_wq) {
		ret = -ENOMEM;
		goto err_end_wq;
	}
	kvmm_clean_wq = alloc_workqueue("kvmm_clean", WQ_UNBOUND, 0);
	if (!kvmm_clean_wq) {
		ret = -ENOMEM;
		goto err_populate_wq;
	}
	ret = kvmm_sysfs_init();
	if (ret)
		goto err_clean_wq;
	ret = kvmm_shrink_init();
	if (ret)
		goto err_sysfs;
	kvmm_poison_init();
	ret = misc_register(&kvmm_misc);
	if (ret)
		goto err_poison;
	return 0;

err_poison:
	kvmm_poison_exit();
	kvmm_shrink_exit();
err_sysfs:
	kvmm_sysfs_exit();
err_clean_wq:
	destroy_workqueue(kvmm_clean_wq);
err_populate_wq:
	destroy_workqueue(kvmm_populate_wq);
err_end_wq:
	destroy_workqueue(kvmm_end_wq);
err_done_wq:
	destroy_workqueue(kvmm_done_wq);
err_uring:
	kvmm_uring_exit();
err_ops:
	kvmm_ops_exit();
	return ret;
}

/*
 * Each pool and each open file holds the module, so there is none left; work
 * that gave up the last reference may not have returned yet.
 */
static void __exit kvmm_exit(void)
{
	misc_deregister(&kvmm_misc);
	kvmm_poison_exit();
	kvmm_shrink_exit();
	kvmm_sysfs_exit();
	destroy_workqueue(kvmm_end_wq);
	destroy_workqueue(kvmm_clean_wq);
	destroy_workqueue(kvmm_populate_wq);
	destroy_workqueue(kvmm_done_wq);
	kvmm_uring_exit();
	kvmm_ops_exit();
}

module_init(kvmm_init);
module_exit(kvmm_exit);

MODULE_DESCRIPTION("Memory manager for the key/value blocks of LLM servers");
MODULE_AUTHOR("the kvmm authors");
MODULE_LICENSE("GPL");
MODULE_VERSION(KVMM_VERSION);
MODULE_SOFTDEP("pre: crc32c");
