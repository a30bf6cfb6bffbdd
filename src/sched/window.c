/* The sliding window: GPU time in the last `length_ns`. Of the oldest bucket the part that is still in the window counts, as if
 * its GPU time were spread evenly. */
#include <string.h>

#include "sched/state.h"

uint64_t window_bucket_ns(uint64_t length_ns)
{
	return length_ns < BUCKETS ? 1 : length_ns / BUCKETS;
}

/* Clears the buckets that have left the window. */
static void slide(struct window *window, uint64_t number)
{
	if (number <= window->number)
		return;
	if (number - window->number > BUCKETS) {
		memset(window->used_ns, 0, sizeof(window->used_ns));
		window->sum_ns = 0;
	} else {
		for (uint64_t n = window->number + 1; n <= number; n++) {
			window->sum_ns -= window->used_ns[n % (BUCKETS + 1)];
			window->used_ns[n % (BUCKETS + 1)] = 0;
		}
	}
	window->number = number;
}

void window_add(struct window *window, uint64_t length_ns, uint64_t now_ns, uint64_t used_ns)
{
	slide(window, now_ns / window_bucket_ns(length_ns));
	window->used_ns[window->number % (BUCKETS + 1)] += used_ns;
	window->sum_ns += used_ns;
}

/* The sum at the beginning of bucket `number`, which is not before the newest. The window is not changed. */
static uint64_t sum_at(const struct window *window, uint64_t number)
{
	uint64_t sum_ns = window->sum_ns;

	if (!sum_ns || number - window->number > BUCKETS)
		return 0;
	for (uint64_t n = window->number + 1; n <= number; n++)
		sum_ns -= window->used_ns[n % (BUCKETS + 1)];
	return sum_ns;
}

static uint64_t number_at(const struct window *window, uint64_t bucket_ns, uint64_t now_ns)
{
	return now_ns / bucket_ns > window->number ? now_ns / bucket_ns : window->number;
}

uint64_t window_used(const struct window *window, uint64_t length_ns, uint64_t now_ns)
{
	uint64_t bucket_ns = window_bucket_ns(length_ns), number = number_at(window, bucket_ns, now_ns);
	uint64_t sum_ns = sum_at(window, number), oldest = window->used_ns[(number + 1) % (BUCKETS + 1)];

	if (!sum_ns)
		return 0;
	return sum_ns - (uint64_t)((double)oldest * (double)(now_ns % bucket_ns) / (double)bucket_ns);
}

uint64_t window_falls_ns(const struct window *window, uint64_t length_ns, uint64_t now_ns, uint64_t to_ns)
{
	uint64_t bucket_ns = window_bucket_ns(length_ns), number = number_at(window, bucket_ns, now_ns);
	uint64_t sum_ns = sum_at(window, number), oldest = 0, at_ns;

	for (; sum_ns > to_ns; number++, sum_ns -= oldest) {
		oldest = window->used_ns[(number + 1) % (BUCKETS + 1)];
		if (sum_ns - oldest <= to_ns)
			break;
	}
	at_ns = number * bucket_ns + 1;
	if (sum_ns > to_ns)
		at_ns += (uint64_t)((double)(sum_ns - to_ns) * (double)bucket_ns / (double)oldest);
	return at_ns > now_ns ? at_ns : now_ns + 1;
}
