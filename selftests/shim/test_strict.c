// SPDX-License-Identifier: MIT
/*
 * That the stand-in is strict: what the shim must never do is refused or
 * reported, so that the other tests can fail.
 */
#include "fixture.h"

#include <fcntl.h>
#include <sys/mman.h>

static cu_context_t ctx;
static char *mem;

static void begin(const char *const *env)
{
	fx_fake(env);
	assert_int_equal(fake.api.init(0), 0);
	assert_int_equal(fake.api.primary_retain(&ctx, 0), 0);
	assert_int_equal(fake.api.ctx_push(ctx), 0);
	mem = fx_map(4 * MiB);
}

static void end(unsigned int violations)
{
	cu_context_t old;

	assert_int_equal(fake.api.ctx_pop(&old), 0);
	assert_int_equal(fake.api.primary_release(0), 0);
	assert_int_equal(fake.leaks(1), 0);
	assert_int_equal(fake.violations(), violations);
	fx_unmap(mem, 4 * MiB);
	/* not the next test's */
	fake.reset();
}

static void test_context(void **state)
{
	cu_context_t other, old;
	cu_stream_t s;
	cu_event_t ev;
	cu_deviceptr_t dev;

	(void)state;
	fx_fake(NULL);
	assert_int_equal(fake.api.primary_retain(&ctx, 0),
			 CU_ERROR_NOT_INITIALIZED);
	assert_int_equal(fake.api.init(0), 0);
	assert_int_equal(fake.api.mem_alloc(&dev, 4096),
			 CU_ERROR_INVALID_CONTEXT);
	assert_int_equal(fake.api.stream_create(&s, 1),
			 CU_ERROR_INVALID_CONTEXT);
	begin(NULL);
	assert_int_equal(fake.ctx_create(&other, 0, 0), 0);
	assert_int_equal(fake.api.stream_create(&s, 1), 0);
	assert_int_equal(fake.api.ctx_pop(&old), 0);
	/* stream and event of different contexts, stream of another context */
	assert_int_equal(fake.api.event_create(&ev, 2), 0);
	assert_int_equal(fake.api.event_record(ev, s), CU_ERROR_INVALID_HANDLE);
	assert_int_equal(fake.api.stream_sync(s), CU_ERROR_INVALID_HANDLE);
	assert_int_equal(fake.api.ctx_push(other), 0);
	assert_int_equal(fake.api.event_record(ev, s), CU_ERROR_INVALID_HANDLE);
	/* waiting across contexts is allowed */
	assert_int_equal(fake.api.stream_wait(s, ev, 0), 0);
	assert_int_equal(fake.api.event_destroy(ev), 0);
	assert_int_equal(fake.api.event_query(ev), CU_ERROR_INVALID_HANDLE);
	assert_int_equal(fake.api.stream_destroy(s), 0);
	assert_int_equal(fake.api.stream_destroy(s), CU_ERROR_INVALID_HANDLE);
	assert_int_equal(fake.ctx_destroy(other), 0);
	assert_int_equal(fake.api.ctx_push(other), CU_ERROR_INVALID_CONTEXT);
	end(0);
}

