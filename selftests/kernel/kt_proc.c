// SPDX-License-Identifier: MIT
/*
 * Child processes, other users and signals for the kernel tests.
 */
#include <errno.h>
#include <grp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kvmm_test.h"

/* Exit codes: 0 to 99 as they are, errors as 100 + errno (up to 155). */
static int encode(int ret)
{
	return ret < 0 ? 100 - ret : ret;
}

pid_t kt_spawn(int (*fn)(void *arg), void *arg)
{
	pid_t pid = fork();

	if (pid)
		return pid < 0 ? -errno : pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	_exit(encode(fn(arg)));
}

int kt_reap(pid_t pid)
{
	int status;

	if (pid < 0)
		return pid;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	if (!WIFEXITED(status))
		return -ECHILD;
	status = WEXITSTATUS(status);
	return status >= 100 ? 100 - status : status;
}

int kt_child(int (*fn)(void *arg), void *arg)
{
	return kt_reap(kt_spawn(fn, arg));
}

struct as {
	uid_t uid;
	gid_t gid, extra;
	int (*fn)(void *arg);
	void *arg;
};

static int become(void *arg)
{
	const struct as *as = arg;

	if (setgroups(as->extra ? 1 : 0, &as->extra) ||
	    setresgid(as->gid, as->gid, as->gid) ||
	    setresuid(as->uid, as->uid, as->uid))
		return -errno;
	return as->fn(as->arg);
}

int kt_child_as(uid_t uid, gid_t gid, gid_t extra, int (*fn)(void *arg),
		void *arg)
{
	struct as as = { uid, gid, extra, fn, arg };

	return kt_child(become, &as);
}

static sigjmp_buf bus_env;

static void on_bus(int sig)
{
	siglongjmp(bus_env, sig);
}

bool kt_sigbus(volatile void *addr, bool write)
{
	struct sigaction act = { .sa_handler = on_bus }, old;
	volatile char *p = addr;
	volatile bool hit = false;

	sigaction(SIGBUS, &act, &old);
	if (!sigsetjmp(bus_env, 1)) {
		if (write)
			*p = 1;
		else
			(void)*p;
	} else {
		hit = true;
	}
	sigaction(SIGBUS, &old, NULL);
	return hit;
}

void kt_sleep_ms(unsigned int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

unsigned int kt_slow(void)
{
	const char *text = getenv("KVMM_SLOW");
	int times = text ? atoi(text) : 1;

	return times > 0 ? times : 1;
}

uint64_t kt_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ULL + ts.tv_nsec / 1000000;
}
