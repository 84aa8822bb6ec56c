/* SPDX-License-Identifier: BSD-3-Clause */
/* Who would serve what, if these two groups met: the engine's own answer, without an engine. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <kvferry/link.h>

#include "args.h"
#include "common/declare.h"
#include "common/positions.h"
#include "common/shape.h"

/* A group from a model and a topology, or from a file. */
struct group {
	struct shape shape;
	struct model model;
	struct shape_group built;
	struct declare_group declared;
	const struct kvf_geometry *const *geos;
	uint32_t num;
};

/* Layers of one map that have the same kind, occurrence and heads. */
struct part {
	uint32_t kind;
	uint32_t occurrence;
	uint32_t head_first;
	uint32_t head_end;
	uint32_t num_layers;
	const uint32_t *layers;
	uint64_t row_bytes; /* of all its layers */
};

/* A map taken apart. */
struct parts {
	uint32_t num;
	struct part *part;
	uint32_t *layers;
};

/* What a prefill rank gives to everybody. */
struct load {
	double per_token;
	uint64_t state; /* bytes of one row of each list */
	uint64_t aux;
};

static int
load_group(const char *name, const char *spec, struct group *g, struct kvf_err *err)
{
	char side[16];
	uint32_t i;

	if (spec == NULL)
		return cli_fail(err, KVF_E_INVAL, "--%s is missing", name);
	if (spec[0] == '@') {
		if (declare_load(spec + 1, &g->declared, err) != 0)
			return 1;
		g->num = g->declared.num;
		g->geos = g->declared.geos;
		return 0;
	}
	snprintf(side, sizeof(side), "%s-", name);
	if (shape_parse(spec, side, &g->shape, &g->model, err) != 0 ||
		shape_group_build(&g->shape, &g->model, &g->built, err) != 0)
		return 1;
	for (i = 0; i < g->built.num; i++) {
		if (kvf_geometry_check(&g->built.ranks[i].geo, g->built.ranks[i].pool_bytes, err) !=
			0)
			return 1;
	}
	g->num = g->built.num;
	g->geos = g->built.geos;
	return 0;
}

static void
free_group(struct group *g)
{
	shape_group_free(&g->built);
	declare_free(&g->declared);
	free(g);
}

/* ---- taking a map apart ---- */

static int
by_layer(const void *x, const void *y)
{
	const struct kvf_lane *a = x, *b = y;

	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	if (a->occurrence != b->occurrence)
		return a->occurrence < b->occurrence ? -1 : 1;
	if (a->layer != b->layer)
		return a->layer < b->layer ? -1 : 1;
	return a->head_first < b->head_first ? -1 : a->head_first > b->head_first;
}

static int
by_heads(const void *x, const void *y)
{
	const struct kvf_lane *a = x, *b = y;

	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	if (a->occurrence != b->occurrence)
		return a->occurrence < b->occurrence ? -1 : 1;
	if (a->head_first != b->head_first)
		return a->head_first < b->head_first ? -1 : 1;
	if (a->head_count != b->head_count)
		return a->head_count < b->head_count ? -1 : 1;
	return a->layer < b->layer ? -1 : a->layer > b->layer;
}

/* Heads that lie apart have lanes of their own: joins them again. */
static uint32_t
join_heads(struct kvf_lane *lanes, uint32_t n)
{
	uint32_t i, kept = 0;

	for (i = 0; i < n; i++) {
		struct kvf_lane *last = kept > 0 ? &lanes[kept - 1] : NULL;

		if (last != NULL && last->kind == lanes[i].kind && last->layer == lanes[i].layer &&
			last->occurrence == lanes[i].occurrence &&
			last->head_first + last->head_count == lanes[i].head_first) {
			last->head_count = (uint16_t)(last->head_count + lanes[i].head_count);
			last->row_bytes += lanes[i].row_bytes;
		} else {
			lanes[kept++] = lanes[i];
		}
	}
	return kept;
}

static void
free_parts(struct parts *p)
{
	free(p->part);
	free(p->layers);
}