static void test_registration(void **state)
{
	cu_deviceptr_t dev;

	(void)state;
	begin((const char *const[]){"MAX_REGISTER=1048576", NULL});
	assert_int_equal(fake.api.host_register(mem + 8, 4096, 3),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.api.host_register(mem, 100, 3),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.api.host_register(mem, 2 * MiB, 3),
			 CU_ERROR_OUT_OF_MEMORY);
	assert_int_equal(fake.api.host_register(mem, MiB, 3), 0);
	assert_int_equal(fake.api.host_register(mem, MiB, 3),
			 CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	assert_int_equal(fake.api.host_register(mem + MiB - 4096, 8192, 3),
			 CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	assert_int_equal(fake.api.host_dev_ptr(&dev, mem + MiB, 0),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.api.host_dev_ptr(&dev, mem, 0), 0);
	assert_int_not_equal(dev, (uintptr_t)mem);
	assert_int_equal(fake.api.host_unregister(mem + 4096),
			 CU_ERROR_HOST_MEMORY_NOT_REGISTERED);
	assert_int_equal(fake.leaks(0), 2); /* it and the context */
	assert_int_equal(fake.api.host_unregister(mem), 0);
	assert_int_equal(fake.api.host_unregister(mem),
			 CU_ERROR_HOST_MEMORY_NOT_REGISTERED);
	/* memory that isn't there; and flags that lose what is needed */
	fx_unmap(mem + 3 * MiB, MiB);
	assert_int_equal(fake.api.host_register(mem + 3 * MiB, 4096, 3),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.api.host_register(mem, 4096, 0), 0);
	assert_int_equal(fake.api.host_unregister(mem), 0);
	end(1);
}

/* Device memory can't be touched by the CPU: the kernel says EFAULT. */
static void test_device_memory(void **state)
{
	cu_deviceptr_t dev;
	char byte = 1;
	int fds[2];

	(void)state;
	begin((const char *const[]){"MEMORY=1048576", NULL});
	assert_int_equal(fake.api.mem_alloc(&dev, 2 * MiB),
			 CU_ERROR_OUT_OF_MEMORY);
	assert_int_equal(fake.api.mem_alloc(&dev, MiB), 0);
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], (void *)(uintptr_t)dev, 1), -1);
	assert_int_equal(errno, EFAULT);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(fake.poke(dev + MiB - 1, &byte, 1), 0);
	assert_int_equal(fake.poke(dev + MiB, &byte, 1), -1);
	assert_int_equal(fake.api.mem_free(dev + 1), CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.api.mem_free(dev), 0);
	assert_int_equal(fake.api.mem_free(dev), CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.peek(&byte, dev, 1), -1);
	end(0);
}

static cu_result_t batch_one(cu_deviceptr_t dst, cu_deviceptr_t src, size_t n,
			   unsigned int order, cu_stream_t s)
{
	struct cu_memcpy_attrs attrs = {.src_access_order = order};
	size_t idx = 0;

	return fake.api.batch_13(&dst, &src, &n, 1, (void *)&attrs, &idx, 1,
				 s);
}

