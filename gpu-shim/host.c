// SPDX-License-Identifier: MIT
/*
 * Host memory standing in for a GPU.  Each stream has a worker thread that
 * runs its operations in order, truly later than the calls; events are as in
 * CUDA: an event is done when its latest record is, a wait is for the record
 * at the time of the call.
 *
 * Locks: one per device, over queues and records; copies run without it.
 */
#include "ops.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Batches of more bytes would only drive other data out of the caches.  Going
 * in, a frame is read from its beginning to its end, and what is written is
 * scattered: past the caches pays off from one page on.  Going out it is the
 * reads that are scattered, and smaller fragments were seen to be slower past
 * the caches than through them.
 */
#define PAST_CACHES	(8UL << 20)
#define PAST_FRAGMENT_IN	(4UL << 10)
#define PAST_FRAGMENT_OUT	(64UL << 10)

struct host_gpu {
	struct kvmm_gpu gpu;
	pthread_mutex_t lock;
	pthread_cond_t done;	/* a record was done, or a queue ran empty */
	unsigned int delay_us;
	unsigned int seed;
};

/* One recording of an event; freed with its last reference. */
struct host_record {
	unsigned int refs;
	bool done;
};

struct host_piece {
	uint64_t dev;
	uint64_t stride;
	char *host;
	size_t bytes;
	size_t count;
};

enum host_op_type {
	HOST_COPY,
	HOST_RECORD,
	HOST_WAIT,
};

struct host_op {
	struct host_op *next;
	enum host_op_type type;
	enum kvmm_gpu_dir dir;
	struct host_record *record;
	size_t bytes;
	size_t nr;
	struct host_piece pieces[];
};

/* What runs a stream; wrappers of the stream share it. */
struct host_queue {
	struct host_gpu *host;
	pthread_t thread;
	pthread_cond_t work;
	struct host_op *first, **last;
	bool running;		/* an operation is under way */
	bool stop;
};

/* What an event is; wrappers of the event share it. */
struct host_event {
	struct host_record *record;
};

static struct host_gpu *to_host(struct kvmm_gpu *gpu)
{
	return (struct host_gpu *)gpu;
}

/* Caller holds the lock. */
static void record_put(struct host_record *record)
{
	if (record && !--record->refs)
		free(record);
}

#ifdef __SSE2__
/*
 * What memcpy() does for one large copy, and can't know of many small ones that
 * belong together: stores that don't read their lines first, nor keep them.
 */
static void copy_past_caches(char *to, const char *from, size_t bytes)
{
	size_t head = -(uintptr_t)to % 64, i;

	memcpy(to, from, head);
	to += head;
	from += head;
	bytes -= head;
	for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
		__m128i v[4];

		for (i = 0; i < 4; i++)
			v[i] = _mm_loadu_si128((const __m128i *)from + i);
		for (i = 0; i < 4; i++)
			_mm_stream_si128((__m128i *)to + i, v[i]);
	}
	memcpy(to, from, bytes);
}

static void copy_past_caches_end(void)
{
	_mm_sfence();
}
#else
static void copy_past_caches(char *to, const char *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

static void copy_past_caches_end(void)
{
}
#endif

static void copy(char *to, const char *from, size_t bytes, bool large)
{
	if (large)
		copy_past_caches(to, from, bytes);
	else
		memcpy(to, from, bytes);
}

static void host_copy_piece(const struct host_piece *p, enum kvmm_gpu_dir dir,
			    bool large)
{
	char *host = p->host;
	char *dev = (char *)(uintptr_t)p->dev;
	size_t i;

	large = large && p->bytes >= (dir == KVMM_GPU_OUT ? PAST_FRAGMENT_OUT
							  : PAST_FRAGMENT_IN);
	for (i = 0; i < p->count; i++) {
		if (dir == KVMM_GPU_OUT)
			copy(host, dev, p->bytes, large);
		else
			copy(dev, host, p->bytes, large);
		host += p->bytes;
		dev += p->stride;
	}
}

static void host_delay(struct host_gpu *host, unsigned int *seed)
{
	long us = rand_r(seed) % (host->delay_us + 1);
	struct timespec ts = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&ts, NULL);
}

static void *host_worker(void *arg)
{
	struct host_queue *q = arg;
	struct host_gpu *host = q->host;
	unsigned int seed;
	struct host_op *op;
	size_t i;

	pthread_mutex_lock(&host->lock);
	seed = ++host->seed;
	for (;;) {
		while (!q->first && !q->stop)
			pthread_cond_wait(&q->work, &host->lock);
		op = q->first;
		if (!op)
			break;
		q->first = op->next;
		if (!q->first)
			q->last = &q->first;
		q->running = true;
		if (op->type == HOST_WAIT)
			while (!op->record->done)
				pthread_cond_wait(&host->done, &host->lock);
		pthread_mutex_unlock(&host->lock);

		if (host->delay_us)
			host_delay(host, &seed);
		for (i = 0; i < op->nr; i++)
			host_copy_piece(&op->pieces[i], op->dir,
					op->bytes > PAST_CACHES);
		if (op->bytes > PAST_CACHES)
			copy_past_caches_end();

		pthread_mutex_lock(&host->lock);
		if (op->type == HOST_RECORD)
			op->record->done = true;
		record_put(op->record);
		free(op);
		q->running = false;
		pthread_cond_broadcast(&host->done);
	}
	pthread_mutex_unlock(&host->lock);
	return NULL;
}

