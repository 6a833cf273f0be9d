// SPDX-License-Identifier: MIT
/*
 * Engine and store, opened as a command line says.
 */
#include "app.h"
#include "../kvmmctl/size.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES	(1UL << 20)

#ifndef LLAMA_BACKENDS
#define LLAMA_BACKENDS	NULL	/* where ggml looks itself */
#endif

int setup_engine(const struct args *args, const struct engine_opts *defaults,
		 struct engine **e)
{
	struct engine_opts o = *defaults;
	char why[300];
	int err;

	o.model = args->value[OPT_MODEL];
	if (!o.model)
		return fail("--model is missing");
	o.backends = args->value[OPT_BACKENDS];
	if (!o.backends)
		o.backends = LLAMA_BACKENDS;
	o.verbose = args->value[OPT_VERBOSE];
	if (opt_count(args, OPT_SLOTS, 1, 256, &o.slots) ||
	    opt_count(args, OPT_CONTEXT, 64, 1 << 20, &o.context) ||
	    opt_count(args, OPT_BLOCK_TOKENS, 8, 4096, &o.block_tokens) ||
	    opt_count(args, OPT_THREADS, 1, 512, &o.threads))
		return EXIT_ERROR;
	err = engine_open(e, &o, why, sizeof(why));
	return err ? fail("%s", why) : 0;
}

/* All of the weights: a model that was changed must not find the old keys. */
static int hash_file(const char *path, unsigned char hash[EVP_MAX_MD_SIZE])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	char *buf = malloc(READ_BYTES);
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = 0;
	unsigned int len;
	ssize_t n = 0;

	if (fd < 0)
		err = -errno;
	else if (!ctx || !buf)
		err = -ENOMEM;
	else if (EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1)
		err = -EIO;
	while (!err && (n = read(fd, buf, READ_BYTES)) > 0)
		if (EVP_DigestUpdate(ctx, buf, (size_t)n) != 1)
			err = -EIO;
	if (!err && n < 0)
		err = -errno;
	if (!err && EVP_DigestFinal_ex(ctx, hash, &len) != 1)
		err = -EIO;
	if (fd >= 0)
		close(fd);
	free(buf);
	EVP_MD_CTX_free(ctx);
	return err;
}

static void on_log(void *ctx, enum kvmm_log_level level, const char *text)
{
	(void)ctx;
	if (level != KVMM_LOG_INFO)
		note("%s%s", level == KVMM_LOG_WARNING ? "warning: " : "",
		     text);
}

static int which_backend(const struct args *args, enum kvmm_backend *backend)
{
	static const char *const names[] = {
		[KVMM_BACKEND_AUTO] = "auto",
		[KVMM_BACKEND_KERNEL] = "kernel",
		[KVMM_BACKEND_USER] = "user",
	};
	const char *name = args->value[OPT_BACKEND];

	*backend = KVMM_BACKEND_AUTO;
	if (!name)
		return 0;
	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++) {
		if (!strcmp(name, names[i])) {
			*backend = (enum kvmm_backend)i;
			return 0;
		}
	}
	return fail("--backend: '%s' is unknown; there are: auto, kernel, user",
		    name);
}

int setup_store(const struct args *args, const struct engine *e,
		const char *pool, uint64_t memory, uint64_t disk,
		struct store **st)
{
	unsigned char hash[EVP_MAX_MD_SIZE];
	struct store_opts o = {
		.device = args->value[OPT_DEVICE],
		.pool = args->value[OPT_POOL] ? args->value[OPT_POOL] : pool,
		.memory = memory,
		.disk = disk,
		.swap = args->value[OPT_SWAP],
		.model_hash = hash,
		.tenant = args->value[OPT_TENANT],
		.log = on_log,
	};
	char why[300];
	int err;

	*st = NULL;
	if (which_backend(args, &o.backend))
		return EXIT_ERROR;
	if (opt_size(args, OPT_BLOCK_SIZE, KVMM_MIN_BLOCK_SIZE,
		     KVMM_MAX_BLOCK_SIZE, &o.block_size) ||
	    opt_size(args, OPT_MEMORY, 1 << 16, 1ULL << 44, &o.memory) ||
	    opt_size(args, OPT_DISK, 0, 1ULL << 44, &o.disk))
		return EXIT_ERROR;
	if (o.block_size & (o.block_size - 1))
		return fail("--block-size: %s is not a power of two",
			    args->value[OPT_BLOCK_SIZE]);
	if (args->value[OPT_NO_KVMM])
		return 0;
	err = hash_file(args->value[OPT_MODEL], hash);
	if (err)
		return fail("can't read %s: %s", args->value[OPT_MODEL],
			    strerror(-err));
	err = store_open(st, &o, engine_info(e), why, sizeof(why));
	return err ? fail("%s", why) : 0;
}
