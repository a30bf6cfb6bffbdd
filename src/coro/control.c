/* Errors made on purpose, which belfry verify must find: what a way of sharing would do that changes results.
 * BELFRY_VERIFY_CONTROL=sms: the program is told half of the SMs. =split: a kernel is launched as two of half the grid. */
#include <stdlib.h>
#include <string.h>

#include "coro/trace.h"

static enum { CONTROL_NONE, CONTROL_SMS, CONTROL_SPLIT } control;

__attribute__((constructor)) static void find_control(void)
{
	const char *name = getenv("BELFRY_VERIFY_CONTROL");

	if (name && !strcmp(name, "sms"))
		control = CONTROL_SMS;
	else if (name && !strcmp(name, "split"))
		control = CONTROL_SPLIT;
}

bool control_splits(unsigned grid_x)
{
	return control == CONTROL_SPLIT && grid_x > 1;
}

void traced_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device,
				 struct trace_place place)
{
	(void)device, (void)place;
	if (control == CONTROL_SMS && attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT && *value > 1)
		*value /= 2;
}
