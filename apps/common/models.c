/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "common/fail.h"
#include "common/models.h"

struct name_value {
	const char *name;
	uint16_t value;
};

static const struct name_value kinds[] = {
	{"latent", KVF_KIND_LATENT},
	{"k", KVF_KIND_K},
	{"v", KVF_KIND_V},
	{"index_k", KVF_KIND_INDEX_K},
	{"index_scale", KVF_KIND_INDEX_SCALE},
	{"scale", KVF_KIND_SCALE},
	{"conv", KVF_KIND_CONV},
	{"ssm", KVF_KIND_SSM},
	{"aux", KVF_KIND_AUX},
};

static const struct name_value dtypes[] = {
	{"bf16", 1},
	{"fp16", 2},
	{"fp32", 3},
	{"fp8", 4},
	{"fp8_packed", 5},
};

const char *
models_path(void)
{
	const char *env = getenv("KVFERRY_MODELS");

	if (env != NULL && env[0] != '\0')
		return env;
	if (access(KVFERRY_MODELS_SOURCE, R_OK) == 0)
		return KVFERRY_MODELS_SOURCE;
	return KVFERRY_MODELS_INSTALLED;
}

static int
lookup(const struct name_value *table, size_t n, const char *name)
{
	size_t i;

	for (i = 0; name != NULL && i < n; i++) {
		if (strcmp(table[i].name, name) == 0)
			return table[i].value;
	}
	return -1;
}

int
model_kind(const char *name)
{
	return lookup(kinds, sizeof(kinds) / sizeof(kinds[0]), name);
}

int
model_dtype(const char *name)
{
	return lookup(dtypes, sizeof(dtypes) / sizeof(dtypes[0]), name);
}

const char *
model_kind_name(uint32_t kind)
{
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (kinds[i].value == kind)
			return kinds[i].name;
	}
	return NULL;
}

/* A whole number in [lo, hi]. */
static int
get_number(const json_t *obj, const char *key, uint64_t lo, uint64_t hi, uint64_t *value,
	struct kvf_err *err)
{
	const json_t *v = json_object_get(obj, key);
	json_int_t n;

	if (!json_is_integer(v))
		return app_fail(err, KVF_E_INVAL, "%s must be a whole number", key);
	n = json_integer_value(v);
	if (n < 0 || (uint64_t)n < lo || (uint64_t)n > hi)
		return app_fail(err, KVF_E_INVAL,
			"%s=%" JSON_INTEGER_FORMAT " must be in [%" PRIu64 ", %" PRIu64 "]", key, n,
			lo, hi);
	*value = (uint64_t)n;
	return 0;
}

static int
parse_planes(const json_t *obj, struct model_group *g, struct kvf_err *err)
{
	const json_t *planes = json_object_get(obj, "planes");
	const char *text;
	uint64_t value;
	size_t i;
	int tag;

	if (!json_is_array(planes) || json_array_size(planes) == 0 ||
		json_array_size(planes) > MODEL_MAX_PLANES)
		return app_fail(
			err, KVF_E_INVAL, "planes must be a list of 1 to %u", MODEL_MAX_PLANES);
	g->num_planes = (uint32_t)json_array_size(planes);
	for (i = 0; i < g->num_planes; i++) {
		const json_t *p = json_array_get(planes, i);

		text = json_string_value(json_object_get(p, "kind"));
		tag = model_kind(text);
		if (tag < 0)
			return app_fail(err, KVF_E_INVAL, "kind=%s is not known",
				text != NULL ? text : "(none)");
		g->planes[i].kind = (uint16_t)tag;
		text = json_string_value(json_object_get(p, "dtype"));
		tag = model_dtype(text);
		if (tag < 0)
			return app_fail(err, KVF_E_INVAL, "dtype=%s is not known",
				text != NULL ? text : "(none)");
		g->planes[i].dtype = (uint16_t)tag;
		if (get_number(p, "head_bytes", 1, 1u << 24, &value, err) != 0)
			return err->code;
		g->planes[i].head_bytes = (uint32_t)value;
	}
	return 0;
}

