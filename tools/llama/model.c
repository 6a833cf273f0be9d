// SPDX-License-Identifier: MIT
/*
 * A llama of random weights in GGUF version 3: header, names with values, names
 * of tensors with where they are, then the numbers, all little-endian 32-bit
 * floats.  It has no vocabulary ("no_vocab"), so that tokens are numbers, or one
 * in which any text can be written: a token for each byte, and made-up words.
 *
 * Weights are close to normal, scaled so that each layer's output is as large
 * as its input; keys and queries are larger, so that attention looks at some
 * tokens more than at others and an answer depends on what was said long ago.
 */
#include "model.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define ALIGN		32
#define HEAD		64
#define ATTENTION_SCALE	2.0

#define BYTES		3	/* token of byte 0 */
#define WORDS		MODEL_TEXT_VOCAB

enum gguf_type {
	GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_STRING = 8, GGUF_ARRAY = 9
};

/* what kind of token */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_BYTE = 6 };

/**
 * struct writer - a file in the making
 * @f: where to
 * @counting: nothing is written: how many tensors and values are there?
 * @values: told so far
 * @tensors: told so far
 * @offset: of the next tensor, from the first
 * @seed: of the next tensor
 */
struct writer {
	FILE *f;
	bool counting;
	uint64_t values;
	uint64_t tensors;
	uint64_t offset;
	uint64_t seed;
};

static void put(struct writer *w, const void *data, size_t len)
{
	if (!w->counting)
		fwrite(data, 1, len, w->f);
}

static void put32(struct writer *w, uint32_t n)
{
	n = htole32(n);
	put(w, &n, sizeof(n));
}

static void put64(struct writer *w, uint64_t n)
{
	n = htole64(n);
	put(w, &n, sizeof(n));
}

static void put_string(struct writer *w, const char *s)
{
	put64(w, strlen(s));
	put(w, s, strlen(s));
}

static void value_u32(struct writer *w, const char *name, uint32_t n)
{
	w->values++;
	put_string(w, name);
	put32(w, GGUF_U32);
	put32(w, n);
}

static void value_f32(struct writer *w, const char *name, float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	w->values++;
	put_string(w, name);
	put32(w, GGUF_F32);
	put32(w, bits);
}

static void value_string(struct writer *w, const char *name, const char *s)
{
	w->values++;
	put_string(w, name);
	put32(w, GGUF_STRING);
	put_string(w, s);
}

static void array(struct writer *w, const char *name, enum gguf_type type,
		  uint64_t n)
{
	w->values++;
	put_string(w, name);
	put32(w, GGUF_ARRAY);
	put32(w, type);
	put64(w, n);
}

static void token_text(unsigned int i, char text[16])
{
	static const char *const special[BYTES] = { "<unk>", "<s>", "</s>" };

	if (i < BYTES)
		snprintf(text, 16, "%s", special[i]);
	else if (i < WORDS)
		snprintf(text, 16, "<0x%02X>", i - BYTES);
	else
		snprintf(text, 16, "w%u", i);
}

static void vocabulary(struct writer *w, const struct model_shape *s)
{
	char text[16];
	unsigned int i;

	value_string(w, "tokenizer.ggml.model", "llama");
	value_u32(w, "tokenizer.ggml.unknown_token_id", 0);
	value_u32(w, "tokenizer.ggml.bos_token_id", 1);
	value_u32(w, "tokenizer.ggml.eos_token_id", 2);
	array(w, "tokenizer.ggml.tokens", GGUF_STRING, s->vocab);
	for (i = 0; i < s->vocab; i++) {
		token_text(i, text);
		put_string(w, text);
	}
	array(w, "tokenizer.ggml.scores", GGUF_F32, s->vocab);
	for (i = 0; i < s->vocab; i++)
		put32(w, 0);
	array(w, "tokenizer.ggml.token_type", GGUF_I32, s->vocab);
	for (i = 0; i < s->vocab; i++)
		put32(w, !i ? TYPE_UNKNOWN : i < BYTES ? TYPE_CONTROL :
			 i < WORDS ? TYPE_BYTE : TYPE_NORMAL);
}

