// SPDX-License-Identifier: MIT
/*
 * Kernel backend: commands on blocks.
 *
 * What does not fit into one command is split.  A chain that is split begins
 * anew with each command, and the part that comes last is the youngest: so
 * the parts of a chain are given last part first.
 */
#include "backend_kernel.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t mono_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

long kernel_alloc(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		  unsigned int n, unsigned int nr_parts,
		  unsigned int timeout_ms)
{
	uint64_t until = timeout_ms ? mono_ms() + timeout_ms : 0, now;
	unsigned int got = 0;
	int err = 0;

	while (got < n && !err) {
		struct kvmm_alloc arg = {
			.size = sizeof(arg),
			.flags = timeout_ms ? KVMM_ALLOC_WAIT : 0,
			.refs = kernel_ptr(&refs[got]),
			.count = kernel_lot(n - got),
			.nr_parts = nr_parts,
			.timeout_ms = timeout_ms,
		};

		err = kernel_command(pool->fd, KVMM_ALLOC, &arg);
		got += arg.done;
		if (!timeout_ms || got == n)
			continue;
		now = mono_ms();
		if (now >= until)
			break;
		timeout_ms = (unsigned int)(until - now);
	}
	return got ? (long)got : err;
}

long kernel_publish(struct kvmm_pool *pool,
		    struct kvmm_publish_entry *e, unsigned int n,
		    unsigned int flags)
{
	unsigned int first = (n - 1) / KVMM_MAX_BATCH * KVMM_MAX_BATCH;
	long good = 0;
	int err;

	for (;; first -= KVMM_MAX_BATCH) {
		struct kvmm_publish arg = {
			.size = sizeof(arg),
			.flags = flags,
			.entries = kernel_ptr(&e[first]),
			.count = kernel_lot(n - first),
		};

		err = kernel_command(pool->fd, KVMM_PUBLISH, &arg);
		if (err)
			return err;
		good += arg.done;
		if (!first)
			return good;
	}
}

int kernel_one_batch(struct kvmm_pool *pool, unsigned int cmd,
		     struct kvmm_block_ref *refs, unsigned int n,
		     unsigned int *done)
{
	struct kvmm_batch arg = {
		.size = sizeof(arg),
		.refs = kernel_ptr(refs),
		.count = n,
	};
	int err = kernel_command(pool->fd, cmd, &arg);

	*done = arg.done;
	return err;
}

long kernel_batch(struct kvmm_pool *pool, unsigned int cmd,
		  struct kvmm_block_ref *refs, unsigned int n)
{
	unsigned int first = (n - 1) / KVMM_MAX_BATCH * KVMM_MAX_BATCH;
	unsigned int done;
	long good = 0;
	int err;

	for (;; first -= KVMM_MAX_BATCH) {
		err = kernel_one_batch(pool, cmd, &refs[first], kernel_lot(n - first), &done);
		if (err)
			return err;
		good += done;
		if (!first)
			return good;
	}
}

/*
 * A prefix is looked up front first; where that took several commands its
 * parts are put in order by touching all but the last, from the back.
 */
static void order_parts(struct kvmm_pool *pool,
			const struct kvmm_block_ref *refs, unsigned int last)
{
	struct kvmm_block_ref *copy;
	unsigned int done;

	copy = malloc(KVMM_MAX_BATCH * sizeof(*copy));
	if (!copy)
		return;
	while (last) {
		last -= KVMM_MAX_BATCH;
		memcpy(copy, &refs[last], KVMM_MAX_BATCH * sizeof(*copy));
		if (kernel_one_batch(pool, KVMM_TOUCH, copy, KVMM_MAX_BATCH,
				     &done))
			break;
	}
	free(copy);
}

long kernel_lookup(struct kvmm_pool *pool, const uint8_t *keys,
		   struct kvmm_block_ref *refs, unsigned int n,
		   unsigned int flags)
{
	unsigned int i, m, last = 0;
	bool leading = true;
	long prefix = 0;
	int err;

	for (i = 0; i < n; i += m) {
		struct kvmm_lookup arg = {
			.size = sizeof(arg),
			.flags = flags,
			.keys = kernel_ptr(keys + (size_t)i * KVMM_KEY_LEN),
			.refs = kernel_ptr(&refs[i]),
			.count = kernel_lot(n - i),
		};

		m = arg.count;
		if (!leading && flags & KVMM_LOOKUP_PREFIX) {
			memset(&refs[i], 0, (n - i) * sizeof(*refs));
			for (; i < n; i++)
				refs[i].frame = KVMM_NO_FRAME;
			break;
		}
		err = kernel_command(pool->fd, KVMM_LOOKUP, &arg);
		if (err)
			return err;
		if (leading)
			prefix += arg.prefix;
		if (arg.prefix < m)
			leading = false;
		last = i;
	}
	if (last && !(flags & KVMM_LOOKUP_PEEK))
		order_parts(pool, refs, last);
	return prefix;
}

long kernel_keys(struct kvmm_pool *pool, uint64_t *cursor,
		 struct kvmm_key_entry *e, unsigned int n)
{
	unsigned int k = 0;
	int err;

	while (k < n) {
		struct kvmm_keys arg = {
			.size = sizeof(arg),
			.cursor = *cursor,
			.entries = kernel_ptr(&e[k]),
			.count = kernel_lot(n - k),
		};

		err = kernel_command(pool->fd, KVMM_KEYS, &arg);
		if (err)
			return err;
		*cursor = arg.cursor;
		if (!arg.done)
			break;
		k += arg.done;
	}
	return k;
}

long kernel_request_end(struct kvmm_pool *pool, uint64_t handle,
			unsigned int output_tokens)
{
	struct kvmm_request_end arg = {
		.size = sizeof(arg),
		.handle = handle,
		.output_tokens = output_tokens,
	};
	int err = kernel_command(pool->fd, KVMM_REQUEST_END, &arg);

	return err ? err : (long)arg.done;
}

long kernel_hint(struct kvmm_pool *pool, uint64_t handle,
		 unsigned int permille, unsigned int delay_ms)
{
	struct kvmm_hint arg = {
		.size = sizeof(arg),
		.handle = handle,
		.permille = permille,
		.delay_ms = delay_ms,
	};
	int err = kernel_command(pool->fd, KVMM_HINT, &arg);

	return err ? err : (long)arg.done;
}

int kernel_reclaim(struct kvmm_pool *pool, struct kvmm_reclaim *arg)
{
	return kernel_command(pool->fd, KVMM_RECLAIM, arg);
}