static int
parse_layers(const json_t *obj, uint32_t layers, struct model_group *g, struct kvf_err *err)
{
	const json_t *list = json_object_get(obj, "layers");
	json_int_t id, before = -1;
	uint32_t i;

	if (list == NULL) {
		g->num_layers = layers;
		for (i = 0; i < layers; i++)
			g->layers[i] = (uint16_t)i;
		return 0;
	}
	if (!json_is_array(list) || json_array_size(list) == 0 ||
		json_array_size(list) > MODEL_MAX_LAYERS)
		return app_fail(
			err, KVF_E_INVAL, "layers must be a list of 1 to %u ids", MODEL_MAX_LAYERS);
	g->num_layers = (uint32_t)json_array_size(list);
	for (i = 0; i < g->num_layers; i++) {
		const json_t *v = json_array_get(list, i);

		id = json_integer_value(v);
		if (!json_is_integer(v) || id <= before || id > UINT16_MAX)
			return app_fail(err, KVF_E_INVAL,
				"layers[%u]=%" JSON_INTEGER_FORMAT
				" must be an id above %" JSON_INTEGER_FORMAT " and at most %u",
				i, id, before, UINT16_MAX);
		g->layers[i] = (uint16_t)id;
		before = id;
	}
	return 0;
}

/* What only some groups have: state's type and rows, a multiple that pages are padded to, and the
 * published size of a page. */
static int
parse_extras(const json_t *obj, bool state, struct model_group *g, struct kvf_err *err)
{
	static const struct name_value types[] = {
		{"mamba", MODEL_MAMBA},
		{"swa", MODEL_SWA},
		{"dsa", MODEL_DSA},
		{"ring", MODEL_RING},
		{"rows", MODEL_ROWS},
	};
	const json_t *page = json_object_get(obj, "page");
	const char *text = json_string_value(json_object_get(obj, "type"));
	uint64_t value, tokens, sum;
	int type;

	if (json_object_get(obj, "page_multiple") != NULL) {
		if (get_number(obj, "page_multiple", 1, 1u << 24, &value, err) != 0)
			return err->code;
		g->page_multiple = (uint32_t)value;
	}
	if (state) {
		type = lookup(types, sizeof(types) / sizeof(types[0]), text);
		if (type < 0)
			return app_fail(err, KVF_E_INVAL, "type=%s of state is not known",
				text != NULL ? text : "(none)");
		g->type = (uint32_t)type;
		g->rows = type == MODEL_MAMBA ? 1 : 0;
		if (type == MODEL_SWA || type == MODEL_RING || type == MODEL_ROWS) {
			if (get_number(obj, "rows", 1, 1u << 20, &value, err) != 0)
				return err->code;
			g->rows = (uint32_t)value;
		}
	}
	if (page == NULL)
		return 0;
	if (get_number(page, "tokens", 1, 1u << 20, &tokens, err) != 0 ||
		get_number(page, "bytes", 1, INT64_MAX, &value, err) != 0)
		return err->code;
	sum = model_page_bytes(g, (uint32_t)tokens);
	if (sum != value)
		return app_fail(err, KVF_E_INVAL,
			"page of tokens=%" PRIu64 " has bytes=%" PRIu64
			" but its planes add up to %" PRIu64,
			tokens, value, sum);
	return 0;
}

/* Groups of one type are one component, so they have one number of rows. */
static bool
same_rows(const struct model_groups *groups, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (groups->group[i].type == groups->group[n].type &&
			groups->group[i].rows != groups->group[n].rows)
			return false;
	}
	return true;
}

static int
parse_groups(const json_t *obj, const char *key, uint32_t layers, struct model_groups *groups,
	struct kvf_err *err)
{
	const json_t *list = json_object_get(obj, key);
	bool state = strcmp(key, "state") == 0;
	uint64_t value;
	uint32_t i;

	if (list == NULL)
		return 0;
	if (!json_is_array(list) || json_array_size(list) > MODEL_MAX_GROUPS)
		return app_fail(
			err, KVF_E_INVAL, "%s must be a list of at most %u", key, MODEL_MAX_GROUPS);
	groups->num = (uint32_t)json_array_size(list);
	for (i = 0; i < groups->num; i++) {
		const json_t *g = json_array_get(list, i);

		if (get_number(g, "heads", 1, UINT16_MAX, &value, err) != 0)
			return err->code;
		groups->group[i].heads = (uint32_t)value;
		if (parse_planes(g, &groups->group[i], err) != 0 ||
			parse_layers(g, layers, &groups->group[i], err) != 0 ||
			parse_extras(g, state, &groups->group[i], err) != 0)
			return err->code;
		if (state && !same_rows(groups, i))
			return app_fail(err, KVF_E_INVAL,
				"rows=%u of state[%u] must be those of the other groups of its "
				"type",
				groups->group[i].rows, i);
	}
	return 0;
}

uint64_t
model_groups_bytes(const struct model_groups *groups)
{
	uint64_t sum = 0, rows;
	uint32_t i, p;

	for (i = 0; i < groups->num; i++) {
		const struct model_group *g = &groups->group[i];

		rows = g->rows > 0 ? g->rows : 1;
		for (p = 0; p < g->num_planes; p++)
			sum += rows * g->num_layers * g->heads * g->planes[p].head_bytes;
	}
	return sum;
}

