// SPDX-License-Identifier: MIT
/*
 * Unit tests of the core, one file for each of its subjects; TAP out.
 */
#include <stdlib.h>

#include "fixture.h"

int fx_reports = -1;

/* The core met what can't be: a failed test, but where it is provoked. */
void kvmm_core_report(const char *file, int line, const char *what)
{
	if (fx_reports >= 0) {
		fx_reports++;
		return;
	}
	fprintf(stderr, "%s:%d: %s\n", file, line, what);
	abort();
}

int main(void)
{
	static const struct fx_tests *const files[] = {
		&create_tests, &block_tests,   &publish_tests, &pin_tests,
		&order_tests,  &swap_tests,    &slot_tests,    &reclaim_tests,
		&detach_tests, &client_tests,  &index_tests,   &state_tests,
		&note_tests,   &late_tests,    &clean_tests,   &elastic_tests,
		&retire_tests,
	};
	struct CMUnitTest all[256];
	size_t i, nr = 0;

	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (nr + files[i]->nr > sizeof(all) / sizeof(all[0]))
			abort();
		memcpy(all + nr, files[i]->tests,
		       files[i]->nr * sizeof(all[0]));
		nr += files[i]->nr;
	}
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return _cmocka_run_group_tests("core", all, nr, NULL, NULL) ? 1 : 0;
}
