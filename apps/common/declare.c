/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/declare.h"
#include "common/fail.h"
#include "common/models.h"

#define REQUIRED INT64_MIN

/* A field of an object: a whole number in [0, max], or a name that `names` knows. */
struct field {
	const char *key;
	int64_t usual; /* or REQUIRED */
	uint64_t max;
	int (*names)(const char *name);
	uint64_t value;
};

static int
class_of(const char *name)
{
	static const char *const names[] = {"", "tokens", "state", "aux"};
	int i;

	for (i = 1; i < 4; i++) {
		if (strcmp(name, names[i]) == 0)
			return i;
	}
	return -1;
}

static int
rule_of(const char *name)
{
	static const char *const names[] = {"exact", "one", "clip", "ring"};
	int i;

	for (i = 0; i < 4; i++) {
		if (strcmp(name, names[i]) == 0)
			return i;
	}
	return -1;
}

static int
mode_of(const char *name)
{
	if (strcmp(name, "cyclic") == 0)
		return KVF_SHARD_CYCLIC;
	return strcmp(name, "band") == 0 ? KVF_SHARD_BAND : -1;
}

static int
read_field(const json_t *v, const char *where, struct field *f, struct kvf_err *err)
{
	const char *text = json_string_value(v);
	json_int_t n = json_integer_value(v);

	if (v == NULL && f->usual == REQUIRED)
		return app_fail(err, KVF_E_INVAL, "%s: %s is missing", where, f->key);
	if (v == NULL) {
		f->value = (uint64_t)f->usual;
		return 0;
	}
	if (text != NULL && f->names != NULL) {
		n = f->names(text);
		if (n < 0)
			return app_fail(
				err, KVF_E_INVAL, "%s: %s=%.60s is not known", where, f->key, text);
	} else if (!json_is_integer(v)) {
		return app_fail(err, KVF_E_INVAL, "%s: %s must be a whole number%s", where, f->key,
			f->names != NULL ? " or a name" : "");
	}
	if (n < 0 || (uint64_t)n > f->max)
		return app_fail(err, KVF_E_INVAL,
			"%s: %s=%" JSON_INTEGER_FORMAT " must be in [0, %" PRIu64 "]", where,
			f->key, n, f->max);
	f->value = (uint64_t)n;
	return 0;
}

/* All fields of one object; `more` are keys that somebody else reads. */
static int
read_object(const json_t *obj, const char *where, struct field *f, size_t n,
	const char *const *more, struct kvf_err *err)
{
	const char *key;
	json_t *v;
	size_t i;

	if (!json_is_object(obj))
		return app_fail(err, KVF_E_INVAL, "%s must be an object", where);
	json_object_foreach((json_t *)obj, key, v)
	{
		for (i = 0; i < n && strcmp(key, f[i].key) != 0; i++)
			;
		if (i < n)
			continue;
		for (i = 0; more[i] != NULL && strcmp(key, more[i]) != 0; i++)
			;
		if (more[i] == NULL)
			return app_fail(err, KVF_E_INVAL, "%s: %.60s is not a field", where, key);
	}
	for (i = 0; i < n; i++) {
		if (read_field(json_object_get(obj, f[i].key), where, &f[i], err) != 0)
			return err->code;
	}
	return 0;
}

static const char *const no_more[] = {NULL};

static int
read_entry(const json_t *obj, const char *where, struct kvf_entry *e, struct kvf_err *err)
{
	struct field f[] = {
		{"offset", 0, INT64_MAX, NULL, 0},
		{"page_stride", REQUIRED, INT64_MAX, NULL, 0},
		{"row_stride", REQUIRED, INT64_MAX, NULL, 0},
		{"head_stride", 0, INT64_MAX, NULL, 0},
		{"row_bytes", REQUIRED, UINT32_MAX, NULL, 0},
		{"layer", REQUIRED, UINT32_MAX, NULL, 0},
		{"kind", REQUIRED, UINT16_MAX, model_kind, 0},
		{"dtype", 1, UINT16_MAX, model_dtype, 0},
		{"head_first", 0, UINT16_MAX, NULL, 0},
		{"head_count", 1, UINT16_MAX, NULL, 0},
		{"head_total", 1, UINT16_MAX, NULL, 0},
	};

	if (read_object(obj, where, f, sizeof(f) / sizeof(f[0]), no_more, err) != 0)
		return err->code;
	*e = (struct kvf_entry){
		.offset = f[0].value,
		.page_stride = f[1].value,
		.row_stride = f[2].value,
		.head_stride = f[3].value,
		.row_bytes = (uint32_t)f[4].value,
		.layer = (uint32_t)f[5].value,
		.kind = (uint16_t)f[6].value,
		.dtype = (uint16_t)f[7].value,
		.head_first = (uint16_t)f[8].value,
		.head_count = (uint16_t)f[9].value,
		.head_total = (uint16_t)f[10].value,
	};
	return 0;
}

static int
read_sharding(const json_t *obj, const char *where, struct kvf_sharding *sh, struct kvf_err *err)
{
	struct field f[] = {
		{"size", 1, UINT32_MAX, NULL, 0},
		{"rank", 0, UINT32_MAX, NULL, 0},
		{"interleave", 1, UINT32_MAX, NULL, 0},
		{"mode", KVF_SHARD_CYCLIC, UINT32_MAX, mode_of, 0},
	};

	*sh = (struct kvf_sharding){1, 0, 1, KVF_SHARD_CYCLIC};
	if (obj == NULL)
		return 0;
	if (read_object(obj, where, f, sizeof(f) / sizeof(f[0]), no_more, err) != 0)
		return err->code;
	*sh = (struct kvf_sharding){(uint32_t)f[0].value, (uint32_t)f[1].value,
		(uint32_t)f[2].value, (uint32_t)f[3].value};
	return 0;
}

