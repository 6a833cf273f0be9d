// SPDX-License-Identifier: MIT
/*
 * Has each kind of bug that a debug kernel is there to find, so that one can
 * see that it does find it:
 *
 *   echo uaf >/sys/module/kvmm_bugmod/parameters/bug
 *
 * A bug that the kernel has no means to find gives -EOPNOTSUPP.
 */
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/timer.h>

static DEFINE_MUTEX(lock_a);
static DEFINE_MUTEX(lock_b);
static DEFINE_SPINLOCK(spin);

/* Not known to the compiler, which would drop or reject the bugs. */
static volatile int zero;
static void *volatile lost;

static int bug_uaf(void)
{
	volatile char *p = kmalloc(100, GFP_KERNEL);

	if (!p)
		return -ENOMEM;
	kfree((void *)p);
	zero += p[10] & 0;
	return 0;
}

static int bug_oob(void)
{
	volatile char *p = kmalloc(100, GFP_KERNEL);

	if (!p)
		return -ENOMEM;
	p[100 + zero] = 1;
	kfree((void *)p);
	return 0;
}

static int bug_double_free(void)
{
	lost = kmalloc(100, GFP_KERNEL);
	kfree(lost);
	kfree(lost);
	lost = NULL;
	return 0;
}

/* Both orders, one after the other: nothing hangs, and lockdep still knows. */
static int bug_lock_order(void)
{
	mutex_lock(&lock_a);
	mutex_lock(&lock_b);
	mutex_unlock(&lock_b);
	mutex_unlock(&lock_a);
	mutex_lock(&lock_b);
	mutex_lock(&lock_a);
	mutex_unlock(&lock_a);
	mutex_unlock(&lock_b);
	return 0;
}

static int bug_leak(void)
{
	int i;

	/* more than one: an old copy of a pointer may still lie on a stack */
	for (i = 0; i < 10; i++)
		lost = kmalloc(1000, GFP_KERNEL);
	lost = NULL;
	return 0;
}

static int bug_shift(void)
{
	zero = 64 + (zero & 1);
	zero = 1 << zero;
	zero = 0;
	return 0;
}

static int bug_bounds(void)
{
	static int array[4];

	array[4 + zero] = 1;
	return 0;
}

static int bug_list(void)
{
	LIST_HEAD(head);
	struct list_head one;

	list_add(&one, &head);
	list_add(&one, &head);
	return 0;
}

static int bug_sleep(void)
{
	if (!IS_ENABLED(CONFIG_DEBUG_ATOMIC_SLEEP))
		return -EOPNOTSUPP;
	spin_lock(&spin);
	might_sleep();
	spin_unlock(&spin);
	return 0;
}

static void no_timer(struct timer_list *t)
{
}

static int bug_object(void)
{
	struct timer_list *t = kmalloc(sizeof(*t), GFP_KERNEL);

	if (!t)
		return -ENOMEM;
	timer_setup(t, no_timer, 0);
	mod_timer(t, jiffies + 100 * HZ);
	kfree(t);		/* while it runs */
	return 0;
}

/* No bug: what fault injection makes fail. */
static int bug_alloc(void)
{
	void *p = kmalloc(100, GFP_KERNEL);

	if (!p)
		return -ENOMEM;
	kfree(p);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(void);
} bugs[] = {
	{ "uaf", bug_uaf },
	{ "oob", bug_oob },
	{ "double_free", bug_double_free },
	{ "lock_order", bug_lock_order },
	{ "leak", bug_leak },
	{ "shift", bug_shift },
	{ "bounds", bug_bounds },
	{ "list", bug_list },
	{ "sleep", bug_sleep },
	{ "object", bug_object },
	{ "alloc", bug_alloc },
};

static int bug_set(const char *val, const struct kernel_param *kp)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(bugs); i++)
		if (sysfs_streq(val, bugs[i].name))
			return bugs[i].run();
	return -EINVAL;
}

static const struct kernel_param_ops bug_ops = { .set = bug_set };
module_param_cb(bug, &bug_ops, NULL, 0200);

static int __init bugmod_init(void)
{
	return 0;
}

static void __exit bugmod_exit(void)
{
}

module_init(bugmod_init);
module_exit(bugmod_exit);
MODULE_DESCRIPTION("has bugs on request");
MODULE_LICENSE("Dual MIT/GPL");
