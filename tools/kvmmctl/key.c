// SPDX-License-Identifier: MIT
/*
 * Chained keys with libcrypto.  The hashed text has parts of fixed length, so
 * no two chains run together.
 */
#include "key.h"

#include <endian.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

struct key_maker {
	EVP_MD *md;
	EVP_MD_CTX *ctx;
};

/* 16 bytes, the NUL included: apart from every model's own domain */
static const char domain[16] = "kvmmctl replay1";

struct text {
	char domain[sizeof(domain)];
	uint8_t parent[KVMM_KEY_LEN];
	uint64_t id;
} __attribute__((packed));

struct key_maker *key_maker_new(void)
{
	struct key_maker *km = calloc(1, sizeof(*km));

	if (!km)
		return NULL;
	km->md = EVP_MD_fetch(NULL, "SHA256", NULL);
	km->ctx = EVP_MD_CTX_new();
	if (km->md && km->ctx)
		return km;
	key_maker_free(km);
	return NULL;
}

void key_maker_free(struct key_maker *km)
{
	if (!km)
		return;
	EVP_MD_CTX_free(km->ctx);
	EVP_MD_free(km->md);
	free(km);
}

int key_chain(struct key_maker *km, const uint64_t *ids, size_t n,
	      uint8_t *keys)
{
	struct text text = { 0 };

	memcpy(text.domain, domain, sizeof(domain));
	for (size_t i = 0; i < n; i++) {
		uint8_t *key = keys + i * KVMM_KEY_LEN;

		text.id = htole64(ids[i]);
		if (!EVP_DigestInit_ex2(km->ctx, km->md, NULL) ||
		    !EVP_DigestUpdate(km->ctx, &text, sizeof(text)) ||
		    !EVP_DigestFinal_ex(km->ctx, key, NULL))
			return -ENOMEM;
		memcpy(text.parent, key, KVMM_KEY_LEN);
	}
	return 0;
}