static void test_copies(void **state)
{
	cu_deviceptr_t dev, reg;
	cu_stream_t s;

	(void)state;
	begin(NULL);
	assert_int_equal(fake.api.mem_alloc(&dev, MiB), 0);
	assert_int_equal(fake.api.stream_create(&s, 1), 0);
	/* not registered, partly registered, too long, freed */
	assert_int_equal(fake.api.copy_in(dev, mem, 4096, s),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.api.host_register(mem, MiB, 3), 0);
	assert_int_equal(fake.api.host_register(mem + MiB, MiB, 3), 0);
	assert_int_equal(fake.api.host_dev_ptr(&reg, mem, 0), 0);
	assert_int_equal(fake.api.copy_in(dev, mem, 4096, s), 0);
	assert_int_equal(fake.api.copy_out(mem + MiB - 8, dev, 16, s),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.api.copy_out(mem + 2 * MiB - 8, dev, 16, s),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.api.copy_in(dev + MiB - 8, mem, 16, s),
			 CU_ERROR_INVALID_VALUE);
	/* the device's addresses, not the CPU's, the other way round in plain
	 * copies; never the default stream; a valid order
	 */
	assert_int_equal(batch_one(dev, reg, 4096, 1, s), 0);
	assert_int_equal(batch_one(dev, (uintptr_t)mem, 4096, 1, s),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(batch_one(dev, reg, 4096, 1, NULL),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(batch_one(dev, reg, 4096, 0, s),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(batch_one(dev, reg, 2 * MiB, 1, s),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.api.copy_in(dev, (void *)(uintptr_t)reg, 16, s),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.violations(), 0);
	assert_int_equal(batch_one(dev, reg, 4096, 3, s), 0);
	assert_int_equal(fake.violations(), 1);
	assert_int_equal(fake.api.stream_sync(s), 0);
	assert_int_equal(fake.api.mem_free(dev), 0);
	assert_int_equal(fake.api.copy_in(dev, mem, 16, s),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.api.host_unregister(mem), 0);
	assert_int_equal(fake.api.host_unregister(mem + MiB), 0);
	assert_int_equal(fake.api.copy_out(mem, dev, 16, s),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.api.stream_destroy(s), 0);
	end(1);
}

#define RDONLY (3 | CU_HOSTREG_RDONLY)

/* Memory that the CPU may only read, and memory that the device may. */
static void test_rdonly(void **state)
{
	struct cu_copy_args args = {.nr = 1};
	cu_deviceptr_t dev, reg;
	cu_module_t m;
	cu_function_t fn;
	cu_stream_t s;

	(void)state;
	begin(NULL);
	assert_int_equal(fake.api.mem_alloc(&dev, MiB), 0);
	assert_int_equal(fake.api.stream_create(&s, 1), 0);
	/* one page of it is enough to be refused without the flag */
	assert_int_equal(mprotect(mem + MiB / 2, 4096, PROT_READ), 0);
	assert_int_equal(fake.api.host_register(mem, MiB, 3),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.api.host_register(mem, MiB / 2, 3), 0);
	assert_int_equal(fake.api.host_unregister(mem), 0);
	assert_int_equal(fake.api.host_register(mem, MiB, RDONLY), 0);
	assert_int_equal(fake.api.host_dev_ptr(&reg, mem, 0), 0);
	assert_int_equal(fake.api.copy_in(dev, mem, 4096, s), 0);
	assert_int_equal(batch_one(dev, reg, 4096, 1, s), 0);
	assert_int_equal(fake.api.copy_out(mem, dev, 4096, s),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(batch_one(reg, dev, 4096, 1, s),
			 CU_ERROR_INVALID_VALUE);
	/* a kernel that writes there faults */
	assert_int_equal(fake.api.module_load(&m, ".version 7.0\n.target sm_70\n"
					      ".visible .entry kvmm_copy_16(\n",
					      0, NULL, NULL), 0);
	assert_int_equal(fake.api.module_function(&fn, m, "kvmm_copy_16"), 0);
	args.desc[0] = (struct cu_copy_desc){reg, dev, 0, 0, 16, 1};
	assert_int_equal(fake.api.launch(fn, 1, 1, 1, 256, 1, 1, 0, s,
					 (void *[]){&args}, NULL), 0);
	assert_int_equal(fake.api.stream_sync(s), 0);
	args.desc[0] = (struct cu_copy_desc){dev, reg, 0, 0, 16, 1};
	assert_int_equal(fake.api.launch(fn, 1, 1, 1, 256, 1, 1, 0, s,
					 (void *[]){&args}, NULL), 0);
	assert_int_equal(fake.api.stream_sync(s), CU_ERROR_ILLEGAL_ADDRESS);
	fake.api.host_unregister(mem);
	fake.api.module_unload(m);
	fake.api.mem_free(dev);
	fake.api.stream_destroy(s);
	end(1);

	/* a device that can't, and one that asks the CPU's page tables */
	begin((const char *const[]){"RDONLY=0", NULL});
	assert_int_equal(fake.api.host_register(mem, MiB, RDONLY),
			 CU_ERROR_NOT_SUPPORTED);
	end(0);
	begin((const char *const[]){"RDONLY=0", "PAGEABLE=ats", NULL});
	assert_int_equal(mprotect(mem, MiB, PROT_READ), 0);
	assert_int_equal(fake.api.mem_alloc(&dev, MiB), 0);
	assert_int_equal(fake.api.host_register(mem, MiB, 3), 0);
	assert_int_equal(fake.api.copy_in(dev, mem, 4096, NULL), 0);
	assert_int_equal(fake.api.copy_out(mem, dev, 4096, NULL),
			 CU_ERROR_INVALID_VALUE);
	assert_int_equal(fake.api.stream_sync(NULL), 0);
	assert_int_equal(fake.api.host_unregister(mem), 0);
	assert_int_equal(fake.api.mem_free(dev), 0);
	end(0);
}

/* Memory that goes away under a copy: reported, and the context is lost. */
static void test_freed_in_use(void **state)
{
	cu_deviceptr_t dev;
	cu_stream_t s;

	(void)state;
	begin(NULL);
	assert_int_equal(fake.api.mem_alloc(&dev, MiB), 0);
	assert_int_equal(fake.api.stream_create(&s, 1), 0);
	assert_int_equal(fake.api.host_register(mem, MiB, 3), 0);
	fake.hold(s, 1);
	assert_int_equal(fake.api.copy_out(mem, dev, 4096, s), 0);
	assert_int_equal(fake.api.host_unregister(mem), 0);
	assert_int_equal(fake.violations(), 1);
	assert_int_equal(fake.api.mem_free(dev), 0);
	assert_int_equal(fake.violations(), 2);
	fake.hold(s, 0);
	assert_int_equal(fake.api.stream_sync(s), CU_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(fake.violations(), 3);
	assert_int_equal(fake.api.mem_alloc(&dev, 4096),
			 CU_ERROR_ILLEGAL_ADDRESS);
	fake.api.stream_destroy(s);
	end(3);
}

static const char ptx[] = ".version 7.0\n.target sm_70\n"
			  ".visible .entry kvmm_copy_16(\n";

static cu_result_t launch(cu_function_t fn, struct cu_copy_args *args,
			unsigned int threads, cu_stream_t s)
{
	void *params[] = {args};

	return fake.api.launch(fn, 1, 1, 1, threads, 1, 1, 0, s, params, NULL);
}

static void test_kernel(void **state)
{
	struct cu_copy_args args = {.nr = 1};
	cu_deviceptr_t dev;
	cu_module_t m;
	cu_function_t fn;
	cu_stream_t s;

	(void)state;
	begin(NULL);
	assert_int_equal(fake.api.module_load(&m, "not PTX", 0, NULL, NULL),
			 CU_ERROR_INVALID_PTX);
	assert_int_equal(fake.api.module_load(&m, ptx, 0, NULL, NULL), 0);
	assert_int_equal(fake.api.module_function(&fn, m, "kvmm_copy_4"),
			 CU_ERROR_NOT_FOUND);
	assert_int_equal(fake.api.module_function(&fn, m, "kvmm_copy_16"), 0);
	assert_int_equal(fake.api.mem_alloc(&dev, MiB), 0);
	assert_int_equal(fake.api.stream_create(&s, 1), 0);
	assert_int_equal(launch(fn, &args, 128, s), CU_ERROR_INVALID_VALUE);
	assert_int_equal(launch(fn, &args, 256, s), 0);
	assert_int_equal(fake.api.stream_sync(s), 0);
	/* unregistered host memory is a fault that loses the context */
	args.desc[0] = (struct cu_copy_desc){dev, (uintptr_t)mem, 0, 0, 16, 1};
	assert_int_equal(launch(fn, &args, 256, s), 0);
	assert_int_equal(fake.api.stream_sync(s), CU_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(fake.api.event_create(&(cu_event_t){NULL}, 0),
			 CU_ERROR_ILLEGAL_ADDRESS);
	fake.api.module_unload(m);
	fake.api.mem_free(dev);
	fake.api.stream_destroy(s);
	end(1);
	/* an address that isn't a multiple of what one instruction moves */
	begin(NULL);
	assert_int_equal(fake.api.module_load(&m, ptx, 0, NULL, NULL), 0);
	assert_int_equal(fake.api.module_function(&fn, m, "kvmm_copy_16"), 0);
	assert_int_equal(fake.api.mem_alloc(&dev, MiB), 0);
	args.desc[0] = (struct cu_copy_desc){dev, dev + 8, 0, 0, 16, 1};
	assert_int_equal(launch(fn, &args, 256, NULL), 0);
	assert_int_equal(fake.api.stream_sync(NULL), 716);
	fake.api.module_unload(m);
	fake.api.mem_free(dev);
	end(1);
}

int strict_tests(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_context),
		cmocka_unit_test(test_registration),
		cmocka_unit_test(test_device_memory),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_rdonly),
		cmocka_unit_test(test_freed_in_use),
		cmocka_unit_test(test_kernel),
	};

	return cmocka_run_group_tests_name("stand-in", tests, NULL, NULL);
}
