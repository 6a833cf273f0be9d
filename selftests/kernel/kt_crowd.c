// SPDX-License-Identifier: MIT
/*
 * Many at once, for the kernel tests.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "kt_crowd.h"
#include "kvmm_test.h"

#define MOST_THREADS	16

/* Shared by all processes of the test; what the test counts follows. */
static struct crowd {
	uint64_t until;
	unsigned int seconds;
	int error, line;
	bool stop;
	size_t size;
} *crowd;

void *kt_crowd(size_t size, const char *variable, unsigned int seconds)
{
	const char *text = getenv(variable);

	if (crowd)
		munmap(crowd, crowd->size);
	size += sizeof(*crowd);
	crowd = mmap(NULL, size, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (crowd == MAP_FAILED) {
		crowd = NULL;
		return NULL;
	}
	crowd->size = size;
	crowd->seconds = text ? (unsigned int)atoi(text) : seconds;
	crowd->until = kt_now_ms() + crowd->seconds * 1000ULL;
	return crowd + 1;
}

unsigned int kt_crowd_seconds(void)
{
	return crowd->seconds;
}

void kt_crowd_goes_on(void)
{
	crowd->until = UINT64_MAX;
}

unsigned int kt_seed(void)
{
	const char *text = getenv("KVMM_SEED");

	return text ? strtoul(text, NULL, 0) : (unsigned int)kt_now_ms();
}

bool kt_over(void)
{
	return __atomic_load_n(&crowd->stop, __ATOMIC_RELAXED) ||
		__atomic_load_n(&crowd->error, __ATOMIC_RELAXED) ||
		kt_now_ms() >= crowd->until;
}

void kt_stop(void)
{
	__atomic_store_n(&crowd->stop, true, __ATOMIC_RELAXED);
}

void kt_wrong(int err, int line)
{
	int none = 0;

	if (__atomic_compare_exchange_n(&crowd->error, &none, err, false,
					__ATOMIC_RELAXED, __ATOMIC_RELAXED))
		crowd->line = line;
}

int kt_wrong_was(int *line)
{
	*line = crowd->line;
	return crowd->error;
}

bool kt_busy(int ret, bool memory)
{
	return ret == -EAGAIN || ret == -ENOSPC || ret == -EEXIST ||
		ret == -ESTALE || ret == -EBUSY || ret == -ENOBUFS ||
		(memory && ret == -ENOMEM);
}

unsigned int kt_rnd(unsigned int *seed, unsigned int below)
{
	return rand_r(seed) / 7 % below;
}

int kt_threads(void *(*const fn[])(void *seed), unsigned int n,
	       unsigned int seed)
{
	pthread_t thread[MOST_THREADS];
	unsigned int i, started;

	if (n > MOST_THREADS)
		return -EINVAL;
	for (started = 0; started < n; started++)
		if (pthread_create(&thread[started], NULL, fn[started],
				   (void *)(uintptr_t)(seed + 17 * started)))
			break;
	if (started < n)
		kt_wrong(-ENOMEM, __LINE__);
	for (i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
	return started < n ? -ENOMEM : 0;
}