static void values(struct writer *w, const struct model_shape *s)
{
	value_string(w, "general.architecture", "llama");
	value_string(w, "general.name", "random");
	value_u32(w, "llama.block_count", s->layers);
	value_u32(w, "llama.context_length", s->context);
	value_u32(w, "llama.embedding_length", s->embd);
	value_u32(w, "llama.feed_forward_length", s->ff);
	value_u32(w, "llama.attention.head_count", s->embd / HEAD);
	value_u32(w, "llama.attention.head_count_kv", s->heads_kv);
	value_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
	value_u32(w, "llama.rope.dimension_count", HEAD);
	value_u32(w, "llama.vocab_size", s->vocab);
	if (s->text)
		vocabulary(w, s);
	else
		value_string(w, "tokenizer.ggml.model", "no_vocab");
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* Four uniform numbers of 16 bits make one that is close to normal. */
static float next_normal(uint64_t *state)
{
	uint64_t x = next_random(state);
	int sum = (int)(x & 0xffff) + (int)(x >> 16 & 0xffff) +
		  (int)(x >> 32 & 0xffff) + (int)(x >> 48);

	return (float)(sum - 2 * 0xffff) / (65536.0F * 0.57735F);
}

typedef void tensor_fn(struct writer *w, const char *name, uint64_t rows,
		       uint64_t cols, double scale);

/* Its name, shape and place; @rows 0: a vector. */
static void describe(struct writer *w, const char *name, uint64_t rows,
		     uint64_t cols, double scale)
{
	uint64_t bytes = cols * (rows ? rows : 1) * 4;

	(void)scale;
	w->tensors++;
	put_string(w, name);
	put32(w, rows ? 2 : 1);
	put64(w, cols);
	if (rows)
		put64(w, rows);
	put32(w, 0);	/* F32 */
	put64(w, w->offset);
	w->offset += (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Its numbers: @scale 0: all are 1. */
static void numbers(struct writer *w, const char *name, uint64_t rows,
		    uint64_t cols, double scale)
{
	uint64_t state = w->seed, n = cols * (rows ? rows : 1), i;
	float factor = (float)(scale / sqrt((double)cols));

	for (; *name; name++)
		state = (state ^ (unsigned char)*name) * 0x100000001b3ULL;
	for (i = 0; i < n; i++) {
		float x = scale > 0 ? next_normal(&state) * factor : 1.0F;
		uint32_t bits;

		memcpy(&bits, &x, sizeof(bits));
		put32(w, bits);
	}
	for (; n * 4 % ALIGN; n++)
		put32(w, 0);
}

static void layer(struct writer *w, const struct model_shape *s, unsigned int l,
		  tensor_fn *each)
{
	uint64_t kv = (uint64_t)s->heads_kv * HEAD;
	const struct {
		const char *name;
		uint64_t rows, cols;
		double scale;
	} part[] = {
		{ "attn_norm", 0, s->embd, 0 },
		{ "attn_q", s->embd, s->embd, ATTENTION_SCALE },
		{ "attn_k", kv, s->embd, ATTENTION_SCALE },
		{ "attn_v", kv, s->embd, 1 },
		{ "attn_output", s->embd, s->embd, 1 },
		{ "ffn_norm", 0, s->embd, 0 },
		{ "ffn_gate", s->ff, s->embd, 1 },
		{ "ffn_up", s->ff, s->embd, 1 },
		{ "ffn_down", s->embd, s->ff, 1 },
	};
	char name[48];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(part); i++) {
		snprintf(name, sizeof(name), "blk.%u.%s.weight", l,
			 part[i].name);
		each(w, name, part[i].rows, part[i].cols, part[i].scale);
	}
}

static void tensors(struct writer *w, const struct model_shape *s,
		    tensor_fn *each)
{
	unsigned int l;

	each(w, "token_embd.weight", s->vocab, s->embd, sqrt(s->embd));
	for (l = 0; l < s->layers; l++)
		layer(w, s, l, each);
	each(w, "output_norm.weight", 0, s->embd, 0);
	each(w, "output.weight", s->vocab, s->embd, 1);
}

static void head(struct writer *w, const struct model_shape *s)
{
	struct writer count = { .counting = true };
	long at;

	values(&count, s);
	tensors(&count, s, describe);
	put(w, "GGUF", 4);
	put32(w, 3);
	put64(w, count.tensors);
	put64(w, count.values);
	values(w, s);
	tensors(w, s, describe);
	for (at = ftell(w->f); at >= 0 && at % ALIGN; at++)
		put(w, "", 1);
}

static bool shape_ok(const struct model_shape *s)
{
	return s->layers && s->layers <= 128 && s->embd && s->embd % HEAD == 0 &&
	       s->embd <= 16384 && s->heads_kv &&
	       (s->embd / HEAD) % s->heads_kv == 0 && s->ff &&
	       s->ff % ALIGN == 0 && s->ff <= 65536 && s->vocab >= 2 &&
	       s->vocab <= 1 << 20 && s->context &&
	       (!s->text || s->vocab >= WORDS);
}

int model_write(const char *path, const struct model_shape *shape,
		uint64_t *bytes)
{
	struct writer w = { .seed = shape->seed };
	char tmp[PATH_MAX];
	int err = 0;

	if (!shape_ok(shape))
		return -EINVAL;
	if (snprintf(tmp, sizeof(tmp), "%s.%ld", path, (long)getpid()) >=
	    (int)sizeof(tmp))
		return -ENAMETOOLONG;
	w.f = fopen(tmp, "wxe");
	if (!w.f)
		return -errno;
	head(&w, shape);
	tensors(&w, shape, numbers);
	if (bytes)
		*bytes = (uint64_t)ftell(w.f);
	if (fflush(w.f) || ferror(w.f))
		err = errno ? -errno : -EIO;
	if (fclose(w.f) && !err)
		err = -errno;
	if (!err && rename(tmp, path))
		err = -errno;
	if (err)
		unlink(tmp);
	return err;
}
