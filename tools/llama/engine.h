/* SPDX-License-Identifier: MIT */
/*
 * What the server needs of an inference engine: a few slots that hold one
 * sequence of tokens each, computing more tokens of one, and the state of a
 * range of tokens as bytes.  engine_llama.c is libllama; the tests have one
 * that only pretends.
 *
 * Errors: functions that return int return 0 or -errno, and engine_error() has
 * the sentence.  One thread.
 */
#ifndef KVMM_LLAMA_ENGINE_H
#define KVMM_LLAMA_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;

/**
 * struct engine_opts - what to open
 * @model: path of a GGUF file
 * @backends: folder with ggml's backends; NULL: where ggml looks itself
 * @slots: sequences at once
 * @context: tokens that a slot has room for
 * @block_tokens: tokens computed in one go, and of a range that is saved
 * @threads: for computing; 0: one for each CPU, at most 8
 * @verbose: let the engine's messages through
 */
struct engine_opts {
	const char *model;
	const char *backends;
	unsigned int slots;
	unsigned int context;
	unsigned int block_tokens;
	unsigned int threads;
	bool verbose;
};

/**
 * struct engine_info - what was opened
 * @version: of the engine
 * @model: the model's own description
 * @build: all else that the bits of the state depend on: processor, threads,
 *	types
 * @weights: number of them
 * @vocab: tokens are below it
 * @has_text: text can be turned into tokens and back
 * @slots: see struct engine_opts, and the rest
 * @context: tokens
 * @block_tokens: tokens
 * @threads: threads
 * @range_bytes: state of a range of @block_tokens tokens
 */
struct engine_info {
	const char *version;
	char model[96];
	char build[512];
	uint64_t weights;
	unsigned int vocab;
	bool has_text;
	unsigned int slots;
	unsigned int context;
	unsigned int block_tokens;
	unsigned int threads;
	size_t range_bytes;
};

/**
 * engine_open() - load a model and make the slots
 * @out: set on success
 * @opts: what to open
 * @why: what went wrong, as a sentence
 * @len: bytes at @why
 *
 * Cutting and joining the state of the model is tried first.  Return: 0;
 * -ENOENT; -EINVAL: not a model, or too small a context; -EOPNOTSUPP: state of
 * this kind of model can't be cut by tokens; -ENOMEM.
 */
int engine_open(struct engine **out, const struct engine_opts *opts, char *why,
		size_t len);

/** engine_close() - NULL is fine */
void engine_close(struct engine *e);

/** engine_info() - what was opened */
const struct engine_info *engine_info(const struct engine *e);

/** engine_error() - the latest error as a sentence */
const char *engine_error(const struct engine *e);

/**
 * engine_compute() - more tokens of a slot's sequence
 * @e: the engine
 * @slot: which
 * @tokens: the new ones
 * @first: position of the first; the slot holds exactly those before it
 * @n: how many, 1 to block_tokens
 *
 * Return: 0; -EINVAL; -ENOSPC: the context is full; -EIO.
 */
int engine_compute(struct engine *e, unsigned int slot, const uint32_t *tokens,
		   unsigned int first, unsigned int n);

/** engine_logits() - of the last token computed in @slot: vocab numbers */
const float *engine_logits(struct engine *e, unsigned int slot);

/** engine_held() - how many tokens the slot's sequence has */
unsigned int engine_held(const struct engine *e, unsigned int slot);

/** engine_trim() - keep only the first @n tokens of the slot's sequence */
int engine_trim(struct engine *e, unsigned int slot, unsigned int n);

/**
 * engine_save() - state of a range of block_tokens tokens, as bytes
 * @e: the engine
 * @slot: which; it holds all of the range
 * @first: position of the range's first token
 * @buf: range_bytes bytes
 */
int engine_save(struct engine *e, unsigned int slot, unsigned int first,
		void *buf);

/**
 * engine_load() - append a range to a slot's sequence
 * @e: the engine
 * @slot: which; it holds exactly the tokens before the range
 * @first: position of the range's first token
 * @buf: range_bytes bytes as engine_save() made them
 *
 * Return: 0; -EBADMSG: not such a range, the slot is as it was; -EINVAL.
 */
int engine_load(struct engine *e, unsigned int slot, unsigned int first,
		const void *buf);

/**
 * engine_tokenize() - tokens of a text
 * @e: the engine
 * @text: ends with a 0
 * @begin: it begins a sequence
 * @tokens: where to
 * @max: room there
 *
 * Return: number of tokens; -EOPNOTSUPP: the model has no vocabulary;
 * -ENOBUFS.
 */
long engine_tokenize(struct engine *e, const char *text, bool begin,
		     uint32_t *tokens, size_t max);

/** engine_text() - text of tokens; bytes written, or -errno as above */
long engine_text(struct engine *e, const uint32_t *tokens, size_t n, char *text,
		 size_t max);

/** engine_is_end() - does this token end an answer? */
bool engine_is_end(const struct engine *e, uint32_t token);

#endif /* KVMM_LLAMA_ENGINE_H */