static int
take_apart(const struct kvf_map *map, struct parts *p, struct kvf_err *err)
{
	struct kvf_lane *lanes = calloc(map->num_lanes, sizeof(*lanes));
	uint32_t n, i;

	p->num = 0;
	p->part = calloc(map->num_lanes, sizeof(*p->part));
	p->layers = calloc(map->num_lanes, sizeof(*p->layers));
	if (lanes == NULL || p->part == NULL || p->layers == NULL) {
		free(lanes);
		free_parts(p);
		return cli_fail(err, KVF_E_NOMEM, "no memory for lanes=%u", map->num_lanes);
	}
	memcpy(lanes, map->lanes, map->num_lanes * sizeof(*lanes));
	qsort(lanes, map->num_lanes, sizeof(*lanes), by_layer);
	n = join_heads(lanes, map->num_lanes);
	qsort(lanes, n, sizeof(*lanes), by_heads);
	for (i = 0; i < n; i++) {
		struct part *part = p->num > 0 ? &p->part[p->num - 1] : NULL;

		p->layers[i] = lanes[i].layer;
		if (part == NULL || part->kind != lanes[i].kind ||
			part->occurrence != lanes[i].occurrence ||
			part->head_first != lanes[i].head_first ||
			part->head_end != (uint32_t)lanes[i].head_first + lanes[i].head_count) {
			part = &p->part[p->num++];
			part->kind = lanes[i].kind;
			part->occurrence = lanes[i].occurrence;
			part->head_first = lanes[i].head_first;
			part->head_end = (uint32_t)lanes[i].head_first + lanes[i].head_count;
			part->layers = &p->layers[i];
		}
		part->num_layers++;
		part->row_bytes += lanes[i].row_bytes;
	}
	free(lanes);
	return 0;
}

/* ---- words ---- */

static const char *
class_name(uint32_t cls)
{
	static const char *const names[] = {"?", "tokens", "state", "aux"};

	return names[cls <= KVF_AUX ? cls : 0];
}

static const char *
rule_name(uint32_t rule)
{
	static const char *const names[] = {"exact", "one", "clip", "ring"};

	return names[rule & 3];
}

static const char *
kind_name(uint32_t kind, char *buf, size_t size)
{
	const char *name = model_kind_name(kind);

	if (name != NULL)
		return name;
	snprintf(buf, size, "%u", kind);
	return buf;
}

/* "0-60", "0-60/2" (every second one), "3,7". */
static void
print_layers(const struct part *part)
{
	const uint32_t *l = part->layers;
	uint32_t i, end, step;

	for (i = 0; i < part->num_layers; i = end) {
		end = i + 1;
		step = end < part->num_layers ? l[end] - l[i] : 0;
		while (end < part->num_layers && l[end] - l[end - 1] == step)
			end++;
		/* Two of a wider step are no pattern. */
		if (end - i == 2 && step > 1)
			end = i + 1;
		printf("%s%u", i > 0 ? "," : "", l[i]);
		if (end - i > 1)
			printf("-%u", l[end - 1]);
		if (end - i > 1 && step > 1)
			printf("/%u", step);
	}
}

/* "all", "3%8" (positions that are 3 modulo 8), "3%8x64" (blocks of 64), "band 3/8". */
static void
print_sharding(const char *side, const struct kvf_sharding *sh)
{
	if (sh->size == 1)
		printf(" %s=all", side);
	else if (sh->mode == KVF_SHARD_BAND)
		printf(" %s=band:%u/%u", side, sh->rank, sh->size);
	else if (sh->interleave == 1)
		printf(" %s=%u%%%u", side, sh->rank, sh->size);
	else
		printf(" %s=%u%%%ux%u", side, sh->rank, sh->size, sh->interleave);
}

static void
print_part(uint32_t prefill, uint32_t decode, const struct kvf_map *map, const struct part *part,
	double share, uint64_t shared, uint64_t of)
{
	char buf[16];

	printf("prefill/%u -> decode/%u: %s", prefill, decode, class_name(map->cls));
	if (map->cls == KVF_STATE)
		printf(" tag=%u rule=%s", map->tag, rule_name(map->rule));
	printf(" kind=%s", kind_name(part->kind, buf, sizeof(buf)));
	if (part->occurrence > 0)
		printf(" occurrence=%u", part->occurrence);
	if (map->cls != KVF_AUX) {
		printf(" layers=");
		print_layers(part);
		printf(" heads=%u", part->head_first);
		if (part->head_end - part->head_first > 1)
			printf("-%u", part->head_end - 1);
	}
	if (map->cls != KVF_TOKENS) {
		printf(" bytes=%" PRIu64 " per %s\n", part->row_bytes,
			map->cls == KVF_AUX || map->rule == KVF_STATE_ONE ? "request" : "row");
		return;
	}
	if (of != 0)
		printf(" positions=%" PRIu64 "/%" PRIu64, shared, of);
	else
		printf(" positions=%.6g", share);
	print_sharding("src", &map->src);
	print_sharding("dst", &map->dst);
	printf(" bytes=%.10g per token\n", (double)part->row_bytes * share);
}

