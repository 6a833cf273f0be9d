// SPDX-License-Identifier: MIT
/*
 * The engine is libllama, by its public C interface alone.
 *
 * Each slot is a context with two sequences: 0 is the conversation, 1 is where
 * ranges are cut out and put in.  A range is saved by giving its cells to
 * sequence 1 too, reading the state of that sequence, and taking them away
 * again; it is loaded by setting the state of sequence 1 and giving its cells
 * to sequence 0.  What the bytes mean is libllama's business.
 *
 * With a context for each slot, and nobody else's tokens in it, the token at
 * position i is always in cell i.  Sums over cells are then added up in the
 * same order whoever else is served, and whether the cells were computed or
 * loaded: so results are the same bit for bit, which floating point does not
 * promise otherwise.
 */
#include "engine.h"

#include <errno.h>
#include <llama.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONVERSATION	0
#define SCRATCH		1

/**
 * struct slot - a sequence
 * @ctx: its context
 * @held: tokens in it
 */
struct slot {
	struct llama_context *ctx;
	unsigned int held;
};

/**
 * struct engine - a model and its slots
 * @info: for others
 * @model: the weights
 * @vocab: its tokens
 * @batch: room for the tokens of a call
 * @slots: info.slots of them
 * @error: the latest
 */
struct engine {
	struct engine_info info;
	struct llama_model *model;
	const struct llama_vocab *vocab;
	struct llama_batch batch;
	struct slot *slots;
	char error[256];
};

static int __attribute__((format(printf, 3, 4)))
failed(struct engine *e, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->error, sizeof(e->error), fmt, ap);
	va_end(ap);
	return err;
}

static void silent(enum ggml_log_level level, const char *text, void *ctx)
{
	(void)level;
	(void)text;
	(void)ctx;
}

static unsigned int default_threads(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > 8 ? 8 : (unsigned int)n;
}

static llama_memory_t memory(const struct engine *e, unsigned int slot)
{
	return llama_get_memory(e->slots[slot].ctx);
}

const struct engine_info *engine_info(const struct engine *e)
{
	return &e->info;
}

const char *engine_error(const struct engine *e)
{
	return e->error;
}

unsigned int engine_held(const struct engine *e, unsigned int slot)
{
	return e->slots[slot].held;
}

int engine_compute(struct engine *e, unsigned int slot, const uint32_t *tokens,
		   unsigned int first, unsigned int n)
{
	struct slot *s = &e->slots[slot];
	struct llama_batch *b = &e->batch;
	unsigned int i;
	int r;

	if (!n || n > e->info.block_tokens || first != s->held)
		return failed(e, -EINVAL, "tokens %u to %u don't follow the %u of the slot",
			      first, first + n, s->held);
	if (n > e->info.context - s->held)
		return failed(e, -ENOSPC, "%u tokens are more than the context of %u",
			      first + n, e->info.context);
	for (i = 0; i < n; i++) {
		if (tokens[i] >= e->info.vocab)
			return failed(e, -EINVAL, "token %u is not below %u",
				      tokens[i], e->info.vocab);
		b->token[i] = (llama_token)tokens[i];
		b->pos[i] = (llama_pos)(first + i);
		b->n_seq_id[i] = 1;
		b->seq_id[i][0] = CONVERSATION;
		b->logits[i] = i == n - 1;
	}
	b->n_tokens = (int32_t)n;
	r = llama_decode(s->ctx, *b);
	if (r) {
		/* some of it may be there */
		(void)llama_memory_seq_rm(memory(e, slot), CONVERSATION,
					  (llama_pos)first, -1);
		return failed(e, r == 1 ? -ENOSPC : -EIO,
			      "llama_decode failed with %d", r);
	}
	s->held += n;
	return 0;
}

const float *engine_logits(struct engine *e, unsigned int slot)
{
	return llama_get_logits_ith(e->slots[slot].ctx, -1);
}

