#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

int bf_fail(struct bf_error *err, int code, const char *fmt, ...)
{
	if (err) {
		va_list args;

		err->code = code;
		va_start(args, fmt);
		vsnprintf(err->text, sizeof(err->text), fmt, args);
		va_end(args);
	}
	return -code;
}
