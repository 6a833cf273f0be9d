// SPDX-License-Identifier: MIT
/*
 * Misbehaves on request, so that the VM harness can be tested: everything that
 * must fail a run is made to happen once.
 *
 *   insmod kvmm_badmod.ko what=warn|bug|oops|stuck
 */
#include <linux/completion.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/string.h>

static char *what = "";
module_param(what, charp, 0444);

static int __init badmod_init(void)
{
	DECLARE_COMPLETION_ONSTACK(never);

	if (!strcmp(what, "warn"))
		WARN(1, "asked for\n");
	else if (!strcmp(what, "bug"))
		BUG();
	else if (!strcmp(what, "oops"))
		WRITE_ONCE(*(volatile int *)8, 1);
	else if (!strcmp(what, "stuck"))
		wait_for_completion(&never);
	else if (*what)
		return -EINVAL;
	return 0;
}

static void __exit badmod_exit(void)
{
}

module_init(badmod_init);
module_exit(badmod_exit);
MODULE_DESCRIPTION("misbehaves on request");
MODULE_LICENSE("Dual MIT/GPL");
