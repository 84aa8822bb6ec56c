/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"

int
cli_fail(struct kvf_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return 1;
}

static void
print_help(const char *command, const char *about, const struct opt *opts, size_t n)
{
	size_t i;

	printf("usage: kvferry %s [options]\n\n%s\n\n", command, about);
	for (i = 0; i < n; i++) {
		char left[48];

		snprintf(left, sizeof(left), "--%s%s%s", opts[i].name,
			opts[i].arg == NULL ? "" : " ", opts[i].arg == NULL ? "" : opts[i].arg);
		printf("  %-24s %s\n", left, opts[i].help);
	}
	printf("  %-24s %s\n", "--help", "print this");
}

int
opts_parse(int argc, char **argv, const char *about, const struct opt *opts, size_t n,
	struct kvf_err *err)
{
	size_t len, k;
	int i;

	for (i = 1; i < argc; i++) {
		const char *name, *equals;

		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			print_help(argv[0], about, opts, n);
			return -1;
		}
		if (strncmp(argv[i], "--", 2) != 0)
			return cli_fail(err, KVF_E_INVAL,
				"unexpected argument \"%s\" (see kvferry %s --help)", argv[i],
				argv[0]);
		name = argv[i] + 2;
		equals = strchr(name, '=');
		len = equals == NULL ? strlen(name) : (size_t)(equals - name);
		for (k = 0; k < n; k++) {
			if (strlen(opts[k].name) == len && strncmp(opts[k].name, name, len) == 0)
				break;
		}
		if (k == n)
			return cli_fail(err, KVF_E_INVAL,
				"unknown option --%.*s (see kvferry %s --help)", (int)len, name,
				argv[0]);
		if (opts[k].arg == NULL) {
			if (equals != NULL)
				return cli_fail(err, KVF_E_INVAL, "--%s takes no value, got \"%s\"",
					opts[k].name, equals + 1);
			*opts[k].value = "";
		} else if (equals != NULL) {
			*opts[k].value = equals + 1;
		} else if (i + 1 < argc) {
			*opts[k].value = argv[++i];
		} else {
			return cli_fail(err, KVF_E_INVAL, "--%s needs a value: %s", opts[k].name,
				opts[k].arg);
		}
	}
	return 0;
}

/* One number of text[0..len): 0, or a refusal that calls it `what`. */
static int
number(const char *what, const char *text, size_t len, uint64_t limit, int negative,
	uint64_t *value, struct kvf_err *err)
{
	size_t i = len > 0 && text[0] == '-' ? 1 : 0;
	/* Longer than any number: quote the beginning only, so that the limit stays in the
	 * sentence. */
	int shown = len < 64 ? (int)len : 64;
	bool wraps = false;
	uint64_t v = 0;

	if (i == len)
		return cli_fail(err, KVF_E_INVAL, "%s=\"%.*s\" is not a whole decimal number", what,
			shown, text);
	for (; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return cli_fail(err, KVF_E_INVAL,
				"%s=\"%.*s\" is not a whole decimal number", what, shown, text);
		wraps = wraps || __builtin_mul_overflow(v, 10, &v) ||
			__builtin_add_overflow(v, (uint64_t)(text[i] - '0'), &v);
	}
	if (text[0] == '-')
		return cli_fail(err, negative, "%s=%.*s is negative, limit=0..%" PRIu64, what,
			shown, text, limit);
	if (wraps || v > limit)
		return cli_fail(err, KVF_E_OVERFLOW, "%s=%.*s is past limit=%" PRIu64, what, shown,
			text, limit);
	*value = v;
	return 0;
}

int
arg_u64(const char *name, const char *text, uint64_t limit, int negative, uint64_t *value,
	struct kvf_err *err)
{
	return text == NULL ? 0 : number(name, text, strlen(text), limit, negative, value, err);
}

int
arg_u32(const char *name, const char *text, int negative, uint32_t *value, struct kvf_err *err)
{
	uint64_t v = *value;
	int rc = arg_u64(name, text, UINT32_MAX, negative, &v, err);

	*value = (uint32_t)v;
	return rc;
}

int
arg_list(const char *name, const char *text, uint64_t limit, uint64_t **list, uint64_t *n,
	struct kvf_err *err)
{
	uint64_t count = 1, i;
	const char *p, *end;

	*list = NULL;
	*n = 0;
	if (*text == '\0')
		return 0;
	for (p = text; *p != '\0'; p++)
		count += *p == ',';
	*list = calloc(count, sizeof(**list));
	if (*list == NULL)
		return cli_fail(
			err, KVF_E_NOMEM, "no memory for %s of n=%" PRIu64 " numbers", name, count);
	for (p = text, i = 0; i < count; i++, p = end + 1) {
		char what[64];

		end = strchrnul(p, ',');
		snprintf(what, sizeof(what), "%s[%" PRIu64 "]", name, i);
		if (number(what, p, (size_t)(end - p), limit, KVF_E_PAGE, &(*list)[i], err) != 0) {
			free(*list);
			*list = NULL;
			return 1;
		}
	}
	*n = count;
	return 0;
}
