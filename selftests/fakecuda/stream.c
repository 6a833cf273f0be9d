// SPDX-License-Identifier: MIT
/*
 * The stand-in's streams and events: a worker thread per stream that runs
 * operations later than they were submitted, and in order.
 */
#include "fake.h"
#include "fakecuda.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

FAKE_EXPORT cu_result_t cuStreamCreate(cu_stream_t *stream, unsigned int flags);
FAKE_EXPORT cu_result_t cuStreamDestroy_v2(cu_stream_t stream);
FAKE_EXPORT cu_result_t cuStreamSynchronize(cu_stream_t stream);
FAKE_EXPORT cu_result_t cuStreamWaitEvent(cu_stream_t stream, cu_event_t event,
					  unsigned int flags);
FAKE_EXPORT cu_result_t cuStreamGetCtx(cu_stream_t stream, cu_context_t *ctx);
FAKE_EXPORT cu_result_t cuEventCreate(cu_event_t *event, unsigned int flags);
FAKE_EXPORT cu_result_t cuEventDestroy_v2(cu_event_t event);
FAKE_EXPORT cu_result_t cuEventRecord(cu_event_t event, cu_stream_t stream);
FAKE_EXPORT cu_result_t cuEventQuery(cu_event_t event);
FAKE_EXPORT cu_result_t cuEventSynchronize(cu_event_t event);

void fake_record_put(struct fake_record *record)
{
	if (record && !--record->refs)
		free(record);
}

struct fake_op *fake_op_new(enum fake_op_type type)
{
	struct fake_op *op = calloc(1, sizeof(*op));

	if (!op)
		abort();
	op->type = type;
	op->flip = fake.flip_next;
	return op;
}

bool fake_op_add(struct fake_op *op, const struct fake_piece *piece)
{
	if (op->nr == op->max) {
		op->max = 2 * op->max + 16;
		op->pieces = realloc(op->pieces, op->max * sizeof(*op->pieces));
		if (!op->pieces)
			abort();
	}
	op->pieces[op->nr++] = *piece;
	return true;
}

void fake_op_free(struct fake_op *op)
{
	fake_record_put(op->record);
	free(op->pieces);
	free(op);
}

static void range_count(struct fake_range *r, int inflight, int running)
{
	if (!r)
		return;
	r->inflight += inflight;
	r->running += running;
}

void fake_submit(struct fake_stream *s, struct fake_op *op)
{
	size_t i;

	for (i = 0; i < op->nr; i++) {
		range_count(op->pieces[i].dst_range, 1, 0);
		range_count(op->pieces[i].src_range, 1, 0);
	}
	op->next = NULL;
	*s->last = op;
	s->last = &op->next;
	pthread_cond_signal(&s->work);
}

static bool piece_good(const struct fake_piece *p)
{
	return (!p->dst_range || p->dst_range->obj.alive) &&
	       (!p->src_range || p->src_range->obj.alive);
}

static void op_copy(struct fake_stream *s, struct fake_op *op)
{
	bool good = true;
	size_t i;

	for (i = 0; i < op->nr; i++)
		good = good && piece_good(&op->pieces[i]);
	if (!good) {
		fake_violation("a copy ran after its memory was gone");
		op->fault = CU_ERROR_ILLEGAL_ADDRESS;
	}
	if (s->obj.ctx->sticky)
		good = false; /* a lost context runs nothing */
	for (i = 0; i < op->nr && good; i++) {
		range_count(op->pieces[i].dst_range, 0, 1);
		range_count(op->pieces[i].src_range, 0, 1);
	}
	if (!good)
		return;
	pthread_mutex_unlock(&fake.lock);
	if (op->run)
		op->run(op);
	for (i = 0; i < op->nr && !op->run; i++)
		memcpy(op->pieces[i].dst, op->pieces[i].src,
		       op->pieces[i].bytes);
	pthread_mutex_lock(&fake.lock);
	if (op->nr && op->flip)
		op->pieces[0].dst[op->run ? 0 : op->pieces[0].bytes / 2] ^= 1;
	for (i = 0; i < op->nr; i++) {
		range_count(op->pieces[i].dst_range, 0, -1);
		range_count(op->pieces[i].src_range, 0, -1);
	}
}

