// SPDX-License-Identifier: GPL-2.0
/*
 * The system is short of memory: a shrinker, and a notifier of the OOM killer.
 *
 * Neither gives anything back itself.  Both may be called by anyone who needs
 * memory, with any lock held; giving back takes locks of folios and mappings.
 * So they ask, and a worker does it.  The shrinker does not wait for it: kswapd
 * goes on, and sees the memory.  The OOM notifier waits for a moment: if enough
 * comes nobody has to be killed.
 */
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/oom.h>
#include <linux/sched/mm.h>
#include <linux/shrinker.h>
#include <linux/sizes.h>

#include "compat/shrinker.h"
#include "kvmm_mod.h"

/* Never asked for more at once: the system asks again. */
#define KVMM_ASK_MAX	(SZ_256M >> PAGE_SHIFT)

/* What it takes not to call the OOM killer, and how long that may take. */
#define KVMM_OOM_PAGES	(SZ_64M >> PAGE_SHIFT)
#define KVMM_OOM_WAIT	(2 * HZ)

static unsigned int kvmm_pressure_ms = 5000;
module_param_named(pressure_ms, kvmm_pressure_ms, uint, 0644);
MODULE_PARM_DESC(pressure_ms,
		 "How long after the system asked for memory none is taken again, in ms (default 5000)");

/* Pools with elastic memory; whoever gives memory back holds the lock. */
DEFINE_MUTEX(kvmm_elastic_lock);
LIST_HEAD(kvmm_elastic_pools);

struct workqueue_struct *kvmm_elastic_wq;

/* When memory was wanted last, and how often that began. */
static unsigned long kvmm_pressure_at;
unsigned int kvmm_pressure_nr;

/* What is asked for, in pages, and how badly. */
static atomic_long_t kvmm_asked;
static bool kvmm_asked_hard;

/* Runs of the worker that began and ended; pages freed by all of them. */
static unsigned int kvmm_runs_begun;
static unsigned int kvmm_runs_done;
static atomic_long_t kvmm_freed;
static DECLARE_WAIT_QUEUE_HEAD(kvmm_shrink_wait);

/** kvmm_pressure_jiffies() - how long pressure counts as recent */
unsigned long kvmm_pressure_jiffies(void)
{
	return msecs_to_jiffies(READ_ONCE(kvmm_pressure_ms));
}

/** kvmm_pressure_recent() - was the system short of memory just now */
bool kvmm_pressure_recent(void)
{
	unsigned long at = READ_ONCE(kvmm_pressure_at);

	return at && time_before(jiffies, at + kvmm_pressure_jiffies());
}

static void kvmm_pressure(void)
{
	if (!kvmm_pressure_recent())
		WRITE_ONCE(kvmm_pressure_nr, READ_ONCE(kvmm_pressure_nr) + 1);
	/* 0 is never. */
	WRITE_ONCE(kvmm_pressure_at, jiffies ?: 1);
}

/** kvmm_shrink_freed() - @pages went to the system */
void kvmm_shrink_freed(unsigned long pages)
{
	atomic_long_add(pages, &kvmm_freed);
}

/*
 * Give back what was asked for.  With the reserves, as what is taken is little
 * and what is given is much; and so this never waits for memory itself.
 */
static void kvmm_shrink_work_fn(struct work_struct *work)
{
	unsigned int noreclaim = memalloc_noreclaim_save();
	struct kvmm_pool *pool;
	u64 given = 0;
	u64 want;
	bool hard;

	mutex_lock(&kvmm_elastic_lock);
	WRITE_ONCE(kvmm_runs_begun, kvmm_runs_begun + 1);
	/* Pairs with the barrier in kvmm_oom_notify(). */
	smp_mb();
	hard = xchg(&kvmm_asked_hard, false);
	want = atomic_long_xchg(&kvmm_asked, 0);
	list_for_each_entry(pool, &kvmm_elastic_pools, elastic.node) {
		given += kvmm_give_back(pool, want - min(want, given), hard);
		cond_resched();
	}
	/* Another one is asked first the next time. */
	if (given)
		list_rotate_left(&kvmm_elastic_pools);
	WRITE_ONCE(kvmm_runs_done, kvmm_runs_begun);
	mutex_unlock(&kvmm_elastic_lock);
	wake_up_all(&kvmm_shrink_wait);
	memalloc_noreclaim_restore(noreclaim);
}

