// SPDX-License-Identifier: MIT
/*
 * A fuzzer of /dev/kvmm: rounds of random steps by one or more processes on the
 * same pools.  After each round all pools can be destroyed, no byte stays
 * pinned, and the kernel has found no fault with itself.
 *
 *	fuzz [SEED [COUNT]]
 *
 * Round N has the seed SEED + N.  Rounds whose seed is a multiple of 4 have one
 * process only and go the same way each time.  Without COUNT: as long as
 * KVMM_FUZZ_SECONDS says (20).  Without SEED: first the seeds of fuzz.corpus,
 * then from KVMM_SEED (1) on.  With KVMM_FUZZ_TRACE=1 each step is printed.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz.h"

#define PROCESSES	4
#define SOFT_MS		3000	/* then who is left gets SIGKILL */
#define HARD_MS		60000	/* then it is stuck */

/* Seeds that broke something once; they mean something to this program only. */
static const uint64_t corpus[] = {
#include "fuzz.corpus"
};

static char failure[256];
static char health_then[256];

/* ---- the rounds ---- */

/* Tainted by a warning, or lockdep is off after a report: see init of the VM. */
static void health(char *text, size_t size)
{
	size_t n = 0;
	char line[128];
	FILE *f = fopen("/proc/sys/kernel/tainted", "r");

	text[0] = 0;
	if (f) {
		if (fgets(line, sizeof(line), f))
			n += snprintf(text, size, "%s", line);
		fclose(f);
	}
	f = fopen("/proc/lockdep_stats", "r");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f))
		if (strstr(line, "debug_locks:") && n < size)
			n += snprintf(text + n, size - n, "%s", line);
	fclose(f);
}

#define FAIL(...) do {							\
	if (!failure[0])						\
		snprintf(failure, sizeof(failure), __VA_ARGS__);	\
} while (0)

static void put_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		errno = 0;
	close(fd);
}

static void make_areas(struct fz *z)
{
	char path[64];
	int i, fd;

	for (i = 0; i < FZ_AREAS; i++) {
		snprintf(path, sizeof(path), "%s/fuzz-%d", kt_disk_dir(), i);
		fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
		if (fd < 0 || (fz_below(z, 4) ?
			       fallocate(fd, 0, 0, FZ_AREA_BYTES) :
			       ftruncate(fd, FZ_AREA_BYTES)))
			FAIL("%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
	}
}

static void make_pools(struct fz *z)
{
	struct kvmm_pool_create spec;
	struct kvmm_block_ref refs[8];
	char name[8], path[64];
	uint32_t i, n;
	struct kt t;
	int fd;

	for (i = 0; i < FZ_POOLS; i++) {
		if (i && fz_one_in(z, 3))
			continue;
		snprintf(name, sizeof(name), "fz%u", i);
		spec = kt_spec(name, 4096 << 2 * fz_below(z, 3),
			       4 + fz_below(z, 40), fz_below(z, 40));
		spec.mode = 0666;
		if (fz_one_in(z, 3))
			spec.flags = KVMM_POOL_MANUAL_CLOCK;
		if (fz_one_in(z, 3)) {
			spec.nr_elastic = 16;
			spec.nr_frames += 16;
			spec.chunk_frames = 0;
		}
		if (fz_one_in(z, 3)) {
			spec.clean_low = fz_below(z, 400);
			spec.clean_high = spec.clean_low + fz_below(z, 400);
		}
		if (kt_create_spec(&t, &spec)) {
			/* of a kind that this module does not offer */
			spec.nr_elastic = 0;
			spec.clean_low = spec.clean_high = 0;
			if (kt_create_spec(&t, &spec)) {
				FAIL("can't create %s", name);
				continue;
			}
		}
		snprintf(path, sizeof(path), "%s/fuzz-%d", kt_disk_dir(),
			 i % FZ_AREAS);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (!fz_one_in(z, 4))
			kt_attach(&t, fd, 0, 0, fz_below(z, 2), NULL);
		close(fd);
		n = spec.nr_frames < 8 ? spec.nr_frames : 8;
		if (!kt_store(&t, 1, n, refs))
			for (; n; n--)
				fz_seen(z, refs[n - 1].handle);
		kt_close(&t);
	}
}

/* Where each task of a process waits. */
static void show_stack(pid_t pid)
{
	char path[64], line[128];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stack", (int)pid);
	f = fopen(path, "r");
	printf("# process %d:\n", (int)pid);
	while (f && fgets(line, sizeof(line), f))
		printf("#   %s", line);
	if (f)
		fclose(f);
}

static void wait_all(struct fz *z, pid_t *pid, int n, bool one_dies)
{
	uint64_t start = kt_now_ms(), dies = start + fz_below(z, 120);
	int left = n, i, status, killed = -1;

	while (left) {
		uint64_t now = kt_now_ms();

		if (one_dies && killed < 0 && now >= dies) {
			killed = fz_below(z, n);
			if (pid[killed])
				kill(pid[killed], SIGKILL);
		}
		for (i = 0; i < n; i++) {
			if (!pid[i])
				continue;
			if (waitpid(pid[i], &status, WNOHANG) != pid[i]) {
				if (now - start > SOFT_MS)
					kill(pid[i], SIGKILL);
				if (now - start > HARD_MS) {
					show_stack(pid[i]);
					FAIL("a process can't be killed");
				}
				continue;
			}
			/* what it forked, and has not ended */
			kill(-pid[i], SIGKILL);
			if (WIFEXITED(status) && WEXITSTATUS(status))
				FAIL("the fuzzer itself: exit %d",
				     WEXITSTATUS(status));
			/* a signal's frame that can't be written is a SIGSEGV */
			if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL &&
			    (!fz_inject_works || WTERMSIG(status) != SIGSEGV))
				FAIL("the fuzzer itself: signal %d",
				     WTERMSIG(status));
			pid[i] = 0;
			left--;
		}
		if (failure[0])
			return;
		poll(NULL, 0, 1);
	}
}