static int
read_component(const json_t *obj, const char *where, struct kvf_component *c, struct kvf_err *err)
{
	static const char *const more[] = {"sharding", "entries", NULL};
	struct field f[] = {
		{"class", REQUIRED, UINT32_MAX, class_of, 0},
		{"tag", 0, UINT32_MAX, NULL, 0},
		{"list", 0, UINT32_MAX, NULL, 0},
		{"page_tokens", 1, UINT32_MAX, NULL, 0},
		{"num_pages", REQUIRED, UINT32_MAX, NULL, 0},
		{"rule", KVF_STATE_EXACT, UINT32_MAX, rule_of, 0},
	};
	const json_t *list = json_object_get(obj, "entries");
	struct kvf_entry *entries;
	char inner[96];
	size_t i, n = json_array_size(list);

	if (read_object(obj, where, f, sizeof(f) / sizeof(f[0]), more, err) != 0)
		return err->code;
	if (!json_is_array(list) || n == 0 || n > KVF_MAX_ENTRIES)
		return app_fail(err, KVF_E_INVAL, "%s: entries must be a list of 1 to %u", where,
			KVF_MAX_ENTRIES);
	*c = (struct kvf_component){
		.cls = (uint32_t)f[0].value,
		.tag = (uint32_t)f[1].value,
		.list = (uint32_t)f[2].value,
		.page_tokens = (uint32_t)f[3].value,
		.num_pages = (uint32_t)f[4].value,
		.rule = (uint32_t)f[5].value,
	};
	if (read_sharding(json_object_get(obj, "sharding"), where, &c->sharding, err) != 0)
		return err->code;
	entries = calloc(n, sizeof(*entries));
	if (entries == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for entries=%zu", n);
	c->entries = entries;
	c->num_entries = (uint32_t)n;
	for (i = 0; i < n; i++) {
		snprintf(inner, sizeof(inner), "%s entry=%zu", where, i);
		if (read_entry(json_array_get(list, i), inner, &entries[i], err) != 0)
			return err->code;
	}
	return 0;
}

static int
read_rank(const json_t *obj, uint32_t rank, struct declare_rank *r, struct kvf_err *err)
{
	static const char *const more[] = {"components", NULL};
	struct field f = {"pool_bytes", INT64_MAX, INT64_MAX, NULL, 0};
	const json_t *list = json_object_get(obj, "components");
	size_t i, n = json_array_size(list);
	struct kvf_err inner;
	char where[64];
	int rc;

	snprintf(where, sizeof(where), "rank=%u", rank);
	if (read_object(obj, where, &f, 1, more, err) != 0)
		return err->code;
	if (!json_is_array(list) || n == 0 || n > KVF_MAX_COMPONENTS)
		return app_fail(err, KVF_E_INVAL, "%s: components must be a list of 1 to %u", where,
			KVF_MAX_COMPONENTS);
	r->pool_bytes = f.value;
	r->components = calloc(n, sizeof(*r->components));
	if (r->components == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for components=%zu", n);
	r->geo.num_components = (uint32_t)n;
	r->geo.components = r->components;
	for (i = 0; i < n; i++) {
		snprintf(where, sizeof(where), "rank=%u component=%zu", rank, i);
		if (read_component(json_array_get(list, i), where, &r->components[i], err) != 0)
			return err->code;
	}
	rc = kvf_geometry_check(&r->geo, r->pool_bytes, &inner);
	return rc == 0 ? 0 : app_fail(err, rc, "rank=%u: %.200s", rank, inner.text);
}

static int
read_ranks(const json_t *root, struct declare_group *g, struct kvf_err *err)
{
	const json_t *list = json_object_get(root, "ranks");
	size_t n = json_array_size(list);
	uint32_t i;

	if (!json_is_array(list) || n == 0 || n > KVF_MAX_SHARDS)
		return app_fail(
			err, KVF_E_INVAL, "\"ranks\" must be a list of 1 to %u", KVF_MAX_SHARDS);
	g->ranks = calloc(n, sizeof(*g->ranks));
	g->geos = calloc(n, sizeof(*g->geos));
	if (g->ranks == NULL || g->geos == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for ranks=%zu", n);
	g->num = (uint32_t)n;
	for (i = 0; i < g->num; i++) {
		if (read_rank(json_array_get(list, i), i, &g->ranks[i], err) != 0)
			return err->code;
		g->geos[i] = &g->ranks[i].geo;
	}
	return 0;
}

int
declare_load(const char *path, struct declare_group *g, struct kvf_err *err)
{
	struct kvf_err inner;
	json_error_t jerr;
	json_t *root;
	int rc;

	memset(g, 0, sizeof(*g));
	root = json_load_file(path, JSON_REJECT_DUPLICATES, &jerr);
	if (root == NULL)
		return app_fail(
			err, KVF_E_SYS, "file %.80s line=%d: %.100s", path, jerr.line, jerr.text);
	rc = read_ranks(root, g, &inner);
	json_decref(root);
	if (rc == 0)
		return 0;
	declare_free(g);
	return app_fail(err, rc, "file %.60s: %.180s", path, inner.text);
}

void
declare_free(struct declare_group *g)
{
	uint32_t i, c;

	for (i = 0; i < g->num; i++) {
		for (c = 0; c < g->ranks[i].geo.num_components; c++)
			free((void *)g->ranks[i].components[c].entries);
		free(g->ranks[i].components);
	}
	free(g->ranks);
	free(g->geos);
	memset(g, 0, sizeof(*g));
}
