// SPDX-License-Identifier: GPL-2.0
/*
 * kvmm: load and unload, parameters, the device node.
 */
#include <linux/miscdevice.h>
#include <linux/module.h>

#include "kvmm_mod.h"

unsigned int kvmm_max_pools = KVMM_MAX_POOLS;
module_param_named(max_pools, kvmm_max_pools, uint, 0644);
MODULE_PARM_DESC(max_pools,
		 "Pools that can exist at once, at most 256 (default 256)");

unsigned long kvmm_max_bytes;
module_param_named(max_bytes, kvmm_max_bytes, ulong, 0644);
MODULE_PARM_DESC(max_bytes,
		 "Bytes that all pools together may hold pinned; 0: no limit (default)");

/* Completions, in order; and I/O that could not be issued without blocking. */
struct workqueue_struct *kvmm_done_wq;
struct workqueue_struct *kvmm_issue_wq;
/* Zeroing memory. */
struct workqueue_struct *kvmm_populate_wq;

static struct miscdevice kvmm_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kvmm",
	.fops = &kvmm_fops,
	.mode = 0660,
};

static int __init kvmm_init(void)
{
	int ret;

	kvmm_done_wq = alloc_workqueue("kvmm_done",
				       WQ_UNBOUND | WQ_HIGHPRI | WQ_MEM_RECLAIM,
				       0);
	if (!kvmm_done_wq)
		return -ENOMEM;
	kvmm_issue_wq = alloc_workqueue("kvmm_issue",
					WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!kvmm_issue_wq) {
		ret = -ENOMEM;
		goto err_done_wq;
	}
	kvmm_populate_wq = alloc_workqueue("kvmm_populate", WQ_UNBOUND, 0);
	if (!kvmm_populate_wq) {
		ret = -ENOMEM;
		goto err_issue_wq;
	}
	ret = kvmm_sysfs_init();
	if (ret)
		goto err_populate_wq;
	ret = misc_register(&kvmm_misc);
	if (ret)
		goto err_sysfs;
	return 0;

err_sysfs:
	kvmm_sysfs_exit();
err_populate_wq:
	destroy_workqueue(kvmm_populate_wq);
err_issue_wq:
	destroy_workqueue(kvmm_issue_wq);
err_done_wq:
	destroy_workqueue(kvmm_done_wq);
	return ret;
}

/* Each pool and each open file holds the module, so there is none left. */
static void __exit kvmm_exit(void)
{
	misc_deregister(&kvmm_misc);
	kvmm_sysfs_exit();
	destroy_workqueue(kvmm_populate_wq);
	destroy_workqueue(kvmm_issue_wq);
	destroy_workqueue(kvmm_done_wq);
}

module_init(kvmm_init);
module_exit(kvmm_exit);

MODULE_DESCRIPTION("Memory manager for the key/value blocks of LLM servers");
MODULE_AUTHOR("the kvmm authors");
MODULE_LICENSE("GPL");
MODULE_VERSION(KVMM_VERSION);
MODULE_SOFTDEP("pre: crc32c");
