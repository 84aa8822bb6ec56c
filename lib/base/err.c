/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

static const char *const names[] = {
	"OK",
	"INVAL",
	"CAPACITY",
	"LENGTH",
	"PREFIX",
	"DST_PAGES",
	"PAGE",
	"DUP_PAGE",
	"OVERFLOW",
	"SHARDING",
	"GEOMETRY",
	"MISMATCH",
	"COVERAGE",
	"STATE_LIST",
	"ORDER",
	"TOTAL",
	"NOMEM",
	"NOHUGE",
	"AGAIN",
	"QUOTA",
	"TIMEOUT",
	"ABORTED",
	"PEER_DIED",
	"ENGINE_GONE",
	"PROTO",
	"VERSION",
	"PERM",
	"EXIST",
	"NOENT",
	"DRIVER",
	"DEVICE",
	"SYS",
	"KEY",
	"POOL_LOST",
	"BUSY",
	"VERIFY",
};

const char *
kvf_error_name(int code)
{
	if (code > 0 || code <= -(int)(sizeof(names) / sizeof(names[0])))
		return "UNKNOWN";
	return names[-code];
}

int
kvf_fail(struct kvf_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (err == NULL)
		return code;
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return code;
}

int
kvf_fail_errno(struct kvf_err *err, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;
	int n;

	if (err == NULL)
		return KVF_E_SYS;
	err->code = KVF_E_SYS;
	va_start(ap, fmt);
	n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof(err->text))
		snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %s", strerror(saved));
	errno = saved;
	return KVF_E_SYS;
}
