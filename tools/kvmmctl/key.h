/* SPDX-License-Identifier: MIT */
/*
 * Keys of a trace's blocks: SHA-256 over a domain, the parent's key and the
 * block's id.  So an id under two parents is two blocks (of equal content), as
 * is an id that occurs twice in one request.
 */
#ifndef KVMMCTL_KEY_H
#define KVMMCTL_KEY_H

#include <kvmm.h>
#include <stddef.h>
#include <stdint.h>

struct key_maker;

/** key_maker_new() - NULL: no memory, or no SHA-256 in libcrypto */
struct key_maker *key_maker_new(void);

/** key_maker_free() - NULL is fine */
void key_maker_free(struct key_maker *km);

/**
 * key_chain() - keys of @n ids in prefix order, KVMM_KEY_LEN bytes each
 *
 * Return: 0 or -ENOMEM.
 */
int key_chain(struct key_maker *km, const uint64_t *ids, size_t n,
	      uint8_t *keys);

#endif /* KVMMCTL_KEY_H */
