// SPDX-License-Identifier: MIT
/*
 * Property test: millions of random commands on pools of random shape, each
 * compared with the model (sim.h).
 *
 * usage: property [--seed N] [--ops N] [--check-every N]
 *
 * Every pool lives for some thousand commands and has a seed of its own, which
 * a failure prints; --seed with it starts at that pool.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "drive.h"

#define OPS_OF_A_POOL 10000

/* splitmix64 */
struct prng {
	u64 state;
};

static u64 pool_seed;

static u64 next(struct prng *p)
{
	u64 z = p->state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static u32 random_below(void *src, u32 n)
{
	return (u32)((next(src) >> 32) * n >> 32);
}

void sim_on_failure(const struct sim *s)
{
	(void)s;
	printf("not ok 1 - the core does what the model does\n");
	printf("# again with: --seed %llu --ops %d\n",
	       (unsigned long long)pool_seed, OPS_OF_A_POOL);
	fflush(stdout);
	exit(1);
}

void kvmm_core_report(const char *file, int line, const char *what)
{
	fprintf(stderr, "# %s:%d: the core found: %s\n", file, line, what);
	sim_on_failure(NULL);
}

static u64 number(const char *arg)
{
	char *end;
	u64 n = strtoull(arg, &end, 0);

	if (*end || end == arg) {
		fprintf(stderr, "property: bad number '%s'\n", arg);
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "ops", required_argument, NULL, 'o' },
		{ "check-every", required_argument, NULL, 'c' },
		{ NULL, 0, NULL, 0 },
	};
	static struct drive d;
	u64 ops = 1000000, done = 0, pools = 0;
	struct prng p;
	int opt;

	pool_seed = (u64)time(NULL) << 20;
	d.check_every = 16;
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 's':
			pool_seed = number(optarg);
			break;
		case 'o':
			ops = number(optarg);
			break;
		case 'c':
			d.check_every = (u32)number(optarg);
			if (d.check_every)
				break;
			/* fallthrough */
		default:
			fprintf(stderr,
				"usage: property [--seed N] [--ops N] [--check-every N]\n");
			return 2;
		}
	}
	printf("1..1\n# seed %llu\n", (unsigned long long)pool_seed);
	fflush(stdout);
	d.below = random_below;
	d.src = &p;
	while (done < ops) {
		p.state = pool_seed;
		drive_open(&d);
		while (d.s.ops < OPS_OF_A_POOL && done + d.s.ops < ops)
			drive_step(&d);
		done += d.s.ops;
		drive_close(&d);
		pools++;
		pool_seed++;
	}
	printf("ok 1 - the core does what the model does: %llu commands on %llu pools\n",
	       (unsigned long long)done, (unsigned long long)pools);
	return 0;
}