uint64_t
model_page_bytes(const struct model_group *g, uint32_t page_tokens)
{
	uint64_t sum = 0;
	uint32_t p;

	for (p = 0; p < g->num_planes; p++)
		sum += (uint64_t)page_tokens * g->heads * g->planes[p].head_bytes;
	if (g->page_multiple > 0)
		sum = (sum + g->page_multiple - 1) / g->page_multiple * g->page_multiple;
	return sum;
}

static int
parse_layout(const json_t *obj, struct model *m, struct kvf_err *err)
{
	const json_t *layout = json_object_get(obj, "layout");
	uint64_t prefill, tp, dcp;

	if (get_number(layout, "prefill_tp", 1, 256, &prefill, err) != 0 ||
		get_number(layout, "decode_tp", 1, 256, &tp, err) != 0 ||
		get_number(layout, "decode_dcp", 1, 256, &dcp, err) != 0)
		return err->code;
	m->prefill_tp = (uint32_t)prefill;
	m->decode_tp = (uint32_t)tp;
	m->decode_dcp = (uint32_t)dcp;
	return 0;
}

/* A draft layer that used the id of a target layer would be taken for it. */
static int
check_ids(const struct model_groups *groups, const char *key, uint32_t lo, uint32_t hi,
	struct kvf_err *err)
{
	uint32_t i, k;

	for (i = 0; i < groups->num; i++) {
		for (k = 0; k < groups->group[i].num_layers; k++) {
			uint32_t id = groups->group[i].layers[k];

			if (id < lo || id >= hi)
				return app_fail(err, KVF_E_INVAL,
					"layer=%u of %s[%u] must be in [%u, %u)", id, key, i, lo,
					hi);
		}
	}
	return 0;
}

static int
parse_model(const json_t *obj, struct model *m, struct kvf_err *err)
{
	const char *title = json_string_value(json_object_get(obj, "title"));
	uint64_t layers, sum;

	memset(m, 0, sizeof(*m));
	snprintf(m->name, sizeof(m->name), "%s", json_string_value(json_object_get(obj, "name")));
	snprintf(m->title, sizeof(m->title), "%s", title != NULL ? title : "");
	if (get_number(obj, "layers", 1, MODEL_MAX_LAYERS, &layers, err) != 0)
		return err->code;
	m->layers = (uint32_t)layers;
	m->kept_layers = m->layers;
	if (get_number(obj, "bytes_per_token", 1, INT64_MAX, &m->bytes_per_token, err) != 0 ||
		parse_layout(obj, m, err) != 0 ||
		parse_groups(obj, "tokens", m->layers, &m->tokens, err) != 0 ||
		parse_groups(obj, "draft", m->layers, &m->draft, err) != 0 ||
		parse_groups(obj, "state", m->layers, &m->state, err) != 0 ||
		check_ids(&m->tokens, "tokens", 0, m->layers, err) != 0 ||
		check_ids(&m->draft, "draft", m->layers, UINT16_MAX, err) != 0 ||
		check_ids(&m->state, "state", 0, m->layers, err) != 0)
		return err->code;
	sum = model_groups_bytes(&m->tokens);
	if (sum != m->bytes_per_token)
		return app_fail(err, KVF_E_INVAL,
			"bytes_per_token=%" PRIu64 " but the token groups add up to %" PRIu64,
			m->bytes_per_token, sum);
	if (m->state.num == 0)
		return 0;
	if (get_number(obj, "state_bytes", 1, INT64_MAX, &m->state_bytes, err) != 0)
		return err->code;
	sum = model_groups_bytes(&m->state);
	if (sum != m->state_bytes)
		return app_fail(err, KVF_E_INVAL,
			"state_bytes=%" PRIu64 " but the state groups add up to %" PRIu64,
			m->state_bytes, sum);
	return 0;
}

static int
open_models(const char *path, json_t **root, json_t **list, struct kvf_err *err)
{
	json_error_t jerr;

	*root = json_load_file(path, 0, &jerr);
	if (*root == NULL)
		return app_fail(
			err, KVF_E_SYS, "models file %s line=%d: %s", path, jerr.line, jerr.text);
	*list = json_object_get(*root, "models");
	if (json_is_array(*list))
		return 0;
	json_decref(*root);
	return app_fail(err, KVF_E_INVAL, "models file %s has no list \"models\"", path);
}