/* ---- JSON ---- */

static json_t *
json_sharding(const struct kvf_sharding *sh, uint32_t component, uint32_t list, uint32_t page)
{
	return json_pack("{s:I,s:I,s:I,s:s,s:I,s:I,s:I}", "size", (json_int_t)sh->size, "rank",
		(json_int_t)sh->rank, "interleave", (json_int_t)sh->interleave, "mode",
		sh->mode == KVF_SHARD_BAND ? "band" : "cyclic", "component", (json_int_t)component,
		"list", (json_int_t)list, "page_tokens", (json_int_t)page);
}

static json_t *
json_part(const struct part *part, double share, const struct kvf_map *map)
{
	json_t *layers = json_array();
	char buf[16];
	uint32_t i;

	for (i = 0; i < part->num_layers; i++)
		json_array_append_new(layers, json_integer(part->layers[i]));
	return json_pack("{s:s,s:I,s:o,s:[I,I],s:I,s:f}", "kind",
		kind_name(part->kind, buf, sizeof(buf)), "occurrence", (json_int_t)part->occurrence,
		"layers", layers, "heads", (json_int_t)part->head_first, (json_int_t)part->head_end,
		"row_bytes", (json_int_t)part->row_bytes, "bytes_per_token",
		map->cls == KVF_TOKENS ? (double)part->row_bytes * share : 0.0);
}

static json_t *
json_map(uint32_t prefill, uint32_t decode, const struct kvf_map *map, const struct parts *parts,
	double share, uint64_t shared, uint64_t of)
{
	json_t *list = json_array();
	json_t *o;
	uint32_t i;

	for (i = 0; i < parts->num; i++)
		json_array_append_new(list, json_part(&parts->part[i], share, map));
	o = json_pack("{s:I,s:I,s:s,s:I,s:o,s:o,s:I,s:I,s:o}", "prefill", (json_int_t)prefill,
		"decode", (json_int_t)decode, "class", class_name(map->cls), "tag",
		(json_int_t)map->tag, "src",
		json_sharding(&map->src, map->src_component, map->src_list, map->src_page_tokens),
		"dst",
		json_sharding(&map->dst, map->dst_component, map->dst_list, map->dst_page_tokens),
		"lanes", (json_int_t)map->num_lanes, "row_bytes", (json_int_t)map->row_bytes,
		"parts", list);
	if (map->cls == KVF_STATE)
		json_object_set_new(o, "rule", json_string(rule_name(map->rule)));
	if (map->cls != KVF_TOKENS)
		return o;
	json_object_set_new(o, "share", json_real(share));
	if (of != 0)
		json_object_set_new(
			o, "positions", json_pack("[I,I]", (json_int_t)shared, (json_int_t)of));
	json_object_set_new(o, "bytes_per_token", json_real((double)map->row_bytes * share));
	return o;
}

/* ---- the answer ---- */

static int
put_map(uint32_t prefill, uint32_t decode, const struct kvf_map *map, struct load *load,
	json_t *serves, struct kvf_err *err)
{
	uint64_t shared = 1, of = 1;
	struct parts parts;
	double share = 1;
	uint32_t i;

	if (map->cls == KVF_TOKENS) {
		share = positions_shared(&map->src, &map->dst, &shared, &of);
		load->per_token += (double)map->row_bytes * share;
	} else if (map->cls == KVF_STATE) {
		load->state += map->row_bytes;
	} else {
		load->aux += map->row_bytes;
	}
	if (take_apart(map, &parts, err) != 0)
		return 1;
	if (serves != NULL) {
		json_array_append_new(
			serves, json_map(prefill, decode, map, &parts, share, shared, of));
	} else {
		for (i = 0; i < parts.num; i++)
			print_part(prefill, decode, map, &parts.part[i], share, shared, of);
	}
	free_parts(&parts);
	return 0;
}

