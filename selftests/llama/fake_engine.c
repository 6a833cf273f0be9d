// SPDX-License-Identifier: MIT
/*
 * An engine that only pretends, so that all else of kvmm-llama can be tested
 * where there is no libllama, and with sanitizers.
 *
 * The state of a token is a few hundred bytes that follow from the state before
 * it, the token, its position, and the first position that was computed in the
 * same go: as with a real engine, a token that is computed on its own has
 * another state than one that is computed as part of a prompt.  Logits follow
 * from every byte of the whole sequence.  So a single wrong bit anywhere, a
 * range in the wrong place, or one too few shows in the very next logits.
 *
 * Knobs, for tests of the tests: FAKE_FLIP=N flips a bit of the Nth range that
 * is loaded; FAKE_REFUSE=N refuses it; FAKE_FAIL=N lets the Nth computation
 * fail.
 */
#include "tools/llama/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOKEN_BYTES	524	/* so that a range does not fit blocks evenly */
#define VOCAB		1000

struct slot {
	unsigned char *state;
	unsigned int held;
};

struct engine {
	struct engine_info info;
	struct slot *slots;
	float logits[VOCAB];
	char error[128];
	long flip, refuse, fail;
};

static long knob(const char *name)
{
	const char *v = getenv(name);

	return v ? atol(v) : 0;
}

static int failed(struct engine *e, int err, const char *what)
{
	snprintf(e->error, sizeof(e->error), "%s", what);
	return err;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static uint64_t hash(const unsigned char *p, size_t n, uint64_t h)
{
	while (n--)
		h = (h ^ *p++) * 0x100000001b3ULL;
	return h;
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

static unsigned char *at(const struct slot *s, unsigned int pos)
{
	return s->state + (size_t)pos * TOKEN_BYTES;
}

int engine_compute(struct engine *e, unsigned int slot, const uint32_t *tokens,
		   unsigned int first, unsigned int n)
{
	struct slot *s = &e->slots[slot];
	uint64_t h;

	if (e->fail && !--e->fail)
		return failed(e, -EIO, "the engine was told to fail");
	if (!n || n > e->info.block_tokens || first != s->held)
		return failed(e, -EINVAL, "tokens don't follow");
	if (n > e->info.context - s->held)
		return failed(e, -ENOSPC, "the context is full");
	for (unsigned int i = 0; i < n; i++, s->held++) {
		h = s->held ? hash(at(s, s->held - 1), TOKEN_BYTES, 1) : 1;
		h = mix(h ^ mix(tokens[i]) ^ mix(s->held) ^ mix(first));
		for (unsigned int k = 0; k < TOKEN_BYTES; k += 4) {
			uint32_t word = (uint32_t)(h = mix(h + k + 1));

			memcpy(at(s, s->held) + k, &word, 4);
		}
	}
	h = hash(s->state, (size_t)s->held * TOKEN_BYTES, 1);
	for (unsigned int i = 0; i < VOCAB; i++) {
		h = mix(h + i + 1);
		e->logits[i] = (float)(h >> 40);
	}
	return 0;
}

const float *engine_logits(struct engine *e, unsigned int slot)
{
	(void)slot;
	return e->logits;
}

int engine_trim(struct engine *e, unsigned int slot, unsigned int n)
{
	if (n < e->slots[slot].held)
		e->slots[slot].held = n;
	return 0;
}

int engine_save(struct engine *e, unsigned int slot, unsigned int first,
		void *buf)
{
	if (first + e->info.block_tokens > e->slots[slot].held)
		return failed(e, -EINVAL, "the slot has fewer tokens");
	memcpy(buf, at(&e->slots[slot], first), e->info.range_bytes);
	return 0;
}

int engine_load(struct engine *e, unsigned int slot, unsigned int first,
		const void *buf)
{
	struct slot *s = &e->slots[slot];

	if (first != s->held ||
	    first + e->info.block_tokens > e->info.context)
		return failed(e, -EINVAL, "tokens don't follow");
	if (e->refuse && !--e->refuse)
		return failed(e, -EBADMSG, "the engine was told to refuse");
	memcpy(at(s, first), buf, e->info.range_bytes);
	if (e->flip && !--e->flip)
		at(s, first)[e->info.range_bytes / 2] ^= 1;
	s->held += e->info.block_tokens;
	return 0;
}

long engine_tokenize(struct engine *e, const char *text, bool begin,
		     uint32_t *tokens, size_t max)
{
	(void)text;
	(void)begin;
	(void)tokens;
	(void)max;
	return failed(e, -EOPNOTSUPP, "this model has no vocabulary: give tokens, not text");
}

long engine_text(struct engine *e, const uint32_t *tokens, size_t n, char *text,
		 size_t max)
{
	return engine_tokenize(e, text, !n, (uint32_t *)tokens, max);
}

bool engine_is_end(const struct engine *e, uint32_t token)
{
	(void)e;
	(void)token;
	return false;
}

int engine_open(struct engine **out, const struct engine_opts *opts, char *why,
		size_t len)
{
	struct engine *e;

	if (access(opts->model, R_OK)) {
		snprintf(why, len, "can't read %s: %s", opts->model,
			 strerror(errno));
		return -errno;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->info = (struct engine_info){
		.version = "pretended",
		.model = "pretended",
		.build = "pretended",
		.weights = 1,
		.vocab = VOCAB,
		.slots = opts->slots,
		.context = opts->context,
		.block_tokens = opts->block_tokens,
		.threads = 1,
		.range_bytes = (size_t)opts->block_tokens * TOKEN_BYTES,
	};
	e->flip = knob("FAKE_FLIP");
	e->refuse = knob("FAKE_REFUSE");
	e->fail = knob("FAKE_FAIL");
	e->slots = calloc(opts->slots, sizeof(*e->slots));
	for (unsigned int i = 0; e->slots && i < opts->slots; i++) {
		e->slots[i].state = calloc(opts->context, TOKEN_BYTES);
		if (!e->slots[i].state)
			abort();
	}
	*out = e;
	return 0;
}

void engine_close(struct engine *e)
{
	if (!e)
		return;
	for (unsigned int i = 0; e->slots && i < e->info.slots; i++)
		free(e->slots[i].state);
	free(e->slots);
	free(e);
}