int
model_list(const char *path, struct model_names *names, struct kvf_err *err)
{
	json_t *root, *list;
	const char *name;
	size_t i;

	names->num = 0;
	if (open_models(path, &root, &list, err) != 0)
		return err != NULL ? err->code : KVF_E_SYS;
	for (i = 0; i < json_array_size(list) && names->num < MODEL_MAX_NAMES; i++) {
		name = json_string_value(json_object_get(json_array_get(list, i), "name"));
		if (name != NULL)
			snprintf(names->name[names->num++], sizeof(names->name[0]), "%s", name);
	}
	json_decref(root);
	return 0;
}

static int
no_such_model(const char *path, const char *name, struct kvf_err *err)
{
	struct model_names names;
	char all[200] = "";
	uint32_t i;
	size_t len;

	if (model_list(path, &names, err) != 0)
		return err->code;
	for (i = 0; i < names.num; i++) {
		len = strlen(all);
		snprintf(all + len, sizeof(all) - len, "%s%s", i > 0 ? ", " : "", names.name[i]);
	}
	return app_fail(err, KVF_E_NOENT, "model=%s is not known; there is: %s", name, all);
}

int
model_load(const char *path, const char *name, struct model *m, struct kvf_err *err)
{
	struct kvf_err inner;
	json_t *root, *list;
	const char *n;
	size_t i;
	int rc;

	rc = open_models(path, &root, &list, &inner);
	if (rc != 0)
		return app_fail(err, rc, "%s", inner.text);
	for (i = 0; i < json_array_size(list); i++) {
		n = json_string_value(json_object_get(json_array_get(list, i), "name"));
		if (n != NULL && strcmp(n, name) == 0)
			break;
	}
	if (i == json_array_size(list)) {
		rc = no_such_model(path, name, &inner);
		json_decref(root);
		return app_fail(err, rc, "%s", inner.text);
	}
	rc = parse_model(json_array_get(list, i), m, &inner);
	json_decref(root);
	if (rc != 0)
		return app_fail(
			err, rc, "models file %s, model=%s: %.150s", path, name, inner.text);
	return 0;
}

static void
cut_groups(struct model_groups *groups, uint32_t layers)
{
	uint32_t i, k, kept, left = 0;

	for (i = 0; i < groups->num; i++) {
		struct model_group *g = &groups->group[i];

		for (k = 0, kept = 0; k < g->num_layers; k++) {
			if (g->layers[k] < layers)
				g->layers[kept++] = g->layers[k];
		}
		g->num_layers = kept;
		if (kept > 0)
			groups->group[left++] = *g;
	}
	groups->num = left;
}

int
model_cut_layers(struct model *m, uint32_t layers, struct kvf_err *err)
{
	struct model_groups tokens = m->tokens;

	if (layers == 0 || layers > m->layers)
		return app_fail(err, KVF_E_INVAL, "layers=%u must be in [1, %u] for model=%s",
			layers, m->layers, m->name);
	cut_groups(&tokens, layers);
	if (tokens.num == 0)
		return app_fail(err, KVF_E_INVAL,
			"layers=%u leaves no layer with KV: the first one of model=%s is layer=%u",
			layers, m->name, m->tokens.group[0].layers[0]);
	m->tokens = tokens;
	m->kept_layers = layers;
	cut_groups(&m->state, layers);
	m->bytes_per_token = model_groups_bytes(&m->tokens);
	m->state_bytes = model_groups_bytes(&m->state);
	return 0;
}

void
model_add_draft(struct model *m)
{
	uint32_t i;

	if (m->draft.num > 0)
		return;
	m->draft = m->tokens;
	for (i = 0; i < m->draft.num; i++) {
		m->draft.group[i].num_layers = 1;
		m->draft.group[i].layers[0] = (uint16_t)m->layers;
	}
}

void
model_add_state(struct model *m)
{
	struct model_group *g = m->state.group;
	uint32_t i;

	if (m->state.num > 0)
		return;
	/* Heads like a KDA layer's, small enough to ride along with any model. */
	m->state.num = 2;
	for (i = 0; i < 2; i++) {
		g[i].type = MODEL_MAMBA;
		g[i].rows = 1;
		g[i].heads = 32;
		g[i].num_planes = 1;
		g[i].num_layers = 2;
		g[i].layers[0] = 0;
		g[i].layers[1] = 1;
	}
	g[0].planes[0] = (struct model_plane){KVF_KIND_CONV, 1, 768};
	g[1].planes[0] = (struct model_plane){KVF_KIND_SSM, 3, 4096};
	m->state_bytes = model_groups_bytes(&m->state);
}
