/* SPDX-License-Identifier: BSD-3-Clause */
/* A wait with a limit that survives EINTR and early wake-ups. */
#ifndef KVF_WIRE_DEADLINE_H
#define KVF_WIRE_DEADLINE_H

#include <limits.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t
kvf_clock_ms(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static inline uint64_t
kvf_deadline(uint64_t timeout_ms)
{
	return kvf_clock_ms(CLOCK_MONOTONIC) + timeout_ms;
}

/* Milliseconds left, as poll() takes them; 0 when the deadline has passed. */
static inline int
kvf_deadline_left(uint64_t deadline)
{
	uint64_t now = kvf_clock_ms(CLOCK_MONOTONIC);

	if (now >= deadline)
		return 0;
	return deadline - now > INT_MAX ? INT_MAX : (int)(deadline - now);
}

#endif
