/* SPDX-License-Identifier: MIT */
/*
 * Many at once: processes and threads that do things at random until the time is
 * over, or one of them has seen what must not be.
 */
#ifndef KT_CROWD_H
#define KT_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Begins: @seconds, or as many as the environment's @variable says.  Returns
 * @size bytes of zeroes that processes started from now on share; NULL: no
 * memory.  The same call ends what an earlier one began.
 */
void *kt_crowd(size_t size, const char *variable, unsigned int seconds);

/* How many seconds, and what to begin with at random: KVMM_SEED, or the time. */
unsigned int kt_crowd_seconds(void);
unsigned int kt_seed(void);

/* Goes on until kt_stop(): the test looks at the time itself. */
void kt_crowd_goes_on(void);

/* Is the time over, or something wrong?  And it is over now. */
bool kt_over(void);
void kt_stop(void);

/* Notes an error, the first one for good; what that was, and in which line. */
void kt_wrong(int err, int line);
int kt_wrong_was(int *line);

/* What a call says when others are busy; with @memory also when that is short. */
bool kt_busy(int ret, bool memory);

#define KT_CHECK(ret, memory) do {					\
	int ret_ = (ret);						\
									\
	if (ret_ < 0 && !kt_busy(ret_, memory))				\
		kt_wrong(ret_, __LINE__);				\
} while (0)

/* Counts in memory that is shared. */
#define KT_COUNT(what)	__atomic_add_fetch(&(what), 1, __ATOMIC_RELAXED)

/* 0 to @below - 1 */
unsigned int kt_rnd(unsigned int *seed, unsigned int below);

/* Runs @n threads, each with a seed of its own, and waits for them. */
int kt_threads(void *(*const fn[])(void *seed), unsigned int n,
	       unsigned int seed);

#endif /* KT_CROWD_H */
