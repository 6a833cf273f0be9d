// SPDX-License-Identifier: MIT
/*
 * libkvmm in a hundred lines: what an inference engine does with it.
 *
 * A conversation of two turns.  The first one stores its KV blocks; they are
 * swapped out, because other work needs the memory; the second one finds the
 * prefix that both have in common, brings it back, and computes only the rest.
 *
 *	cc example.c $(pkg-config --cflags --libs libkvmm) -o example
 *	./example SWAPFILE
 */
#include <kvmm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_SIZE	65536	/* bytes of KV data of one run of tokens */
#define FIRST_TURN	8	/* blocks */
#define SECOND_TURN	10

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* An engine would hash domain, tenant, parent key and tokens. */
static void make_key(unsigned char *key, unsigned int position)
{
	memset(key, 0, KVMM_KEY_LEN);
	snprintf((char *)key, KVMM_KEY_LEN, "conversation 1, block %u",
		 position);
}

/* Stands for the GPU: the data of a block is a function of its position. */
static void compute(void *data, unsigned int position)
{
	memset(data, 'A' + (int)position, BLOCK_SIZE);
}

static void show(void *ctx, enum kvmm_log_level level, const char *text)
{
	(void)ctx;
	(void)level;
	fprintf(stderr, "kvmm: %s\n", text);
}

/* Blocks @first to @n - 1: allocate, fill, publish. */
static void store(struct kvmm_pool *pool, unsigned int first, unsigned int n,
		  uint64_t parent)
{
	struct kvmm_publish_entry entries[SECOND_TURN];
	struct kvmm_block_ref refs[SECOND_TURN];
	unsigned int i, count = n - first;

	if (kvmm_alloc(pool, refs, count, 1, 1000) != (long)count)
		die("kvmm_alloc");
	memset(entries, 0, sizeof(entries));
	for (i = 0; i < count; i++) {
		compute(kvmm_addr(pool, &refs[i]), first + i);
		make_key(entries[i].key, first + i);
		entries[i].handle = refs[i].handle;
		entries[i].parent = i ? refs[i - 1].handle : parent;
		entries[i].position = first + i;
		entries[i].length = BLOCK_SIZE;
	}
	if (kvmm_publish(pool, entries, count, 0) < 0)
		die("kvmm_publish");
}

int main(int argc, char **argv)
{
	struct kvmm_open_opts oo = { .size = sizeof(oo), .log = show };
	struct kvmm_pool_opts po = {
		.size = sizeof(po),
		.name = "example",
		.block_size = BLOCK_SIZE,
		.nr_frames = 16,
		.nr_slots = 64,
	};
	struct kvmm_swap_opts so = {
		.size = sizeof(so),
		.flags = KVMM_SWAP_CREATE | KVMM_SWAP_UNLINK,
		.path = argc > 1 ? argv[1] : "example.swap",
	};
	unsigned char keys[SECOND_TURN][KVMM_KEY_LEN];
	struct kvmm_block_ref refs[SECOND_TURN];
	struct kvmm_pool *pool;
	struct kvmm *kv;
	long prefix;
	int i;

	if (kvmm_open(&kv, &oo))
		die("kvmm_open");
	if (kvmm_pool_create(kv, &po, &pool))
		die("kvmm_pool_create");
	if (kvmm_swap_attach(pool, &so) < 0)
		die("kvmm_swap_attach");

	store(pool, 0, FIRST_TURN, 0);
	if (kvmm_reclaim(pool, 0, NULL))
		die("kvmm_reclaim");

	for (i = 0; i < SECOND_TURN; i++)
		make_key(keys[i], i);
	prefix = kvmm_lookup(pool, keys, refs, SECOND_TURN,
			     KVMM_LOOKUP_PREFIX);
	if (prefix < 0)
		die("kvmm_lookup");
	/* One that can't be read back any more ends the prefix. */
	if (prefix && kvmm_swap_in(pool, refs, prefix, KVMM_SWAP_PIN) < 0)
		die("kvmm_swap_in");
	for (i = 0; i < prefix && !refs[i].result; i++)
		printf("block %d: found, begins with '%c'\n", i,
		       *(char *)kvmm_addr(pool, &refs[i]));
	if (i < SECOND_TURN)
		store(pool, i, SECOND_TURN, i ? refs[i - 1].handle : 0);
	printf("%d blocks found, %d computed (%s backend, %s)\n", i,
	       SECOND_TURN - i, kvmm_backend_name(kv), kvmm_io_name(kv));
	/* Those without a pin say so in their result. */
	if (prefix)
		kvmm_unpin(pool, refs, prefix);

	kvmm_pool_close(pool);
	kvmm_pool_destroy(kv, "example", 0);
	kvmm_close(kv);
	return 0;
}
