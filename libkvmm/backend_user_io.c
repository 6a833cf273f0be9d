// SPDX-License-Identifier: MIT
/*
 * User backend: the life of a request.  A command takes free requests, has the
 * core fill them under the pool's lock, and hands them to the engine; whoever
 * learns that one has ended (a thread that waits for I/O, or one of the thread
 * engine's) finishes it: checksum, the core's done call, the command's entry.
 */
#include "backend_user.h"

#include <isa-l/crc.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void io_list_add(struct io_list *list, struct io_req *req)
{
	req->next = NULL;
	if (list->tail)
		list->tail->next = req;
	else
		list->head = req;
	list->tail = req;
	list->nr++;
}

struct io_req *io_list_take(struct io_list *list)
{
	struct io_req *req = list->head;

	if (!req)
		return NULL;
	list->head = req->next;
	if (!list->head)
		list->tail = NULL;
	list->nr--;
	return req;
}

uint32_t io_take(struct user_area *a, struct io_list *list, uint32_t least,
		 uint32_t most)
{
	struct io_req *req;
	uint32_t n = 0;

	pthread_mutex_lock(&a->lock);
	if (a->free.nr >= least) {
		while (n < most && (req = io_list_take(&a->free))) {
			io_list_add(list, req);
			n++;
		}
	}
	pthread_mutex_unlock(&a->lock);
	return n;
}

bool io_take_wait(struct user_area *a, struct io_list *list, uint32_t least)
{
	struct user_pool *up = a->up;
	uint64_t seq;
	bool never;

	for (;;) {
		/* Read first: what is given back afterwards changes it. */
		pthread_mutex_lock(&up->lock);
		seq = up->io_seq;
		pthread_mutex_unlock(&up->lock);
		if (io_take(a, list, least, KVMM_CORE_BATCH))
			return true;
		pthread_mutex_lock(&a->lock);
		never = USER_DEPTH - a->nr_late < least;
		pthread_mutex_unlock(&a->lock);
		if (never)
			return false;
		io_wait(a, seq, USER_DEPTH);
	}
}

/* Someone may sleep until there are free requests: they count as an end. */
void io_give_back(struct user_area *a, struct io_list *list)
{
	struct user_pool *up = a->up;
	struct io_req *req;

	if (!list->nr)
		return;
	pthread_mutex_lock(&up->lock);
	pthread_mutex_lock(&a->lock);
	while ((req = io_list_take(list)))
		io_list_add(&a->free, req);
	pthread_mutex_unlock(&a->lock);
	up->io_seq++;
	pthread_cond_broadcast(&up->io_cond);
	pthread_mutex_unlock(&up->lock);
}

void io_prepare(struct user_area *a, struct io_req *req, bool write,
		struct io_group *group, uint32_t index)
{
	req->group = group;
	req->index = index;
	req->bytes = (req->io.length + a->align - 1) & ~(a->align - 1);
	req->moved = 0;
	req->crc = 0;
	req->write = write;
	req->err = 0;
	req->busy = true;
	req->started = user_mono_us();
	if (!a->due)
		a->due = req->started + a->timeout_us;
	if (group)
		group->pending++;
}

/*
 * The polynomial of iSCSI, with its initial value and final inversion, which
 * the library leaves to the caller: "123456789" gives 0xe3069283.
 */
uint32_t io_crc32c(const void *data, uint32_t bytes)
{
	return ~crc32_iscsi((unsigned char *)data, (int)bytes, ~0U);
}

/*
 * A frame does not change while it is being written out, so the checksum may
 * be taken afterwards, while other moves are still in flight.  A client that
 * writes to a published block all the same gets a miss.
 */
static void checksum(struct user_area *a, struct io_req *req)
{
	const unsigned char *data = a->up->arena + ((size_t)req->io.frame
						    << a->up->block_shift);

	if (!a->checksums || req->err)
		return;
	req->crc = io_crc32c(data, req->io.length);
	if (!req->write && req->crc != req->io.crc)
		req->err = -EBADMSG;
}

/* Its entry has ended for who waits, if anybody does. */
static void tell_group(struct io_req *req, int result)
{
	struct io_group *group = req->group;

	req->group = NULL;
	if (!group)
		return;
	group->pending--;
	if (result)
		group->failed++;
	if (group->refs)
		group->refs[req->index].result = result;
}

/* Under the pool's lock and the area's. */
static void finish_one(struct user_area *a, struct io_req *req)
{
	struct user_pool *up = a->up;
	bool degraded = up->core.degraded;
	int result = 0;

	if (req->write) {
		kvmm_core_write_done(&up->core, req->io.handle, req->err,
				     req->crc);
		if (up->core.degraded && !degraded)
			user_event(up, KVMM_EVENT_DEGRADED, -req->err);
		if (req->err)
			result = -EIO;
	} else {
		kvmm_core_read_done(&up->core, req->io.handle, req->err);
		if (req->err)
			result = -ESTALE;
	}
	a->nr_late -= req->late;
	req->late = false;
	req->busy = false;
	tell_group(req, result);
}