int engine_trim(struct engine *e, unsigned int slot, unsigned int n)
{
	struct slot *s = &e->slots[slot];

	if (n >= s->held)
		return 0;
	if (!llama_memory_seq_rm(memory(e, slot), CONVERSATION, (llama_pos)n,
				 -1))
		return failed(e, -EOPNOTSUPP, "this model's state can't be cut at token %u",
			      n);
	s->held = n;
	return 0;
}

int engine_save(struct engine *e, unsigned int slot, unsigned int first,
		void *buf)
{
	struct llama_context *ctx = e->slots[slot].ctx;
	llama_memory_t mem = memory(e, slot);
	unsigned int end = first + e->info.block_tokens;
	size_t len;

	if (end > e->slots[slot].held)
		return failed(e, -EINVAL, "the slot has %u tokens, not %u",
			      e->slots[slot].held, end);
	llama_memory_seq_cp(mem, CONVERSATION, SCRATCH, (llama_pos)first,
			    (llama_pos)end);
	len = llama_state_seq_get_size(ctx, SCRATCH);
	if (len == e->info.range_bytes)
		len = llama_state_seq_get_data(ctx, buf, len, SCRATCH);
	llama_memory_seq_rm(mem, SCRATCH, -1, -1);
	if (len != e->info.range_bytes)
		return failed(e, -EIO, "state of tokens %u to %u has %zu bytes, not %zu",
			      first, end, len, e->info.range_bytes);
	return 0;
}

int engine_load(struct engine *e, unsigned int slot, unsigned int first,
		const void *buf)
{
	struct slot *s = &e->slots[slot];
	llama_memory_t mem = memory(e, slot);
	unsigned int end = first + e->info.block_tokens;
	size_t len;

	if (first != s->held || end > e->info.context)
		return failed(e, -EINVAL, "tokens %u to %u don't follow the %u of the slot",
			      first, end, s->held);
	len = llama_state_seq_set_data(s->ctx, buf, e->info.range_bytes,
				       SCRATCH);
	/* nothing may show in the conversation before all of it is right */
	if (len != e->info.range_bytes ||
	    llama_memory_seq_pos_min(mem, SCRATCH) != (llama_pos)first ||
	    llama_memory_seq_pos_max(mem, SCRATCH) != (llama_pos)end - 1) {
		llama_memory_seq_rm(mem, SCRATCH, -1, -1);
		return failed(e, -EBADMSG, "not the state of tokens %u to %u",
			      first, end);
	}
	llama_memory_seq_cp(mem, SCRATCH, CONVERSATION, -1, -1);
	llama_memory_seq_rm(mem, SCRATCH, -1, -1);
	s->held = end;
	return 0;
}

long engine_tokenize(struct engine *e, const char *text, bool begin,
		     uint32_t *tokens, size_t max)
{
	int32_t n;

	if (!e->info.has_text)
		return failed(e, -EOPNOTSUPP, "this model has no vocabulary: give tokens, not text");
	n = llama_tokenize(e->vocab, text, (int32_t)strlen(text),
			   (llama_token *)tokens, (int32_t)max, begin, true);
	if (n < 0)
		return failed(e, -ENOBUFS, "the text is more than %zu tokens",
			      max);
	return n;
}

long engine_text(struct engine *e, const uint32_t *tokens, size_t n, char *text,
		 size_t max)
{
	int32_t len;

	if (!e->info.has_text)
		return failed(e, -EOPNOTSUPP, "this model has no vocabulary");
	len = llama_detokenize(e->vocab, (const llama_token *)tokens,
			       (int32_t)n, text, (int32_t)max, false, true);
	if (len < 0)
		return failed(e, -ENOBUFS, "the text is too long");
	return len;
}

bool engine_is_end(const struct engine *e, uint32_t token)
{
	return e->info.has_text &&
	       llama_vocab_is_eog(e->vocab, (llama_token)token);
}

