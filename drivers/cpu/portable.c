/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernel.h"

static bool
available(void)
{
	return true;
}

/* Everything by memcpy(), which the driver does for any kernel that cannot stream. */
const struct kvf_cpu_kernel kvf_cpu_portable = {
	.name = "portable",
	.detail = "portable memcpy, row by row",
	.needs = "nothing",
	.available = available,
};
