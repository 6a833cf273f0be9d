// SPDX-License-Identifier: MIT
/*
 * User backend: swap I/O by a few threads, for systems where io_uring is
 * forbidden.  Each takes a request, moves its bytes with pread() or pwrite(),
 * and finishes it.
 */
#include "backend_user.h"

#include <signal.h>
#include <stdlib.h>

/* Enough to keep a fast disk busy with small blocks. */
#define NR_THREADS	8

/**
 * struct threads - user_area.priv
 * @more: signalled when @todo grows or @stop is set; with user_area.lock
 * @todo: started, nobody has taken them; under user_area.lock
 * @stop: under user_area.lock
 * @thread: @nr of them
 * @nr: running threads
 */
struct threads {
	pthread_cond_t more;
	struct io_list todo;
	bool stop;
	pthread_t thread[NR_THREADS];
	unsigned int nr;
};

static void *worker(void *arg)
{
	struct user_area *a = arg;
	struct threads *t = a->priv;
	struct io_req *req;
	bool late;

	pthread_mutex_lock(&a->lock);
	for (;;) {
		struct io_list done = { 0 };

		while (!t->todo.nr && !t->stop)
			pthread_cond_wait(&t->more, &a->lock);
		req = io_list_take(&t->todo);
		if (!req)
			break;
		late = req->late;
		pthread_mutex_unlock(&a->lock);
		/* Nobody waits for it, and the disk has enough to do. */
		if (late)
			req->err = -ETIMEDOUT;
		else
			io_sync(a, req);
		io_list_add(&done, req);
		io_finish(a, &done);
		pthread_mutex_lock(&a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

static void threads_exit(struct user_area *a)
{
	struct threads *t = a->priv;
	unsigned int i;

	pthread_mutex_lock(&a->lock);
	t->stop = true;
	pthread_cond_broadcast(&t->more);
	pthread_mutex_unlock(&a->lock);
	for (i = 0; i < t->nr; i++)
		pthread_join(t->thread[i], NULL);
	pthread_cond_destroy(&t->more);
	free(t);
}

static int threads_init(struct user_area *a)
{
	struct threads *t = calloc(1, sizeof(*t));
	sigset_t all, old;

	if (!t)
		return -ENOMEM;
	pthread_cond_init(&t->more, NULL);
	a->priv = t;
	/* Signals are the program's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (t->nr < NR_THREADS &&
	       !pthread_create(&t->thread[t->nr], NULL, worker, a))
		t->nr++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (t->nr)
		return 0;
	threads_exit(a);
	return -ENOMEM;
}

static void threads_start(struct user_area *a, struct io_list *list)
{
	struct threads *t = a->priv;
	struct io_req *req;

	pthread_mutex_lock(&a->lock);
	while ((req = io_list_take(list)))
		io_list_add(&t->todo, req);
	pthread_cond_broadcast(&t->more);
	pthread_mutex_unlock(&a->lock);
}

static void threads_wait(struct user_area *a, uint64_t seq, uint32_t want,
			 uint64_t until)
{
	(void)want;
	io_seq_wait(a->up, seq, until);
}

static void threads_poll(struct user_area *a)
{
	(void)a;
}

const struct io_engine io_engine_threads = {
	.name = "threads",
	.init = threads_init,
	.exit = threads_exit,
	.start = threads_start,
	.wait = threads_wait,
	.poll = threads_poll,
};