/* The gauges add up when nobody is there any more, and the pool goes. */
static void end_pool(const char *name)
{
	uint64_t start = kt_now_ms();
	struct kvmm_pool_stat st;
	const char *bad;
	struct kt t = { .fd = -1 };
	int ret;

	/* rings and dma-bufs are let go of in their own time */
	do {
		kt_close(&t);
		ret = kt_join(&t, name, 0);
		if (!ret)
			ret = kt_stat(&t, &st);
		if (ret) {
			FAIL("%s: can't be opened: %d", name, ret);
			return;
		}
		if (st.nr_clients == 1 && !st.pins && !st.exports &&
		    !st.blocks[KVMM_WRITING] && !st.blocks[KVMM_READING])
			break;
		poll(NULL, 0, 1);
	} while (kt_now_ms() - start < 20000);
	bad = kt_inconsistent(&st);
	if (bad)
		FAIL("%s: %s", name, bad);
	if (st.nr_clients != 1 || st.pins || st.blocks[KVMM_FILLING] ||
	    st.blocks[KVMM_WRITING] || st.blocks[KVMM_READING] || st.exports ||
	    st.chunks_leased)
		FAIL("%s: %u clients, %llu pins, %llu filling, %llu writing, %llu reading, %llu exports, %llu leases stayed",
		     name, st.nr_clients - 1, st.pins, st.blocks[KVMM_FILLING],
		     st.blocks[KVMM_WRITING], st.blocks[KVMM_READING],
		     st.exports, st.chunks_leased);
	kt_close(&t);
	do {
		ret = kt_destroy(name, 0);
		/* a populate by workers may still hold it */
	} while (ret == -EBUSY && kt_now_ms() - start < 20000);
	if (ret)
		FAIL("%s: can't be destroyed: %d", name, ret);
}

static void end_round(void)
{
	struct kvmm_pool_entry entries[KVMM_MAX_POOLS];
	uint64_t start = kt_now_ms();
	struct kvmm_info info;
	char now[256];
	int n = kt_list(entries, KVMM_MAX_POOLS);

	if (n < 0)
		FAIL("can't list the pools: %d", n);
	while (n-- > 0)
		end_pool(entries[n].name);
	do {
		if (kt_info(&info)) {
			FAIL("KVMM_INFO failed");
			return;
		}
		if (!info.nr_pools && !info.pinned_bytes)
			break;
		poll(NULL, 0, 1);
	} while (kt_now_ms() - start < 20000);
	if (info.nr_pools || info.pinned_bytes)
		FAIL("%u pools and %llu bytes stayed", info.nr_pools,
		     info.pinned_bytes);
	if (fz_shared->first != FZ_OURS || fz_shared->last != FZ_OURS)
		FAIL("the fuzzer's own memory was written to");
	health(now, sizeof(now));
	if (strcmp(now, health_then))
		FAIL("the kernel has something to say");
}

static void round_of(uint64_t seed, const char *max_bytes)
{
	struct fz z = { .rng = seed };
	bool alone = seed % 4 == 0;
	struct fz_part part[PROCESSES];
	pid_t pid[PROCESSES];
	int i, n;

	memset(fz_shared->pot, 0, sizeof(fz_shared->pot));
	fz_shared->pos = 0;
	put_text("/sys/module/kvmm/parameters/max_bytes", max_bytes);
	make_areas(&z);
	make_pools(&z);
	n = alone ? 1 : 2 + fz_below(&z, PROCESSES - 1);
	fflush(stdout);
	for (i = 0; i < n; i++) {
		part[i] = (struct fz_part) { seed, i, alone };
		pid[i] = kt_spawn(fz_process, &part[i]);
		if (pid[i] < 0) {
			FAIL("can't fork");
			pid[i] = 0;
			n = i;
		}
	}
	wait_all(&z, pid, n, !alone && fz_one_in(&z, 2));
	put_text("/sys/module/kvmm/parameters/max_bytes", max_bytes);
	if (!failure[0])
		end_round();
}

