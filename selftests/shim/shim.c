// SPDX-License-Identifier: MIT
/*
 * Tests of gpu-shim: on host memory, and on the stand-in CUDA driver.
 *   shim [GROUP...]
 *   shim --ptx	print the copy kernel
 */
#include "fixture.h"

static const struct {
	const char *name;
	int (*run)(void);
} groups[] = {
	{"strict", strict_tests}, {"open", open_tests}, {"ops", ops_tests},
	{"copy", copy_tests},	  {"order", order_tests},
	{"inject", inject_tests}, {"drm", drm_tests},
};

static bool wanted(const char *name, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc == 1;
}

int main(int argc, char **argv)
{
	int failed = 0;
	size_t i;

	if (argc == 2 && !strcmp(argv[1], "--ptx")) {
		fputs(gpu_cuda_ptx, stdout);
		return 0;
	}
	cmocka_set_message_output(CM_OUTPUT_TAP);
	fx_load();
	for (i = 0; i < ARRAY_SIZE(groups); i++)
		if (wanted(groups[i].name, argc, argv))
			failed += groups[i].run();
	return failed != 0;
}
