// SPDX-License-Identifier: MIT
/*
 * On the kernel's backend, with memory that is given back: an engine leases what
 * it registers, lets go when the system is short, and goes on.
 */
#include "door.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#define UNIT	(2 * 1024 * 1024 / LT_BLOCK)	/* frames of a huge page */
#define UNITS	4

static bool has_elastic(struct kvmm *kv)
{
	struct kvmm_info info;

	return !kvmm_info(kv, &info) && info.features & KVMM_FEATURE_ELASTIC;
}

/* All its chunks but the first are elastic. */
static void elastic_pool(struct door *d)
{
	struct kvmm_pool_create c = {
		.size = sizeof(c),
		.name = "door",
		.mode = 0600,
		.block_size = LT_BLOCK,
		.nr_frames = UNITS * UNIT,
		.nr_elastic = (UNITS - 1) * UNIT,
		.chunk_frames = UNIT,
	};
	struct kvmm_populate p = {
		.size = sizeof(p),
		.count = UNITS * UNIT,
	};
	int fd = open("/dev/kvmm", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	kvmm_pool_destroy(d->lt->kv, "door", KVMM_POOL_FORCE);
	assert_int_equal(ioctl(fd, KVMM_POOL_CREATE, &c), 0);
	assert_int_equal(ioctl(fd, KVMM_POPULATE, &p), 0);
	close(fd);
	assert_int_equal(kvmm_pool_open(d->lt->kv, "door", 0, &d->pool), 0);
}

/* The system is short of memory. */
static void squeeze(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "2", 1), 1);
	close(fd);
}

static void asked_back(void **state)
{
	struct lt *lt = *state;
	struct seq *s = malloc(sizeof(*s));
	unsigned int i, round, leased;
	struct door d;

	if (!has_elastic(lt->kv)) {
		free(s);
		assert_false(lt->kernel);
		return;
	}
	door_start(&d, lt, NULL);
	door_simple(&d, 2, 1, 8, 64, 1, 512);
	elastic_pool(&d);
	d.eng = door_open(&d, d.pool, NULL);
	assert_int_equal(lt_stat(d.pool).chunks_leased, 0);
	for (round = 0; round < 3; round++) {
		seq_new(&d, s, UNITS * UNIT - 8, 1000 * round, 0);
		seq_fill(&d, s);
		assert_true(door_offload(&d, s) >= UNIT - 8);
		leased = lt_stat(d.pool).chunks_leased;
		assert_true(leased >= 1);
		for (i = 0; i < 3000 && leased; i++) {
			squeeze();
			usleep(10000);
			leased = lt_stat(d.pool).chunks_leased;
			/* the floor's is nobody's to want */
			if (leased <= 1)
				break;
		}
		assert_true(leased <= 1);
		/* what stays is right, what does not is a miss */
		seq_clear(&d, s);
		i = door_restore(&d, s);
		seq_check(&d, s, 0, i);
	}
	kvmm_engine_close(d.eng);
	d.eng = NULL;
	assert_int_equal(lt_stat(d.pool).chunks_leased, 0);
	door_end(&d);
	free(s);
}

static const struct lt_test tests[] = {
	LT_TEST(asked_back),
};

int main(void)
{
	const char *backend = getenv("KVMM_TEST_BACKEND");

	if (!backend || strcmp(backend, "kernel")) {
		printf("1..1\nok 1 - asked_back # SKIP the kernel's backend only\n");
		return 0;
	}
	return LT_RUN("elastic", tests);
}
