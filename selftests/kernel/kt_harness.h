/* SPDX-License-Identifier: MIT */
/*
 * The kernel's own test harness, as these tests use it.  kselftest_harness.h
 * comes from Debian's linux-source package when the tests are built.
 *
 * An assertion that fails in a teardown would run the teardown again, for ever:
 * only EXPECT there.
 */
#ifndef KT_HARNESS_H
#define KT_HARNESS_H

#include <kselftest_harness.h>

#include "kvmm_test.h"

#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT KT_TIMEOUT

/* At the end of a test: nothing leaked, by the counters. */
#define KT_FINISH(t) do {						\
	const char *leak_ = kt_finish(t);				\
									\
	EXPECT_EQ(NULL, leak_) {					\
		TH_LOG("leak: %s", leak_);				\
	}								\
} while (0)

/* The gauges add up, now.  Never asserts: it is used in teardowns. */
#define KT_CONSISTENT(t) do {						\
	struct kvmm_pool_stat stat_;					\
	const char *wrong_;						\
									\
	wrong_ = kt_stat(t, &stat_) ? "none to be had" :		\
		kt_inconsistent(&stat_);				\
	EXPECT_EQ(NULL, wrong_) {					\
		TH_LOG("counters: %s", wrong_);				\
	}								\
} while (0)

/* Skips the program, exit status 4, where there is no module. */
#define KT_MAIN								\
	int main(int argc, char **argv)					\
	{								\
		if (access(KT_DEVICE, F_OK)) {				\
			printf("1..0 # SKIP no " KT_DEVICE "\n");	\
			return KSFT_SKIP;				\
		}							\
		return test_harness_run(argc, argv);			\
	}

#endif /* KT_HARNESS_H */