/* Says what went wrong, but not once for each block of a dead disk. */
static void log_error(struct user_area *a, const struct io_req *req)
{
	kvmm_log(a->up->kv, KVMM_LOG_ERROR,
		 "pool %s: slot %u could not be %s: %s", a->up->name,
		 req->io.slot, req->write ? "written" : "read back",
		 req->err == -EBADMSG ? "its checksum is wrong"
				      : strerror(-req->err));
}

void io_finish(struct user_area *a, struct io_list *list)
{
	struct user_pool *up = a->up;
	bool logged = false;
	struct io_req *req;
	unsigned int n;

	for (req = list->head; req; req = req->next) {
		checksum(a, req);
		if (req->err && !logged) {
			log_error(a, req);
			logged = true;
		}
	}
	while (list->nr) {
		pthread_mutex_lock(&up->lock);
		pthread_mutex_lock(&a->lock);
		for (n = 0; n < KVMM_CORE_BATCH; n++) {
			req = io_list_take(list);
			if (!req)
				break;
			finish_one(a, req);
			io_list_add(&a->free, req);
		}
		pthread_mutex_unlock(&a->lock);
		up->io_seq++;
		pthread_cond_broadcast(&up->io_cond);
		pthread_mutex_unlock(&up->lock);
	}
}

/*
 * Moves whose time is up: who waits is told that they failed.  The device has
 * the frame until the move ends, so the request stays in flight.
 */
static void look_for_late(struct user_area *a)
{
	struct user_pool *up = a->up;
	uint64_t now = user_mono_us(), due = 0;
	uint32_t i, late = 0;

	pthread_mutex_lock(&up->lock);
	pthread_mutex_lock(&a->lock);
	for (i = 0; i < USER_DEPTH; i++) {
		struct io_req *req = &a->reqs[i];

		if (!req->busy || req->late)
			continue;
		if (now < req->started + a->timeout_us) {
			if (!due || due > req->started + a->timeout_us)
				due = req->started + a->timeout_us;
			continue;
		}
		if (!up->core.degraded)
			user_event(up, KVMM_EVENT_DEGRADED, ETIMEDOUT);
		kvmm_core_io_late(&up->core, req->io.handle);
		req->late = true;
		tell_group(req, req->write ? -EIO : -ESTALE);
		late++;
	}
	a->due = due;
	a->nr_late += late;
	pthread_mutex_unlock(&a->lock);
	if (late) {
		up->io_seq++;
		pthread_cond_broadcast(&up->io_cond);
	}
	pthread_mutex_unlock(&up->lock);
	if (late)
		kvmm_log(up->kv, KVMM_LOG_ERROR,
			 "pool %s: the swap area does not answer: %u blocks are late",
			 up->name, late);
}

static uint64_t due_of(struct user_area *a)
{
	uint64_t due;

	pthread_mutex_lock(&a->up->lock);
	due = a->due;
	pthread_mutex_unlock(&a->up->lock);
	return due;
}

void io_wait(struct user_area *a, uint64_t seq, uint32_t want)
{
	uint64_t due = due_of(a);

	a->engine->wait(a, seq, want, due);
	if (due && user_mono_us() >= due)
		look_for_late(a);
}

void io_poll(struct user_area *a)
{
	uint64_t due = due_of(a);

	a->engine->poll(a);
	if (due && user_mono_us() >= due)
		look_for_late(a);
}

void io_group_wait(struct user_area *a, struct io_group *group)
{
	struct user_pool *up = a->up;
	uint32_t pending;
	uint64_t seq;

	for (;;) {
		pthread_mutex_lock(&up->lock);
		pending = group->pending;
		seq = up->io_seq;
		pthread_mutex_unlock(&up->lock);
		if (!pending)
			return;
		io_wait(a, seq, pending);
	}
}

void io_seq_wait(struct user_pool *up, uint64_t seq, uint64_t until)
{
	struct timespec ts = {
		.tv_sec = (time_t)(until / 1000000),
		.tv_nsec = (long)(until % 1000000 * 1000),
	};
	int err = 0;

	pthread_mutex_lock(&up->lock);
	while (up->io_seq == seq && err != ETIMEDOUT) {
		if (until)
			err = pthread_cond_timedwait(&up->io_cond, &up->lock,
						     &ts);
		else
			pthread_cond_wait(&up->io_cond, &up->lock);
	}
	pthread_mutex_unlock(&up->lock);
}

void io_sync(struct user_area *a, struct io_req *req)
{
	unsigned char *data = a->up->arena + ((size_t)req->io.frame
					      << a->up->block_shift);
	off_t at = (off_t)(a->offset +
			   ((uint64_t)req->io.slot << a->up->block_shift));
	ssize_t n;

	while (req->moved < req->bytes) {
		if (req->write)
			n = pwrite(a->fd, data + req->moved,
				   req->bytes - req->moved, at + req->moved);
		else
			n = pread(a->fd, data + req->moved,
				  req->bytes - req->moved, at + req->moved);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0) {
			req->err = n ? -errno : -EIO;
			return;
		}
		req->moved += (uint32_t)n;
	}
}
