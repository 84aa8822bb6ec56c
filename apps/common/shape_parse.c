/* SPDX-License-Identifier: BSD-3-Clause */
/* Shapes as people write them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"
#include "common/shape.h"

#define SPEC_MAX 1024u

static int
parse_number(const char *name, const char *text, uint64_t hi, uint32_t *value, struct kvf_err *err)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || v > hi)
		return app_fail(err, KVF_E_INVAL,
			"%s=%.60s must be a whole number of at most %" PRIu64, name, text, hi);
	*value = (uint32_t)v;
	return 0;
}

int
shape_parse_stages(const char *name, const char *text, struct shape *s, struct kvf_err *err)
{
	const char *p = text;
	uint32_t n = 0;
	char one[16];
	size_t len;

	memset(s->stage_layers, 0, sizeof(s->stage_layers));
	if (strchr(text, '+') == NULL)
		return parse_number(name, text, SHAPE_MAX_STAGES, &s->pp, err);
	for (;; p += len + 1) {
		len = strcspn(p, "+");
		if (n == SHAPE_MAX_STAGES || len >= sizeof(one))
			return app_fail(err, KVF_E_INVAL,
				"%s=%.60s must be layers joined by +, at most %u of them", name,
				text, SHAPE_MAX_STAGES);
		memcpy(one, p, len);
		one[len] = '\0';
		if (parse_number(name, one, MODEL_MAX_LAYERS, &s->stage_layers[n], err) != 0)
			return err->code;
		if (s->stage_layers[n++] == 0)
			return app_fail(
				err, KVF_E_INVAL, "%s=%.60s has a stage of layers=0", name, text);
		if (p[len] == '\0')
			break;
	}
	s->pp = n;
	return 0;
}

/* What belongs to the model rather than to the topology; applied when the model is known. */
struct wishes {
	const char *model;
	uint32_t draft; /* 0, 1, or ASIS */
	uint32_t state;
	uint32_t layers;
};
#define ASIS UINT32_MAX

static int
parse_key(const char *key, const char *text, const char *side, struct shape *s, struct wishes *w,
	unsigned int *seen, struct kvf_err *err)
{
	const struct {
		const char *name;
		uint32_t *value;
		uint64_t hi;
	} numbers[] = {
		{"tp", &s->tp, UINT32_MAX},
		{"dcp", &s->dcp, UINT32_MAX},
		{"cp", &s->cp, UINT32_MAX},
		{"interleave", &s->interleave, UINT32_MAX},
		{"page", &s->page_tokens, UINT32_MAX},
		{"pad", &s->row_pad, UINT32_MAX},
		{"ring", &s->ring_rows, UINT32_MAX},
		{"aux", &s->aux_bytes, UINT32_MAX},
		{"pages", &s->num_pages, UINT32_MAX},
		{"slots", &s->aux_slots, UINT32_MAX},
		{"state-pages", &s->state_pages[0], UINT32_MAX},
		{"draft", &w->draft, 1},
		{"state", &w->state, 1},
		{"layers", &w->layers, MODEL_MAX_LAYERS},
		{"model", NULL, 0},
		{"pp", NULL, 0},
		{"layout", NULL, 0},
	};
	const size_t n = sizeof(numbers) / sizeof(numbers[0]);
	char name[64];
	size_t i;

	for (i = 0; i < n; i++) {
		if (strcmp(key, numbers[i].name) == 0)
			break;
	}
	if (i == n)
		return app_fail(err, KVF_E_INVAL,
			"%s%.40s is not known; there is: model, tp, dcp, interleave, cp, pp, page, "
			"layout, pad, ring, draft, state, layers, aux, pages, slots, state-pages",
			side, key);
	if ((*seen & 1u << i) != 0)
		return app_fail(err, KVF_E_INVAL, "%s%s is given twice", side, key);
	*seen |= 1u << i;
	snprintf(name, sizeof(name), "%s%s", side, key);
	if (numbers[i].value != NULL)
		return parse_number(name, text, numbers[i].hi, numbers[i].value, err);
	if (strcmp(key, "pp") == 0)
		return shape_parse_stages(name, text, s, err);
	if (strcmp(key, "layout") == 0)
		return shape_parse_layout(name, text, s, err);
	w->model = text;
	return 0;
}

static int
load(const struct wishes *w, struct model *m, struct kvf_err *err)
{
	int rc = model_load(models_path(), w->model, m, err);

	if (rc != 0)
		return rc;
	if (w->draft == 1)
		model_add_draft(m);
	else if (w->draft == 0)
		m->draft.num = 0;
	if (w->state == 1)
		model_add_state(m);
	else if (w->state == 0)
		m->state.num = 0;
	return w->layers != 0 ? model_cut_layers(m, w->layers, err) : 0;
}

int
shape_parse(
	const char *text, const char *side, struct shape *s, struct model *m, struct kvf_err *err)
{
	struct wishes w = {.draft = ASIS, .state = ASIS};
	char copy[SPEC_MAX], *save = NULL, *word, *equals;
	struct kvf_err inner;
	unsigned int seen = 0;
	uint32_t i;
	int rc;

	shape_default(s);
	if ((size_t)snprintf(copy, sizeof(copy), "%s", text) >= sizeof(copy))
		return app_fail(err, KVF_E_INVAL, "%sspec is longer than limit=%u bytes", side,
			SPEC_MAX - 1);
	for (word = strtok_r(copy, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save)) {
		equals = strchr(word, '=');
		if (equals == NULL)
			return app_fail(err, KVF_E_INVAL, "%s%.60s must be KEY=VALUE", side, word);
		*equals = '\0';
		rc = parse_key(word, equals + 1, side, s, &w, &seen, &inner);
		if (rc != 0)
			return app_fail(err, rc, "%s", inner.text);
	}
	if (w.model == NULL)
		return app_fail(err, KVF_E_INVAL, "%smodel is missing", side);
	/* One number for all types. */
	for (i = 1; s->state_pages[0] != 0 && i <= MODEL_STATE_TYPES; i++)
		s->state_pages[i] = s->state_pages[0];
	rc = load(&w, m, &inner);
	if (rc == 0)
		rc = shape_check(s, m, side, &inner);
	return rc == 0 ? 0 : app_fail(err, rc, "%s", inner.text);
}
