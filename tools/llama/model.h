/* SPDX-License-Identifier: MIT */
/*
 * A model of random weights, as a GGUF file: what it says means nothing, but it
 * takes as much computing and as much state as one that was trained.
 */
#ifndef KVMM_LLAMA_MODEL_H
#define KVMM_LLAMA_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct model_shape - how large
 * @seed: of the weights; same shape and seed, same file to the last byte
 * @layers: 1 to 128
 * @embd: numbers of a token, a multiple of 64
 * @heads_kv: of keys and values; there are embd / 64 of queries
 * @ff: numbers within a layer's feed-forward part, a multiple of 32
 * @vocab: tokens
 * @context: tokens that it says it was trained for
 * @text: with a vocabulary, of which each byte is a token; @vocab is at least
 *	MODEL_TEXT_VOCAB
 */
struct model_shape {
	uint64_t seed;
	unsigned int layers;
	unsigned int embd;
	unsigned int heads_kv;
	unsigned int ff;
	unsigned int vocab;
	unsigned int context;
	bool text;
};

#define MODEL_TEXT_VOCAB	259

/**
 * model_write() - make the file
 * @path: made anew; on failure it is as it was
 * @shape: how large
 * @bytes: the file's size; may be NULL
 *
 * Return: 0; -EINVAL: no such shape; or what writing a file may end in.
 */
int model_write(const char *path, const struct model_shape *shape,
		uint64_t *bytes);

#endif /* KVMM_LLAMA_MODEL_H */
