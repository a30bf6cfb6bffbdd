#include "tower.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

enum { PAGE = 4096 };

struct page page_new(void)
{
	int fd = memfd_create("page", MFD_CLOEXEC);
	struct page page;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, PAGE), 0);
	page.gate = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	page.test = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(page.gate != MAP_FAILED && page.test != MAP_FAILED);
	close(fd);
	return page;
}

void page_free(struct page *page)
{
	munmap((void *)(uintptr_t)page->gate, PAGE);
	munmap(page->test, PAGE);
}

struct tower *tower_new_rung(const struct gate_rest *rest, void (*rang)(volatile uint32_t *bell))
{
	struct tower *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	t->bell = page_new();
	t->doorbell = page_new();
	t->gate = gate_new(t->bell.gate, rest, NULL);
	assert_non_null(t->gate);
	if (rang)
		gate_set_rang(t->gate, rang);
	t->vgpu = gate_vgpu_add(t->gate);
	t->program = gate_program_add(t->vgpu);
	t->watched = gate_bell_add(t->program, t->doorbell.gate);
	assert_non_null(t->watched);
	for (uint32_t i = 0; i < CHANNELS; i++) {
		t->userd[i] = page_new();
		t->gpu[i] = page_new();
		t->channel[i] = gate_channel_add(t->program, t->userd[i].gate, t->gpu[i].gate);
		assert_non_null(t->channel[i]);
		gate_channel_set_token(t->channel[i], TOKEN + i);
	}
	return t;
}

struct tower *tower_new(const struct gate_rest *rest)
{
	return tower_new_rung(rest, NULL);
}

void tower_free(struct tower *t)
{
	if (t->vgpu)
		gate_vgpu_remove(t->vgpu);
	gate_free(t->gate);
	page_free(&t->bell);
	page_free(&t->doorbell);
	for (int i = 0; i < CHANNELS; i++) {
		page_free(&t->userd[i]);
		page_free(&t->gpu[i]);
	}
	free(t);
}

void ring(struct tower *t, uint32_t channel, uint32_t put)
{
	atomic_store_explicit(&t->userd[channel].test[GATE_GP_PUT_WORD], put, memory_order_release);
	atomic_store_explicit(&t->doorbell.test[GATE_BELL_WORD], TOKEN + channel, memory_order_release);
}

uint32_t gpu_put(struct tower *t, uint32_t channel)
{
	return atomic_load_explicit(&t->gpu[channel].test[GATE_GP_PUT_WORD], memory_order_acquire);
}

void wait_word(_Atomic uint32_t *word, uint32_t value)
{
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

	while (atomic_load_explicit(word, memory_order_acquire) != value) {
		if (bf_now_ns() > give_up_ns)
			fail_msg("0x%x never came; there is 0x%x", value, atomic_load(word));
		sched_yield();
	}
}

void poller_goes_around(struct tower *t)
{
	gate_channel_set_token(t->channel[CHANNELS - 1], TOKEN + 1000);
	gate_channel_set_token(t->channel[CHANNELS - 1], TOKEN + CHANNELS - 1);
}