/* Caller holds the lock. */
static void queue_add(struct host_queue *q, struct host_op *op)
{
	op->next = NULL;
	*q->last = op;
	q->last = &op->next;
	pthread_cond_signal(&q->work);
}

static int host_open(struct kvmm_gpu *gpu, const struct kvmm_gpu_opts *opts)
{
	struct host_gpu *host = to_host(gpu);

	if (opts->path != KVMM_GPU_PATH_AUTO &&
	    opts->path != KVMM_GPU_PATH_PLAIN)
		return gpu_fail(gpu, EOPNOTSUPP,
				"the host backend has only the plain path");
	if (opts->pci || (opts->flags & KVMM_GPU_BY_INDEX && opts->index))
		return gpu_fail(gpu, ENODEV, "the host backend has one device");
	pthread_mutex_init(&host->lock, NULL);
	pthread_cond_init(&host->done, NULL);
	host->delay_us = opts->host_delay_us;
	memcpy(gpu->info.name, "host memory", sizeof("host memory"));
	gpu->info.unified = true;
	gpu->info.reg_rdonly = true;
	gpu->info.same_pointer = true;
	gpu->info.pageable = KVMM_GPU_PAGEABLE_ATS;
	gpu->info.dma_path = KVMM_GPU_PATH_PLAIN;
	return 0;
}

static void host_close(struct kvmm_gpu *gpu)
{
	struct host_gpu *host = to_host(gpu);

	pthread_cond_destroy(&host->done);
	pthread_mutex_destroy(&host->lock);
}

static int host_reg(struct kvmm_gpu *gpu, void *addr, size_t bytes,
		    bool rdonly, uint64_t *dev)
{
	(void)gpu;
	(void)rdonly;
	(void)bytes;
	*dev = (uintptr_t)addr;
	return 0;
}

static int host_unreg(struct kvmm_gpu *gpu, void *addr)
{
	(void)gpu;
	(void)addr;
	return 0;
}

static int host_stream_create(struct kvmm_gpu *gpu,
			      struct kvmm_gpu_stream **out)
{
	struct kvmm_gpu_stream *stream = calloc(1, sizeof(*stream));
	struct host_queue *q = calloc(1, sizeof(*q));
	int err = ENOMEM;

	if (stream && q) {
		q->host = to_host(gpu);
		q->last = &q->first;
		pthread_cond_init(&q->work, NULL);
		err = pthread_create(&q->thread, NULL, host_worker, q);
		if (!err) {
			stream->native = q;
			*out = stream;
			return 0;
		}
		pthread_cond_destroy(&q->work);
	}
	free(q);
	free(stream);
	return gpu_fail(gpu, err, "no thread for a stream: %s", strerror(err));
}

static int host_stream_wrap(struct kvmm_gpu *gpu, void *native,
			    struct kvmm_gpu_stream **out)
{
	struct host_queue *q = native;

	if (!q || q->host != to_host(gpu))
		return gpu_fail(gpu, EINVAL, "not a stream of this device");
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return gpu_fail(gpu, ENOMEM, "out of memory");
	(*out)->native = q;
	return 0;
}

static int host_stream_sync(struct kvmm_gpu_stream *stream)
{
	struct host_queue *q = stream->native;
	struct host_gpu *host = q->host;

	pthread_mutex_lock(&host->lock);
	while (q->first || q->running)
		pthread_cond_wait(&host->done, &host->lock);
	pthread_mutex_unlock(&host->lock);
	return 0;
}

static void host_stream_destroy(struct kvmm_gpu_stream *stream)
{
	struct host_queue *q = stream->native;

	if (!stream->wrapped) {
		pthread_mutex_lock(&q->host->lock);
		q->stop = true;
		pthread_cond_signal(&q->work);
		pthread_mutex_unlock(&q->host->lock);
		pthread_join(q->thread, NULL);
		pthread_cond_destroy(&q->work);
		free(q);
	}
	free(stream);
}

static int host_event_wrap(struct kvmm_gpu *gpu, void *native,
			   struct kvmm_gpu_event **out)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return gpu_fail(gpu, ENOMEM, "out of memory");
	(*out)->native = native;
	return 0;
}