static int
put_json(const struct kvf_link *link, const struct load *loads, json_t *serves, struct kvf_err *err)
{
	json_t *balance = json_array(), *root;
	uint32_t i;
	int bad;

	for (i = 0; i < link->num_prefill; i++)
		json_array_append_new(balance,
			json_pack("{s:I,s:f,s:I,s:I}", "prefill", (json_int_t)i, "bytes_per_token",
				loads[i].per_token, "state_row_bytes", (json_int_t)loads[i].state,
				"aux_bytes", (json_int_t)loads[i].aux));
	root = json_pack("{s:I,s:I,s:O,s:o}", "prefill_ranks", (json_int_t)link->num_prefill,
		"decode_ranks", (json_int_t)link->num_decode, "serves", serves, "balance", balance);
	bad = root == NULL ||
	      json_dumpf(root, stdout,
		      JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15)) != 0 ||
	      putchar('\n') == EOF;
	json_decref(root);
	return bad ? cli_fail(err, KVF_E_NOMEM, "cannot write the link as JSON") : 0;
}

static void
print_balance(const struct kvf_link *link, const struct load *loads)
{
	double sum = 0, most = 0;
	uint32_t i;

	for (i = 0; i < link->num_prefill; i++) {
		printf("balance prefill/%u: bytes=%.10g per token, state=%" PRIu64
		       " per row, aux=%" PRIu64 "\n",
			i, loads[i].per_token, loads[i].state, loads[i].aux);
		sum += loads[i].per_token;
		most = loads[i].per_token > most ? loads[i].per_token : most;
	}
	printf("prefill ranks=%u decode ranks=%u bytes=%.10g per token, busiest/mean=%.3f\n",
		link->num_prefill, link->num_decode, sum,
		sum > 0 ? most * link->num_prefill / sum : 1.0);
}

static int
put_link(const struct kvf_link *link, int json, struct kvf_err *err)
{
	struct load *loads = calloc(link->num_prefill, sizeof(*loads));
	json_t *serves = json ? json_array() : NULL;
	uint32_t s, d, m;
	int rc = 0;

	if (loads == NULL || (json && serves == NULL))
		rc = cli_fail(err, KVF_E_NOMEM, "no memory for ranks=%u", link->num_prefill);
	for (s = 0; rc == 0 && s < link->num_prefill; s++) {
		for (d = 0; rc == 0 && d < link->num_decode; d++) {
			const struct kvf_pair *pair = kvf_link_pair(link, s, d);

			for (m = 0; rc == 0 && m < pair->num_maps; m++)
				rc = put_map(s, d, &pair->maps[m], &loads[s], serves, err);
		}
	}
	if (rc == 0 && json)
		rc = put_json(link, loads, serves, err);
	else if (rc == 0)
		print_balance(link, loads);
	json_decref(serves);
	free(loads);
	return rc;
}

int
cmd_link(int argc, char **argv, struct kvf_err *err)
{
	const char *prefill = NULL, *decode = NULL, *json = NULL;
	const struct opt opts[] = {
		{"prefill", "SPEC", "what the prefill group holds", &prefill},
		{"decode", "SPEC", "what the decode group holds", &decode},
		{"json", NULL, "print JSON", &json},
	};
	struct group *p, *d;
	struct kvf_link *link;
	int rc;

	rc = opts_parse(argc, argv,
		"Prints which prefill rank would serve what to which decode rank, and how the work "
		"is\n"
		"spread, or why the two groups do not go together. No engine is asked.\n\n"
		"SPEC is KEY=VALUE,.. or @FILE.json with an explicit declaration. Keys: model "
		"(required), tp,\n"
		"dcp, interleave, cp (bands), pp (stages, or layers 7+8), page, layout (nhd, hnd, "
		"kv-blocks,\n"
		"blocks-kv), pad, ring, draft (0, 1), state (0, 1), layers, aux, pages, slots, "
		"state-pages.\n"
		"Ranks: ((stage * cp + band) * tp + tp rank) * dcp + dcp rank.",
		opts, sizeof(opts) / sizeof(opts[0]), err);
	if (rc != 0)
		return rc < 0 ? 0 : rc;
	p = calloc(1, sizeof(*p));
	d = calloc(1, sizeof(*d));
	if (p == NULL || d == NULL) {
		free(p);
		free(d);
		return cli_fail(err, KVF_E_NOMEM, "no memory for two groups");
	}
	rc = load_group("prefill", prefill, p, err);
	if (rc == 0)
		rc = load_group("decode", decode, d, err);
	if (rc == 0 && kvf_link_build(p->geos, p->num, d->geos, d->num, &link, err) != 0)
		rc = 1;
	if (rc == 0) {
		rc = put_link(link, json != NULL, err);
		kvf_link_free(link);
	}
	free_group(p);
	free_group(d);
	return rc;
}
