/* SPDX-License-Identifier: BSD-3-Clause */
/* One clock for all processes of a run. */
#ifndef KVFERRY_APPS_CLOCK_H
#define KVFERRY_APPS_CLOCK_H

#include <stdint.h>
#include <time.h>

#define APP_KILL_MS 10000 /* how long the end of a killed process is waited for */

/* CLOCK_MONOTONIC: comparable between processes of one host. */
static inline uint64_t
app_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#endif