static int load_model(struct engine *e, const struct engine_opts *o)
{
	if (access(o->model, R_OK))
		return failed(e, -errno, "can't read %s: %s", o->model,
			      strerror(errno));
	e->model = llama_model_load_from_file(o->model,
					      llama_model_default_params());
	if (!e->model)
		return failed(e, -EINVAL, "libllama can't load %s; --verbose shows why",
			      o->model);
	e->vocab = llama_model_get_vocab(e->model);
	if (!llama_model_has_decoder(e->model) ||
	    llama_model_has_encoder(e->model))
		return failed(e, -EOPNOTSUPP, "%s is not of the kind that only decodes",
			      o->model);
	if (llama_model_is_recurrent(e->model) ||
	    llama_model_is_hybrid(e->model))
		return failed(e, -EOPNOTSUPP, "%s is recurrent: its state is of all tokens at once and can't be cut",
			      o->model);
	return 0;
}

static int make_slots(struct engine *e)
{
	struct llama_context_params p = llama_context_default_params();
	struct engine_info *info = &e->info;
	unsigned int i;

	p.n_ctx = info->context;
	p.n_batch = info->block_tokens;
	p.n_ubatch = info->block_tokens;
	p.n_seq_max = 2;
	p.n_threads = (int32_t)info->threads;
	p.n_threads_batch = (int32_t)info->threads;
	/* what a window leaves out could not be saved */
	p.swa_full = true;
	/* only then can two sequences share cells */
	p.kv_unified = true;
	p.no_perf = true;
	e->slots = calloc(info->slots, sizeof(*e->slots));
	if (!e->slots)
		return failed(e, -ENOMEM, "out of memory");
	for (i = 0; i < info->slots; i++) {
		e->slots[i].ctx = llama_init_from_model(e->model, p);
		if (!e->slots[i].ctx)
			return failed(e, -ENOMEM, "libllama can't make a context for %u tokens; --verbose shows why",
				      info->context);
	}
	/* the library may have made it larger */
	info->context = llama_n_ctx(e->slots[0].ctx);
	if (llama_n_ubatch(e->slots[0].ctx) != info->block_tokens)
		return failed(e, -EINVAL, "libllama computes %u tokens at once, not %u",
			      llama_n_ubatch(e->slots[0].ctx),
			      info->block_tokens);
	snprintf(info->build, sizeof(info->build),
		 "libllama %s, state %d, %s, threads %u, K %s, V %s, context %u, at once %u",
		 info->version, LLAMA_STATE_SEQ_VERSION,
		 llama_print_system_info(), info->threads,
		 ggml_type_name(p.type_k), ggml_type_name(p.type_v),
		 info->context, info->block_tokens);
	return 0;
}

/* Fill slot 0 with two ranges of made-up tokens; the first one tells the size. */
static int fill_two(struct engine *e)
{
	unsigned int n = e->info.block_tokens, i;
	uint32_t *tokens = calloc(2 * n, sizeof(*tokens));
	int r;

	if (!tokens)
		return failed(e, -ENOMEM, "out of memory");
	for (i = 0; i < 2 * n; i++)
		tokens[i] = (7 * i + 1) % e->info.vocab;
	r = engine_compute(e, 0, tokens, 0, n);
	e->info.range_bytes = llama_state_seq_get_size(e->slots[0].ctx,
						       CONVERSATION);
	if (!r)
		r = engine_compute(e, 0, tokens + n, n, n);
	free(tokens);
	return r;
}

/* Take slot 0's two ranges out and put them back. */
static int take_and_put(struct engine *e, char *ranges)
{
	unsigned int n = e->info.block_tokens, i;
	size_t len = e->info.range_bytes;
	int r = 0;

	for (i = 0; i < 2 && !r; i++)
		r = engine_save(e, 0, i * n, ranges + i * len);
	if (!r)
		r = engine_trim(e, 0, 0);
	for (i = 0; i < 2 && !r; i++)
		r = engine_load(e, 0, i * n, ranges + i * len);
	return r;
}