/*
 * Failures may be had by who asks for them only, without a word in the log.
 * Of pages not in User Mode Linux: when it runs out of them in a page fault that
 * it makes by itself, to copy to user memory, it crashes (6.1, maybe_map()).
 */
static void prepare_injection(void)
{
	static const char *const kinds[] = {
		"failslab", "fail_usercopy", "fail_page_alloc",
	};
	const char *accel = getenv("KVMM_VM_ACCEL");
	size_t n = accel && !strcmp(accel, "uml") ? 2 : 3, i;
	char path[96];

	fz_inject_works = !access("/proc/self/fail-nth", W_OK);
	for (i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/verbose",
			 kinds[i]);
		put_text(path, "0");
		snprintf(path, sizeof(path),
			 "/sys/kernel/debug/%s/ignore-gfp-wait", kinds[i]);
		put_text(path, "N");
	}
	if (n == 3)
		put_text("/sys/kernel/debug/fail_page_alloc/min-order", "0");
}

static int report(int n, const char *what, uint64_t seed, uint64_t rounds,
		  uint64_t ms)
{
	if (failure[0]) {
		printf("not ok %d - %s: seed %llu: %s\n# again: fuzz %llu 1\n",
		       n, what, (unsigned long long)seed, failure,
		       (unsigned long long)seed);
		return 1;
	}
	printf("ok %d - %s: %llu rounds, %llu steps in %llu.%llu s%s\n", n,
	       what, (unsigned long long)rounds,
	       (unsigned long long)fz_shared->ops, (unsigned long long)ms / 1000,
	       (unsigned long long)ms / 100 % 10,
	       fz_inject_works ? ", with failures injected" : "");
	return 0;
}

static void show_counts(void)
{
	int i;

	printf("# command: calls, of them good\n");
	for (i = 0; i < FZ_CMDS; i++)
		if (fz_shared->calls[i])
			printf("# %#04x: %llu %llu\n", i,
			       (unsigned long long)fz_shared->calls[i],
			       (unsigned long long)fz_shared->good[i]);
}

int main(int argc, char **argv)
{
	const char *text = getenv("KVMM_FUZZ_SECONDS");
	uint64_t ms = (text ? strtoull(text, NULL, 0) : 20) * 1000;
	uint64_t start, seed, first, count = UINT64_MAX, i;
	char max_bytes[32] = "0";
	FILE *f;
	int bad = 0;

	if (access(KT_DEVICE, F_OK) || !kt_disk_dir()) {
		printf("1..0 # SKIP no " KT_DEVICE ", or no disk\n");
		return 4;
	}
	text = getenv("KVMM_SEED");
	first = argc > 1 ? strtoull(argv[1], NULL, 0) :
		text ? strtoull(text, NULL, 0) : 1;
	if (argc > 2)
		count = strtoull(argv[2], NULL, 0);
	fz_trace = getenv("KVMM_FUZZ_TRACE");
	fz_shut();
	fz_shared = mmap(NULL, sizeof(*fz_shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fz_shared == MAP_FAILED)
		return 1;
	fz_shared->first = fz_shared->last = FZ_OURS;
	f = fopen("/sys/module/kvmm/parameters/max_bytes", "r");
	if (f) {
		if (!fgets(max_bytes, sizeof(max_bytes), f))
			strcpy(max_bytes, "0");
		fclose(f);
	}
	kt_wipe();
	prepare_injection();
	health(health_then, sizeof(health_then));
	/* for processes without privileges; the device is made anew with root's */
	chmod(KT_DEVICE, 0666);

	printf("1..%d\n", 2 - (argc > 1));
	start = kt_now_ms();
	seed = 0;
	if (argc < 2) {
		for (i = 0; i < sizeof(corpus) / sizeof(*corpus); i++) {
			seed = corpus[i];
			round_of(seed, max_bytes);
			if (failure[0])
				break;
		}
		bad = report(1, "corpus", seed, i, kt_now_ms() - start);
	}
	fz_shared->ops = 0;
	start = kt_now_ms();
	for (i = 0; !bad && i < count; i++) {
		if (argc < 3 && kt_now_ms() - start > ms)
			break;
		seed = first + i;
		round_of(seed, max_bytes);
		if (failure[0])
			break;
	}
	if (bad)
		printf("ok 2 - random seeds # SKIP\n");
	else
		bad = report(2 - (argc > 1), "seeds from the first on", seed, i,
			     kt_now_ms() - start);
	printf("# seeds %llu to %llu\n", (unsigned long long)first,
	       (unsigned long long)seed);
	show_counts();
	if (bad)
		kt_wipe();
	return bad;
}
