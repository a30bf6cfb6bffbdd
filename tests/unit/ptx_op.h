/* Part of ptx_run.h; a header of its own marks the file as shared by the tests (see meson.build). */
#ifndef BELFRY_TESTS_PTX_OP_H
#define BELFRY_TESTS_PTX_OP_H

#include "ptx_run.h"

#endif