/* Now and then an operation takes its time. */
static void op_delay(void)
{
	struct timespec ts = {0};
	unsigned int us;

	if (!fake.delay_us || fake_random(4))
		return;
	us = fake_random(fake.delay_us + 1);
	ts.tv_sec = us / 1000000;
	ts.tv_nsec = us % 1000000 * 1000;
	pthread_mutex_unlock(&fake.lock);
	nanosleep(&ts, NULL);
	pthread_mutex_lock(&fake.lock);
}

static void *stream_main(void *arg)
{
	struct fake_stream *s = arg;
	struct fake_op *op;
	size_t i;

	pthread_mutex_lock(&fake.lock);
	for (;;) {
		while (s->held || (!s->first && !s->stop))
			pthread_cond_wait(&s->work, &fake.lock);
		op = s->first;
		if (!op)
			break;
		s->first = op->next;
		if (!s->first)
			s->last = &s->first;
		s->running = true;
		while (op->type == FAKE_OP_WAIT && !op->record->done)
			pthread_cond_wait(&fake.done, &fake.lock);
		op_delay();
		if (op->type == FAKE_OP_COPY)
			op_copy(s, op);
		if (op->type == FAKE_OP_RECORD)
			op->record->done = true;
		if (op->fault && !s->obj.ctx->sticky)
			s->obj.ctx->sticky = op->fault;
		for (i = 0; i < op->nr; i++) {
			range_count(op->pieces[i].dst_range, -1, 0);
			range_count(op->pieces[i].src_range, -1, 0);
		}
		fake_op_free(op);
		s->running = false;
		pthread_cond_broadcast(&fake.done);
	}
	pthread_mutex_unlock(&fake.lock);
	return NULL;
}

struct fake_stream *fake_stream_new(struct fake_ctx *ctx)
{
	struct fake_stream *s = fake_new(FAKE_STREAM, sizeof(*s), ctx);

	s->last = &s->first;
	pthread_cond_init(&s->work, NULL);
	if (pthread_create(&s->thread, NULL, stream_main, s))
		abort();
	return s;
}

struct fake_stream *fake_stream_get(struct fake_ctx *ctx, cu_stream_t handle)
{
	struct fake_stream *s;

	if (!handle || handle == CU_LEGACY_STREAM) {
		if (!ctx->null_stream)
			ctx->null_stream = fake_stream_new(ctx);
		return ctx->null_stream;
	}
	s = fake_find(FAKE_STREAM, handle);
	/* work goes into the current context's streams only */
	return s && s->obj.ctx == ctx ? s : NULL;
}

void fake_drain(struct fake_stream *s)
{
	while (s->first || s->running)
		pthread_cond_wait(&fake.done, &fake.lock);
}

/* Drains and joins; the lock is dropped meanwhile. */
void fake_stream_stop(struct fake_stream *s)
{
	s->stop = true;
	s->held = false;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&fake.lock);
	pthread_join(s->thread, NULL);
	pthread_mutex_lock(&fake.lock);
	pthread_cond_destroy(&s->work);
}

FAKE_EXPORT void fakecuda_hold(void *stream, int on)
{
	struct fake_stream *s;

	pthread_mutex_lock(&fake.lock);
	s = fake_find(FAKE_STREAM, stream);
	if (s) {
		s->held = on;
		pthread_cond_signal(&s->work);
	}
	pthread_mutex_unlock(&fake.lock);
}

cu_result_t cuStreamCreate(cu_stream_t *stream, unsigned int flags)
{
	struct fake_ctx *ctx;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuStreamCreate", &ctx);
	if (!res && flags & ~CU_STREAM_NONBLOCK)
		res = CU_ERROR_INVALID_VALUE;
	if (!res)
		*stream = (cu_stream_t)fake_stream_new(ctx);
	pthread_mutex_unlock(&fake.lock);
	return res;
}

/* Returns at once; the worker finishes what is in it. */
cu_result_t cuStreamDestroy_v2(cu_stream_t stream)
{
	struct fake_ctx *ctx;
	struct fake_stream *s;
	cu_result_t injected, res = CU_SUCCESS;

	pthread_mutex_lock(&fake.lock);
	injected = fake_enter("cuStreamDestroy", &ctx);
	s = fake_find(FAKE_STREAM, stream);
	if (fake_refused(injected))
		res = injected;
	else if (!s)
		res = CU_ERROR_INVALID_HANDLE;
	else
		s->obj.alive = false;
	pthread_mutex_unlock(&fake.lock);
	return injected ? injected : res;
}