/*
 * Models of some kinds keep what can't be cut by tokens, and say so nowhere: so
 * try it.  State, positions included, must be the same to the last bit.
 */
static int try_cutting(struct engine *e)
{
	struct llama_context *ctx = e->slots[0].ctx;
	char *want = NULL, *got = NULL, *ranges = NULL;
	size_t len;
	int r = fill_two(e);

	if (r)
		return r;
	len = llama_state_seq_get_size(ctx, CONVERSATION);
	want = malloc(len);
	got = malloc(len);
	ranges = malloc(2 * e->info.range_bytes);
	if (!want || !got || !ranges) {
		r = failed(e, -ENOMEM, "out of memory");
		goto out;
	}
	if (llama_state_seq_get_data(ctx, (uint8_t *)want, len,
				     CONVERSATION) != len ||
	    take_and_put(e, ranges) ||
	    llama_state_seq_get_size(ctx, CONVERSATION) != len ||
	    llama_state_seq_get_data(ctx, (uint8_t *)got, len,
				     CONVERSATION) != len ||
	    memcmp(want, got, len))
		r = failed(e, -EOPNOTSUPP, "the state of this model can't be cut by tokens");
	else
		r = engine_trim(e, 0, 0);
out:
	free(ranges);
	free(got);
	free(want);
	return r;
}

static int engine_start(struct engine *e, const struct engine_opts *o)
{
	struct engine_info *info = &e->info;
	int r;

	llama_log_set(o->verbose ? NULL : silent, NULL);
	/* threads that spin for each other stand still on a busy machine */
	setenv("OMP_WAIT_POLICY", "passive", 0);
	llama_backend_init();
	if (o->backends)
		ggml_backend_load_all_from_path(o->backends);
	else
		ggml_backend_load_all();
	if (!ggml_backend_dev_count())
		return failed(e, -ENOENT, "ggml found no backend%s%s",
			      o->backends ? " in " : "",
			      o->backends ? o->backends : "");
	r = load_model(e, o);
	if (r)
		return r;
	info->version = llama_version();
	info->slots = o->slots;
	info->block_tokens = o->block_tokens;
	info->threads = o->threads ? o->threads : default_threads();
	info->context = o->context;
	if (info->context < 2 * info->block_tokens)
		return failed(e, -EINVAL, "a context of %u tokens is less than two blocks of %u",
			      info->context, info->block_tokens);
	if (llama_model_desc(e->model, info->model, sizeof(info->model)) < 0)
		info->model[0] = 0;
	info->weights = llama_model_n_params(e->model);
	info->vocab = (unsigned int)llama_vocab_n_tokens(e->vocab);
	info->has_text = llama_vocab_type(e->vocab) != LLAMA_VOCAB_TYPE_NONE;
	e->batch = llama_batch_init((int32_t)info->block_tokens, 0, 1);
	r = make_slots(e);
	return r ? r : try_cutting(e);
}

int engine_open(struct engine **out, const struct engine_opts *opts, char *why,
		size_t len)
{
	struct engine *e = calloc(1, sizeof(*e));
	int r;

	if (!e) {
		snprintf(why, len, "out of memory");
		return -ENOMEM;
	}
	r = engine_start(e, opts);
	if (r) {
		snprintf(why, len, "%s", e->error);
		engine_close(e);
		return r;
	}
	*out = e;
	return 0;
}

void engine_close(struct engine *e)
{
	unsigned int i;

	if (!e)
		return;
	for (i = 0; e->slots && i < e->info.slots; i++)
		if (e->slots[i].ctx)
			llama_free(e->slots[i].ctx);
	free(e->slots);
	if (e->batch.token)
		llama_batch_free(e->batch);
	if (e->model)
		llama_model_free(e->model);
	llama_backend_free();
	free(e);
}