static DECLARE_WORK(kvmm_shrink_work, kvmm_shrink_work_fn);

/** kvmm_shrink_kick() - see to chunks that were asked back */
void kvmm_shrink_kick(void)
{
	queue_work(kvmm_elastic_wq, &kvmm_shrink_work);
}

/** kvmm_shrink_flush() - wait until all that was asked for has been tried */
void kvmm_shrink_flush(void)
{
	flush_work(&kvmm_shrink_work);
}

/* Return: false: as much is asked for as may be. */
static bool kvmm_shrink_ask(long pages)
{
	bool more = atomic_long_add_return(pages, &kvmm_asked) < KVMM_ASK_MAX;

	if (!more)
		atomic_long_set(&kvmm_asked, KVMM_ASK_MAX);
	kvmm_shrink_kick();
	return more;
}

static unsigned long kvmm_shrink_count(struct shrinker *shrinker,
				       struct shrink_control *sc)
{
	static unsigned long known;
	struct kvmm_pool *pool;
	unsigned long sum = 0;

	/* The caller may hold any lock; and memory may be on its way. */
	if (!mutex_trylock(&kvmm_elastic_lock))
		return READ_ONCE(known);
	list_for_each_entry(pool, &kvmm_elastic_pools, elastic.node) {
		if (mutex_trylock(&pool->lock)) {
			pool->elastic.known = pool->dead ? 0 :
				kvmm_elastic_pages(pool);
			mutex_unlock(&pool->lock);
		}
		sum += pool->elastic.known;
	}
	WRITE_ONCE(known, sum);
	mutex_unlock(&kvmm_elastic_lock);
	return sum;
}

static unsigned long kvmm_shrink_scan(struct shrinker *shrinker,
				      struct shrink_control *sc)
{
	kvmm_pressure();
	/* Others see what comes of it. */
	return kvmm_shrink_ask(sc->nr_to_scan) ? 0 : SHRINK_STOP;
}

static int kvmm_oom_notify(struct notifier_block *nb, unsigned long unused,
			   void *arg)
{
	long before = atomic_long_read(&kvmm_freed);
	unsigned long *freed = arg;
	unsigned int run;

	if (list_empty_careful(&kvmm_elastic_pools))
		return NOTIFY_OK;
	kvmm_pressure();
	WRITE_ONCE(kvmm_asked_hard, true);
	atomic_long_add(KVMM_OOM_PAGES, &kvmm_asked);
	/* A run that begins from here on sees that. */
	smp_mb();
	run = READ_ONCE(kvmm_runs_begun) + 1;
	kvmm_shrink_kick();
	wait_event_timeout(kvmm_shrink_wait,
			   (int)(READ_ONCE(kvmm_runs_done) - run) >= 0,
			   KVMM_OOM_WAIT);
	*freed += atomic_long_read(&kvmm_freed) - before;
	return NOTIFY_OK;
}

static struct notifier_block kvmm_oom_nb = {
	.notifier_call = kvmm_oom_notify,
};

/* Blocks cost more to have again than what is in most other caches. */
#define KVMM_SEEKS	(2 * DEFAULT_SEEKS)

/** kvmm_shrink_init() - be asked for memory */
int kvmm_shrink_init(void)
{
	int ret = -ENOMEM;

	kvmm_elastic_wq = alloc_workqueue("kvmm_elastic",
					  WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!kvmm_elastic_wq)
		return -ENOMEM;
	ret = kvmm_shrinker_add(kvmm_shrink_count, kvmm_shrink_scan,
				PMD_SIZE >> PAGE_SHIFT, KVMM_SEEKS);
	if (ret)
		goto err_wq;
	ret = register_oom_notifier(&kvmm_oom_nb);
	if (ret)
		goto err_shrinker;
	return 0;

err_shrinker:
	kvmm_shrinker_del();
err_wq:
	destroy_workqueue(kvmm_elastic_wq);
	return ret;
}

/** kvmm_shrink_exit() - be asked no more */
void kvmm_shrink_exit(void)
{
	unregister_oom_notifier(&kvmm_oom_nb);
	kvmm_shrinker_del();
	destroy_workqueue(kvmm_elastic_wq);
}