static int host_event_create(struct kvmm_gpu *gpu, struct kvmm_gpu_event **out)
{
	struct host_event *ev = calloc(1, sizeof(*ev));
	int r;

	if (!ev)
		return gpu_fail(gpu, ENOMEM, "out of memory");
	r = host_event_wrap(gpu, ev, out);
	if (r)
		free(ev);
	return r;
}

static int host_event_record(struct kvmm_gpu_event *event,
			     struct kvmm_gpu_stream *stream)
{
	struct host_gpu *host = to_host(event->gpu);
	struct host_event *ev = event->native;
	struct host_op *op = calloc(1, sizeof(*op));
	struct host_record *record = calloc(1, sizeof(*record));

	if (!op || !record) {
		free(op);
		free(record);
		return gpu_fail(event->gpu, ENOMEM, "out of memory");
	}
	record->refs = 2;
	op->type = HOST_RECORD;
	op->record = record;
	pthread_mutex_lock(&host->lock);
	record_put(ev->record);
	ev->record = record;
	queue_add(stream->native, op);
	pthread_mutex_unlock(&host->lock);
	return 0;
}

static int host_event_query(struct kvmm_gpu_event *event)
{
	struct host_gpu *host = to_host(event->gpu);
	struct host_event *ev = event->native;
	int r;

	pthread_mutex_lock(&host->lock);
	r = !ev->record || ev->record->done;
	pthread_mutex_unlock(&host->lock);
	return r;
}

static int host_event_wait(struct kvmm_gpu_event *event)
{
	struct host_gpu *host = to_host(event->gpu);
	struct host_event *ev = event->native;
	struct host_record *record;

	pthread_mutex_lock(&host->lock);
	record = ev->record;
	if (record) {
		record->refs++;
		while (!record->done)
			pthread_cond_wait(&host->done, &host->lock);
		record_put(record);
	}
	pthread_mutex_unlock(&host->lock);
	return 0;
}

static void host_event_destroy(struct kvmm_gpu_event *event)
{
	struct host_gpu *host = to_host(event->gpu);
	struct host_event *ev = event->native;

	if (!event->wrapped) {
		pthread_mutex_lock(&host->lock);
		record_put(ev->record);
		pthread_mutex_unlock(&host->lock);
		free(ev);
	}
	free(event);
}

static int host_stream_wait(struct kvmm_gpu_stream *stream,
			    struct kvmm_gpu_event *event)
{
	struct host_gpu *host = to_host(stream->gpu);
	struct host_event *ev = event->native;
	struct host_op *op = calloc(1, sizeof(*op));

	if (!op)
		return gpu_fail(stream->gpu, ENOMEM, "out of memory");
	op->type = HOST_WAIT;
	pthread_mutex_lock(&host->lock);
	if (ev->record) {
		op->record = ev->record;
		op->record->refs++;
		queue_add(stream->native, op);
		op = NULL;
	}
	pthread_mutex_unlock(&host->lock);
	free(op);
	return 0;
}

static int host_copy(struct kvmm_gpu_stream *stream, enum kvmm_gpu_dir dir,
		     const struct gpu_copy *copies, size_t nr)
{
	struct host_gpu *host = to_host(stream->gpu);
	struct gpu_frags f;
	struct gpu_walk w;
	struct host_op *op;
	size_t i, runs = 0;

	for (i = 0; i < nr; i++)
		runs += copies[i].copy->nr_runs;
	op = calloc(1, sizeof(*op) + runs * sizeof(op->pieces[0]));
	if (!op)
		return gpu_fail(stream->gpu, ENOMEM, "out of memory");
	op->type = HOST_COPY;
	op->dir = dir;
	for (i = 0; i < nr; i++) {
		gpu_walk_start(&w, &copies[i]);
		while (gpu_walk_next(&w, &f)) {
			op->bytes += f.bytes * f.count;
			op->pieces[op->nr++] = (struct host_piece){
				.dev = f.dev,
				.stride = f.dev_stride,
				.host = f.host,
				.bytes = f.bytes,
				.count = f.count,
			};
		}
	}
	pthread_mutex_lock(&host->lock);
	queue_add(stream->native, op);
	pthread_mutex_unlock(&host->lock);
	return 0;
}

const struct kvmm_gpu_ops gpu_host_ops = {
	.name = "host",
	.size = sizeof(struct host_gpu),
	.open = host_open,
	.close = host_close,
	.reg = host_reg,
	.unreg = host_unreg,
	.stream_create = host_stream_create,
	.stream_wrap = host_stream_wrap,
	.stream_sync = host_stream_sync,
	.stream_destroy = host_stream_destroy,
	.event_create = host_event_create,
	.event_wrap = host_event_wrap,
	.event_record = host_event_record,
	.event_query = host_event_query,
	.event_wait = host_event_wait,
	.event_destroy = host_event_destroy,
	.stream_wait = host_stream_wait,
	.copy = host_copy,
};