cu_result_t cuStreamSynchronize(cu_stream_t stream)
{
	struct fake_ctx *ctx;
	struct fake_stream *s;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuStreamSynchronize", &ctx);
	if (!res) {
		s = fake_stream_get(ctx, stream);
		if (s) {
			fake_drain(s);
			res = ctx->sticky;
		} else {
			res = CU_ERROR_INVALID_HANDLE;
		}
	}
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuStreamGetCtx(cu_stream_t stream, cu_context_t *out)
{
	struct fake_ctx *ctx;
	struct fake_stream *s;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuStreamGetCtx", &ctx);
	if (!res) {
		s = stream ? fake_find(FAKE_STREAM, stream)
			   : fake_stream_get(ctx, stream);
		if (s)
			*out = (cu_context_t)s->obj.ctx;
		else
			res = CU_ERROR_INVALID_HANDLE;
	}
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuStreamWaitEvent(cu_stream_t stream, cu_event_t event,
			      unsigned int flags)
{
	struct fake_ctx *ctx;
	struct fake_stream *s;
	struct fake_event *ev;
	struct fake_op *op;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuStreamWaitEvent", &ctx);
	if (res)
		goto out;
	s = fake_stream_get(ctx, stream);
	ev = fake_find(FAKE_EVENT, event); /* of any context */
	if (!s || !ev || flags) {
		res = CU_ERROR_INVALID_HANDLE;
	} else if (ev->record) {
		op = fake_op_new(FAKE_OP_WAIT);
		op->record = ev->record;
		op->record->refs++;
		fake_submit(s, op);
	}
out:
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuEventCreate(cu_event_t *event, unsigned int flags)
{
	struct fake_ctx *ctx;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuEventCreate", &ctx);
	if (!res && flags & ~(CU_EVENT_BLOCKING | CU_EVENT_UNTIMED))
		res = CU_ERROR_INVALID_VALUE;
	if (!res)
		*event = fake_new(FAKE_EVENT, sizeof(struct fake_event), ctx);
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuEventDestroy_v2(cu_event_t event)
{
	struct fake_ctx *ctx;
	struct fake_event *ev;
	cu_result_t injected, res = CU_SUCCESS;

	pthread_mutex_lock(&fake.lock);
	injected = fake_enter("cuEventDestroy", &ctx);
	ev = fake_find(FAKE_EVENT, event);
	if (fake_refused(injected))
		res = injected;
	else if (!ev)
		res = CU_ERROR_INVALID_HANDLE;
	else
		ev->obj.alive = false;
	pthread_mutex_unlock(&fake.lock);
	return injected ? injected : res;
}

cu_result_t cuEventRecord(cu_event_t event, cu_stream_t stream)
{
	struct fake_ctx *ctx;
	struct fake_stream *s;
	struct fake_event *ev;
	struct fake_op *op;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuEventRecord", &ctx);
	if (res)
		goto out;
	s = fake_stream_get(ctx, stream);
	ev = fake_find(FAKE_EVENT, event);
	/* event and stream have to be of one context */
	if (!s || !ev || ev->obj.ctx != s->obj.ctx) {
		res = CU_ERROR_INVALID_HANDLE;
		goto out;
	}
	fake_record_put(ev->record);
	ev->record = calloc(1, sizeof(*ev->record));
	if (!ev->record)
		abort();
	ev->record->refs = 2;
	op = fake_op_new(FAKE_OP_RECORD);
	op->record = ev->record;
	fake_submit(s, op);
out:
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuEventQuery(cu_event_t event)
{
	struct fake_ctx *ctx;
	struct fake_event *ev;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuEventQuery", &ctx);
	if (!res) {
		ev = fake_find(FAKE_EVENT, event);
		if (!ev)
			res = CU_ERROR_INVALID_HANDLE;
		else if (ev->record && !ev->record->done)
			res = CU_ERROR_NOT_READY;
	}
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuEventSynchronize(cu_event_t event)
{
	struct fake_record *record;
	struct fake_ctx *ctx;
	struct fake_event *ev;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuEventSynchronize", &ctx);
	if (res)
		goto out;
	ev = fake_find(FAKE_EVENT, event);
	if (!ev) {
		res = CU_ERROR_INVALID_HANDLE;
		goto out;
	}
	record = ev->record;
	if (record) {
		record->refs++;
		while (!record->done)
			pthread_cond_wait(&fake.done, &fake.lock);
		fake_record_put(record);
	}
	res = ctx->sticky;
out:
	pthread_mutex_unlock(&fake.lock);
	return res;
}
