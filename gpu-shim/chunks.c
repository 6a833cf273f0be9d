// SPDX-License-Identifier: MIT
/*
 * Registered host memory: a sorted table of pieces, and the checks of a copy
 * against it before a backend sees it.
 */
#include "chunks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Frames of one batch whose addresses are looked up under one lock. */
#define COPY_BATCH 64

/* Index of the first piece that ends above addr; caller holds chunks_lock. */
static size_t chunk_find(const struct kvmm_gpu *gpu, uintptr_t addr)
{
	size_t lo = 0, hi = gpu->nr_chunks;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct gpu_chunk *c = &gpu->chunks[mid];

		if (c->addr + c->bytes <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void chunk_remove(struct kvmm_gpu *gpu, uintptr_t addr)
{
	size_t i;

	pthread_rwlock_wrlock(&gpu->chunks_lock);
	i = chunk_find(gpu, addr);
	gpu->nr_chunks--;
	memmove(&gpu->chunks[i], &gpu->chunks[i + 1],
		(gpu->nr_chunks - i) * sizeof(*gpu->chunks));
	pthread_rwlock_unlock(&gpu->chunks_lock);
}

/* Puts the pieces of a range into the table, busy. */
static int chunks_reserve(struct kvmm_gpu *gpu, uintptr_t addr, size_t bytes,
			  bool rdonly)
{
	size_t nr = (bytes + gpu->chunk_limit - 1) / gpu->chunk_limit;
	size_t at, i;
	int r = 0;

	pthread_rwlock_wrlock(&gpu->chunks_lock);
	at = chunk_find(gpu, addr);
	if (at < gpu->nr_chunks && gpu->chunks[at].addr < addr + bytes) {
		r = gpu_fail(gpu, EEXIST, "%p, %zu bytes: registered already",
			     (void *)addr, bytes);
		goto out;
	}
	if (gpu->nr_chunks + nr > gpu->max_chunks) {
		size_t max = 2 * gpu->max_chunks + nr;
		void *p = realloc(gpu->chunks, max * sizeof(*gpu->chunks));

		if (!p) {
			r = gpu_fail(gpu, ENOMEM, "out of memory");
			goto out;
		}
		gpu->chunks = p;
		gpu->max_chunks = max;
	}
	memmove(&gpu->chunks[at + nr], &gpu->chunks[at],
		(gpu->nr_chunks - at) * sizeof(*gpu->chunks));
	gpu->nr_chunks += nr;
	for (i = 0; i < nr; i++) {
		size_t off = i * gpu->chunk_limit;

		gpu->chunks[at + i] = (struct gpu_chunk){
			.addr = addr + off,
			.bytes = bytes - off < gpu->chunk_limit ?
					 bytes - off :
					 gpu->chunk_limit,
			.busy = true,
			.rdonly = rdonly,
		};
	}
out:
	pthread_rwlock_unlock(&gpu->chunks_lock);
	return r;
}

static int chunks_register(struct kvmm_gpu *gpu, void *addr, size_t bytes,
			   bool rdonly)
{
	uintptr_t start = (uintptr_t)addr, page = sysconf(_SC_PAGESIZE);
	size_t done, i, len;
	int r;

	if (!bytes || start % page || bytes % page || start + bytes < start)
		return gpu_fail(gpu, EINVAL, "%p, %zu bytes: not whole pages",
				addr, bytes);
	if (!gpu->ops->reg)
		return gpu_fail(gpu, EOPNOTSUPP,
				"a %s device registers no memory",
				gpu->ops->name);
	r = chunks_reserve(gpu, start, bytes, rdonly);
	if (r)
		return r;
	for (done = 0; done < bytes; done += len) {
		uint64_t dev;

		len = bytes - done < gpu->chunk_limit ? bytes - done :
							gpu->chunk_limit;
		r = gpu->ops->reg(gpu, (char *)addr + done, len, rdonly, &dev);
		if (r)
			break;
		pthread_rwlock_wrlock(&gpu->chunks_lock);
		gpu->chunks[chunk_find(gpu, start + done)].dev = dev;
		pthread_rwlock_unlock(&gpu->chunks_lock);
	}
	if (r) {
		/* the sentence of the failure is kept, not of the rollback */
		char why[sizeof(gpu->err)];

		kvmm_gpu_error(gpu, why, sizeof(why));
		for (i = 0; i < done; i += gpu->chunk_limit)
			gpu->ops->unreg(gpu, (char *)addr + i);
		for (i = 0; i < bytes; i += gpu->chunk_limit)
			chunk_remove(gpu, start + i);
		gpu_fail(gpu, -r, "%s", why);
		return r;
	}
	pthread_rwlock_wrlock(&gpu->chunks_lock);
	for (i = chunk_find(gpu, start); i < gpu->nr_chunks &&
	     gpu->chunks[i].addr < start + bytes; i++)
		gpu->chunks[i].busy = false;
	pthread_rwlock_unlock(&gpu->chunks_lock);
	return 0;
}

int kvmm_gpu_register(struct kvmm_gpu *gpu, void *addr, size_t bytes)
{
	return chunks_register(gpu, addr, bytes, false);
}

int kvmm_gpu_register_rdonly(struct kvmm_gpu *gpu, void *addr, size_t bytes)
{
	return chunks_register(gpu, addr, bytes, true);
}

/* Marks a range of whole pieces busy, so that copies don't find it. */
static int chunks_take(struct kvmm_gpu *gpu, uintptr_t start, size_t bytes)
{
	size_t first, i;
	uintptr_t at = start;
	int r = 0;

	pthread_rwlock_wrlock(&gpu->chunks_lock);
	first = chunk_find(gpu, start);
	for (i = first; at < start + bytes; i++) {
		const struct gpu_chunk *c = &gpu->chunks[i];

		if (i == gpu->nr_chunks || c->addr != at || c->busy ||
		    c->addr + c->bytes > start + bytes)
			break;
		at += c->bytes;
	}
	if (!bytes || at != start + bytes) {
		r = gpu_fail(gpu, ENOENT,
			     "%p, %zu bytes: not what was registered",
			     (void *)start, bytes);
	} else {
		while (first < i)
			gpu->chunks[first++].busy = true;
	}
	pthread_rwlock_unlock(&gpu->chunks_lock);
	return r;
}

int kvmm_gpu_unregister(struct kvmm_gpu *gpu, void *addr, size_t bytes)
{
	uintptr_t at = (uintptr_t)addr, end = at + bytes;
	int r = chunks_take(gpu, at, bytes), err;

	if (r)
		return r;
	while (at < end) {
		size_t len;

		pthread_rwlock_rdlock(&gpu->chunks_lock);
		len = gpu->chunks[chunk_find(gpu, at)].bytes;
		pthread_rwlock_unlock(&gpu->chunks_lock);
		err = gpu->ops->unreg(gpu, (void *)at);
		if (err && !r)
			r = err;
		chunk_remove(gpu, at);
		at += len;
	}
	return r;
}

void gpu_chunks_drop(struct kvmm_gpu *gpu)
{
	while (gpu->nr_chunks) {
		gpu->nr_chunks--;
		gpu->ops->unreg(gpu,
				(void *)gpu->chunks[gpu->nr_chunks].addr);
	}
}

/* Caller holds chunks_lock.  @write: the device writes there. */
static int chunk_dev(struct kvmm_gpu *gpu, const void *host, size_t bytes,
		     bool write, uint64_t *dev)
{
	uintptr_t addr = (uintptr_t)host;
	size_t i = chunk_find(gpu, addr);
	const struct gpu_chunk *c = &gpu->chunks[i];

	if (addr + bytes < addr)
		goto bad;
	if (i < gpu->nr_chunks && c->addr < addr + bytes) {
		/* partly registered is refused, by the driver too */
		if (c->busy || addr < c->addr ||
		    addr + bytes > c->addr + c->bytes)
			goto bad;
		if (write && c->rdonly)
			return gpu_fail(gpu, EACCES,
					"%p, %zu bytes: registered for reading only",
					host, bytes);
		*dev = c->dev + (addr - c->addr);
		return 0;
	}
	if (gpu->info.pageable != KVMM_GPU_PAGEABLE_NONE) {
		*dev = addr;
		return 0;
	}
bad:
	return gpu_fail(gpu, EFAULT,
			"%p, %zu bytes: not within one registered piece", host,
			bytes);
}

static int find_dev(struct kvmm_gpu *gpu, const void *host, size_t bytes,
		    bool write, uint64_t *dev)
{
	int r;

	pthread_rwlock_rdlock(&gpu->chunks_lock);
	r = chunk_dev(gpu, host, bytes, write, dev);
	pthread_rwlock_unlock(&gpu->chunks_lock);
	return r;
}

int kvmm_gpu_dev_ptr(struct kvmm_gpu *gpu, const void *host, size_t bytes,
		     uint64_t *dev)
{
	return find_dev(gpu, host, bytes, false, dev);
}

/* Bytes of the frame; 0: a run is bad. */
static size_t copy_bytes(const struct kvmm_gpu_copy *copy)
{
	size_t i, total = 0, bytes, span;

	for (i = 0; i < copy->nr_runs; i++) {
		const struct kvmm_gpu_run *run = &copy->runs[i];

		if (!run->bytes || !run->count || !run->dev)
			return 0;
		if (run->count > 1 && run->stride < run->bytes)
			return 0;
		if (__builtin_mul_overflow(run->bytes, run->count, &bytes) ||
		    __builtin_add_overflow(total, bytes, &total))
			return 0;
		if (run->count > 1 &&
		    (__builtin_mul_overflow(run->stride, run->count, &span) ||
		     run->dev + span < run->dev))
			return 0;
	}
	return total;
}

/* Checks and looks up a batch; all of it, before any of it is copied. */
static int copies_check(struct kvmm_gpu *gpu,
			enum kvmm_gpu_dir dir,
			const struct kvmm_gpu_copy *copies, size_t nr)
{
	size_t i;

	for (i = 0; i < nr; i++) {
		size_t bytes = copy_bytes(&copies[i]);
		uint64_t dev;
		int r;

		if (!bytes)
			return gpu_fail(gpu, EINVAL,
					"copy %zu: no runs, or a bad one", i);
		r = find_dev(gpu, copies[i].host, bytes, dir == KVMM_GPU_OUT,
			     &dev);
		if (r)
			return r;
	}
	return 0;
}

int kvmm_gpu_copy(struct kvmm_gpu_stream *stream, enum kvmm_gpu_dir dir,
		  const struct kvmm_gpu_copy *copies, size_t nr)
{
	struct kvmm_gpu *gpu = stream->gpu;
	struct gpu_copy found[COPY_BATCH];
	size_t i, n;
	int r;

	if (dir > KVMM_GPU_IN)
		return gpu_fail(gpu, EINVAL, "no such direction");
	r = copies_check(gpu, dir, copies, nr);
	for (i = 0; i < nr && !r; i += n) {
		for (n = 0; n < COPY_BATCH && i + n < nr && !r; n++) {
			found[n].copy = &copies[i + n];
			r = kvmm_gpu_dev_ptr(gpu, copies[i + n].host, 1,
					     &found[n].host_dev);
		}
		if (!r)
			r = gpu->ops->copy(stream, dir, found, n);
	}
	return r;
}

void gpu_walk_start(struct gpu_walk *w, const struct gpu_copy *copy)
{
	w->copy = copy->copy;
	w->run = 0;
	w->host = copy->copy->host;
	w->host_dev = copy->host_dev;
}

/* A run without gaps is one fragment. */
static struct gpu_frags walk_peek(const struct gpu_walk *w)
{
	const struct kvmm_gpu_run *run = &w->copy->runs[w->run];
	struct gpu_frags f = {
		.dev = run->dev,
		.dev_stride = run->stride,
		.host = w->host,
		.host_dev = w->host_dev,
		.bytes = run->bytes,
		.count = run->count,
	};

	if (f.count == 1 || f.dev_stride == f.bytes) {
		f.bytes *= f.count;
		f.dev_stride = f.bytes;
		f.count = 1;
	}
	return f;
}

static void walk_skip(struct gpu_walk *w, size_t bytes)
{
	w->run++;
	w->host += bytes;
	w->host_dev += bytes;
}

bool gpu_walk_next(struct gpu_walk *w, struct gpu_frags *frags)
{
	if (w->run == w->copy->nr_runs)
		return false;
	*frags = walk_peek(w);
	walk_skip(w, frags->bytes * frags->count);
	while (w->run < w->copy->nr_runs && frags->count == 1) {
		struct gpu_frags next = walk_peek(w);

		if (next.count != 1 || next.dev != frags->dev + frags->bytes)
			break;
		frags->bytes += next.bytes;
		frags->dev_stride = frags->bytes;
		walk_skip(w, next.bytes);
	}
	return true;
}
