/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shows whatever kvferryd says about itself. Nothing here knows a key's name, so an engine that
 * says more, or less, is shown all the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <kvferry/client.h>

#include "args.h"

#define STATUS_TIMEOUT_MS 5000u
#define MAX_DEPTH         8
#define MAX_COLUMNS       32
#define CELL_MAX          80

/* A value in one cell: scalars as they are, anything deeper as JSON. */
static void
cell(const json_t *value, char *buf, size_t cap)
{
	char *text;

	switch (json_typeof(value)) {
	case JSON_STRING:
		snprintf(buf, cap, "%s", json_string_value(value));
		return;
	case JSON_NULL:
		snprintf(buf, cap, "-");
		return;
	default:
		text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
		snprintf(buf, cap, "%s", text == NULL ? "?" : text);
		free(text);
		return;
	}
}

static int
all_objects(json_t *array)
{
	json_t *item;
	size_t i;

	json_array_foreach(array, i, item)
	{
		if (!json_is_object(item))
			return 0;
	}
	return json_array_size(array) > 0;
}

/* Objects that look alike: one row each, a column for every key that any of them has. */
static void
print_rows(const char *name, json_t *array)
{
	const char *keys[MAX_COLUMNS], *key;
	size_t width[MAX_COLUMNS], n = 0, i, k;
	char buf[CELL_MAX];
	json_t *item, *value;

	json_array_foreach(array, i, item)
	{
		json_object_foreach(item, key, value)
		{
			for (k = 0; k < n && strcmp(keys[k], key) != 0; k++)
				;
			if (k == MAX_COLUMNS)
				continue;
			if (k == n) {
				keys[n] = key;
				width[n++] = strlen(key);
			}
			cell(value, buf, sizeof(buf));
			if (strlen(buf) > width[k])
				width[k] = strlen(buf);
		}
	}
	printf("%s:\n", name);
	for (k = 0; k < n; k++)
		printf("  %-*s", (int)width[k], keys[k]);
	putchar('\n');
	json_array_foreach(array, i, item)
	{
		for (k = 0; k < n; k++) {
			value = json_object_get(item, keys[k]);
			if (value == NULL)
				snprintf(buf, sizeof(buf), "-");
			else
				cell(value, buf, sizeof(buf));
			printf("  %-*s", (int)width[k], buf);
		}
		putchar('\n');
	}
}

static void
print_value(const char *name, json_t *value, int depth)
{
	char buf[CELL_MAX];
	const char *key;
	json_t *item;
	size_t i;

	if (json_is_array(value) && all_objects(value)) {
		print_rows(name, value);
	} else if (json_is_object(value) && depth < MAX_DEPTH) {
		json_object_foreach(value, key, item)
		{
			char path[256];

			snprintf(path, sizeof(path), "%s%s%s", name, *name == '\0' ? "" : ".", key);
			print_value(path, item, depth + 1);
		}
	} else if (json_is_array(value)) {
		printf("%-32s", name);
		json_array_foreach(value, i, item)
		{
			cell(item, buf, sizeof(buf));
			printf(" %s", buf);
		}
		printf("%s\n", json_array_size(value) == 0 ? " none" : "");
	} else {
		cell(value, buf, sizeof(buf));
		printf("%-32s %s\n", name, buf);
	}
}

int
cmd_status(int argc, char **argv, struct kvf_err *err)
{
	const char *socket = NULL, *json = NULL;
	const struct opt opts[] = {
		{"socket", "PATH", "kvferryd's socket (" KVF_DEFAULT_SOCKET ")", &socket},
		{"json", NULL, "print what the engine said, as JSON", &json},
	};
	json_error_t where;
	char *text = NULL;
	json_t *root;
	int rc;

	rc = opts_parse(argc, argv, "Asks a running kvferryd how it is.", opts,
		sizeof(opts) / sizeof(opts[0]), err);
	if (rc != 0)
		return rc < 0 ? 0 : rc;
	if (kvf_engine_status(socket, STATUS_TIMEOUT_MS, &text, err) != 0)
		return 1;
	root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
	if (root == NULL) {
		rc = cli_fail(err, KVF_E_PROTO, "the engine's status is not JSON: line=%d: %s",
			where.line, where.text);
	} else if (json != NULL) {
		rc = printf("%s\n", text) < 0;
	} else if (json_is_object(root)) {
		print_value("", root, 0);
	} else {
		print_value("status", root, 0);
	}
	json_decref(root);
	free(text);
	return rc;
}
