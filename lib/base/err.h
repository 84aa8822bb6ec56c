/* SPDX-License-Identifier: BSD-3-Clause */
/* Filling in a struct kvf_err, and arithmetic that cannot wrap. */
#ifndef KVF_BASE_ERR_H
#define KVF_BASE_ERR_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/error.h>

/* Stores code and sentence in *err (if err is not NULL); returns code. */
int kvf_fail(struct kvf_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Like kvf_fail() with KVF_E_SYS; appends ": <strerror(errno)>". */
int kvf_fail_errno(struct kvf_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* true when the result does not fit 64 bits. */
static inline bool
kvf_mul_overflows(uint64_t a, uint64_t b, uint64_t *res)
{
	return __builtin_mul_overflow(a, b, res);
}

static inline bool
kvf_add_overflows(uint64_t a, uint64_t b, uint64_t *res)
{
	return __builtin_add_overflow(a, b, res);
}

#endif
