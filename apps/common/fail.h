/* SPDX-License-Identifier: BSD-3-Clause */
/* Filling in a struct kvf_err from a program, which sees only the public header. */
#ifndef KVFERRY_APPS_FAIL_H
#define KVFERRY_APPS_FAIL_H

#include <kvferry/error.h>

/* Stores code and sentence in *err (if err is not NULL); returns code. */
int app_fail(struct kvf_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
