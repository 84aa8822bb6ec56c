/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations made from presets and topologies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvferry/link.h>

#include "common/shape.h"
#include "common/suite.h"
#include "unit/apps/apps.h"

struct scene {
	struct shape shape;
	struct model model;
	struct shape_group group;
};

static int
scene_init(struct scene *s, const char *spec)
{
	struct kvf_err err = {0};
	int rc = shape_parse(spec, "", &s->shape, &s->model, &err);

	if (rc == 0)
		rc = shape_group_build(&s->shape, &s->model, &s->group, &err);
	if (!CHECK_EQ(rc, 0))
		printf("%s: %s\n", spec, err.text);
	return rc;
}

static void
scene_fini(struct scene *s)
{
	shape_group_free(&s->group);
}

static const struct kvf_component *
component_of(const struct shape_rank *r, uint32_t cls, uint32_t tag)
{
	uint32_t i;

	for (i = 0; i < r->geo.num_components; i++) {
		if (r->comp[i].cls == cls && r->comp[i].tag == tag)
			return &r->comp[i];
	}
	return NULL;
}

static void
ranks_are_numbered(void)
{
	static struct scene s;
	uint32_t r;

	if (scene_init(&s, "model=deepseek-r1,pp=7+8,tp=2,dcp=3,layers=15,interleave=4") != 0)
		return;
	CHECK_EQ(s.group.num, 12);
	for (r = 0; r < s.group.num; r++) {
		const struct shape_rank *k = &s.group.ranks[r];

		CHECK_EQ(k->rank, r);
		CHECK_EQ(k->dcp_rank, r % 3);
		CHECK_EQ(k->tp_rank, r / 3 % 2);
		CHECK_EQ(k->stage, r / 6);
		CHECK_EQ(k->first_layer, r < 6 ? 0 : 7);
		CHECK_EQ(k->end_layer, r < 6 ? 7 : 15);
		CHECK_EQ(k->comp[0].num_entries, r < 6 ? 7 : 8);
		CHECK_EQ(k->comp[0].entries[0].layer, r < 6 ? 0 : 7);
		CHECK_EQ(k->comp[0].sharding.size, 3);
		CHECK_EQ(k->comp[0].sharding.rank, r % 3);
		CHECK_EQ(k->comp[0].sharding.interleave, 4);
	}
	scene_fini(&s);
	/* An even split: the first stages are the longer ones. */
	if (scene_init(&s, "model=deepseek-r1,pp=4,cp=2") != 0)
		return;
	CHECK_EQ(s.group.num, 8);
	for (r = 0; r < 8; r++) {
		CHECK_EQ(s.group.ranks[r].band, r % 2);
		CHECK_EQ(
			s.group.ranks[r].end_layer - s.group.ranks[r].first_layer, r < 2 ? 16 : 15);
		CHECK_EQ(s.group.ranks[r].comp[0].sharding.mode, KVF_SHARD_BAND);
		CHECK_EQ(s.group.ranks[r].comp[0].sharding.interleave, 64);
	}
	scene_fini(&s);
}

static void
heads_are_sliced(void)
{
	/* {spec, rank, first head, heads} */
	static const struct {
		const char *spec;
		uint32_t rank, first, count;
	} cases[] = {
		{"model=qwen3-235b,tp=1", 0, 0, 4},
		{"model=qwen3-235b,tp=2", 1, 2, 2},
		{"model=qwen3-235b,tp=8", 0, 0, 1},
		{"model=qwen3-235b,tp=8", 1, 0, 1},
		{"model=qwen3-235b,tp=8", 7, 3, 1},
		/* DCP varies fastest. */
		{"model=qwen3-235b,tp=2,dcp=2", 3, 2, 2},
		{"model=deepseek-r1,tp=2,dcp=2", 3, 0, 1},
	};
	static struct scene s;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct kvf_entry *e;

		if (scene_init(&s, cases[i].spec) != 0)
			continue;
		e = s.group.ranks[cases[i].rank].comp[0].entries;
		CHECK_EQ(e->head_first, cases[i].first);
		CHECK_EQ(e->head_count, cases[i].count);
		scene_fini(&s);
	}
}

static void
layouts_are_laid(void)
{
	const struct kvf_entry *k, *v;
	static struct scene s;

	if (scene_init(&s, "model=llama-3-70b,tp=2,layers=2,page=16,pages=10") != 0)
		return;
	k = s.group.ranks[0].comp[0].entries;
	CHECK_EQ(k->row_bytes, 1024);
	CHECK_EQ(k->row_stride, 1024);
	CHECK_EQ(k->page_stride, 16 * 1024);
	CHECK_EQ(k->head_stride, 0);
	/* All K layers, then all V layers. */
	CHECK_EQ(k[1].kind, KVF_KIND_K);
	CHECK_EQ(k[2].kind, KVF_KIND_V);
	scene_fini(&s);

	if (scene_init(&s, "model=llama-3-70b,tp=2,layers=2,page=16,pages=10,pad=8") != 0)
		return;
	k = s.group.ranks[0].comp[0].entries;
	CHECK_EQ(k->row_stride, 1032);
	CHECK_EQ(k->page_stride, 16 * 1032);
	scene_fini(&s);

	if (scene_init(&s, "model=llama-3-70b,tp=2,layers=2,page=16,pages=10,layout=hnd") != 0)
		return;
	k = s.group.ranks[0].comp[0].entries;
	CHECK_EQ(k->row_stride, 256);
	CHECK_EQ(k->head_stride, 16 * 256);
	CHECK_EQ(k->page_stride, 16 * 1024);
	scene_fini(&s);

	/* [2, pages, slot, head]: V begins where the last page of K ends. */
	if (scene_init(&s, "model=llama-3-70b,tp=2,layers=2,page=16,pages=10,layout=kv-blocks") !=
		0)
		return;
	k = s.group.ranks[0].comp[0].entries;
	v = k + 1;
	CHECK_EQ(k->kind, KVF_KIND_K);
	CHECK_EQ(v->kind, KVF_KIND_V);
	CHECK_EQ(v->layer, k->layer);
	CHECK_EQ(k->page_stride, 16 * 1024);
	CHECK_EQ(v->page_stride, 16 * 1024);
	CHECK_EQ(v->offset, k->offset + 10 * 16 * 1024);
	scene_fini(&s);

	if (scene_init(&s, "model=llama-3-70b,tp=2,layers=2,page=16,pages=10,layout=blocks-kv") !=
		0)
		return;
	k = s.group.ranks[0].comp[0].entries;
	v = k + 1;
	CHECK_EQ(k->page_stride, 2 * 16 * 1024);
	CHECK_EQ(v->page_stride, 2 * 16 * 1024);
	CHECK_EQ(v->offset, k->offset + 16 * 1024);
	scene_fini(&s);

	/* Planes of a page, one behind the other: the published sizes. */
	if (scene_init(&s, "model=deepseek-v3.2") != 0)
		return;
	k = &s.group.ranks[0].comp[0].entries[61];
	CHECK_EQ(k->kind, KVF_KIND_INDEX_K);
	CHECK_EQ(k->page_stride, 8448);
	CHECK_EQ(k->row_stride, 128);
	CHECK_EQ(k[1].kind, KVF_KIND_INDEX_SCALE);
	CHECK_EQ(k[1].offset, k->offset + 64 * 128);
	CHECK_EQ(k[1].page_stride, 8448);
	CHECK_EQ(k[1].row_stride, 4);
	scene_fini(&s);
	if (scene_init(&s, "model=deepseek-v4") != 0)
		return;
	k = s.group.ranks[0].comp[0].entries;
	CHECK_EQ(k->page_stride, 37440);
	CHECK_EQ(k[1].offset, k->offset + 64 * 576);
	CHECK_EQ(k[1].row_stride, 8);
	CHECK_EQ(k[1].page_stride, 37440);
	scene_fini(&s);
}

static void
drafts_and_states(void)
{
	const struct kvf_component *c;
	static struct scene s;

	if (scene_init(&s, "model=kimi-k3,dcp=8,pp=2,page=16") != 0)
		return;
	/* On the last stage, whole on every DCP rank, in pages of P * N. */
	CHECK_EQ(s.group.ranks[0].geo.num_components, 2);
	CHECK_EQ(s.group.ranks[15].geo.num_components, 3);
	c = &s.group.ranks[15].comp[1];
	CHECK_EQ(c->page_tokens, 128);
	CHECK_EQ(c->sharding.size, 1);
	CHECK_EQ(c->list, SHAPE_LIST_TOKENS);
	CHECK_EQ(c->num_entries, 10);
	CHECK_EQ(c->entries[0].layer, 93);
	scene_fini(&s);
	if (scene_init(&s, "model=kimi-k3,draft=0,dcp=8") != 0)
		return;
	CHECK_EQ(s.group.ranks[0].geo.num_components, 2);
	scene_fini(&s);

	if (scene_init(&s, "model=kimi-linear,tp=4") != 0)
		return;
	c = component_of(&s.group.ranks[1], KVF_STATE, MODEL_MAMBA);
	if (CHECK(c != NULL)) {
		CHECK_EQ(c->rule, KVF_STATE_ONE);
		CHECK_EQ(c->page_tokens, 1);
		CHECK_EQ(c->list, SHAPE_LIST_STATE);
		CHECK_EQ(c->num_entries, 20 * 4);
		CHECK_EQ(c->entries[0].head_first, 8);
		CHECK_EQ(c->entries[0].head_count, 8);
		CHECK_EQ(c->entries[0].head_total, 32);
		/* Three convolutions of one layer: told apart by occurrence. */
		CHECK_EQ(s.group.ranks[1].occurrence[c->entries - s.group.ranks[1].entries], 0);
		CHECK_EQ(s.group.ranks[1].occurrence[c->entries - s.group.ranks[1].entries + 2], 2);
	}
	scene_fini(&s);
	if (scene_init(&s, "model=gpt-oss-120b-swa,tp=2,page=16,layout=kv-blocks") != 0)
		return;
	c = component_of(&s.group.ranks[0], KVF_STATE, MODEL_SWA);
	if (CHECK(c != NULL)) {
		CHECK_EQ(c->rule, KVF_STATE_CLIP);
		CHECK_EQ(c->page_tokens, 16);
		CHECK_EQ(c->num_entries, 36);
		CHECK_EQ(c->entries[1].kind, KVF_KIND_V);
	}
	scene_fini(&s);
	if (scene_init(&s, "model=deepseek-v4,ring=100") != 0)
		return;
	c = component_of(&s.group.ranks[0], KVF_STATE, MODEL_RING);
	if (CHECK(c != NULL)) {
		CHECK_EQ(c->rule, KVF_STATE_RING);
		CHECK_EQ(c->page_tokens, 100);
	}
	scene_fini(&s);
	if (scene_init(&s, "model=deepseek-v4,state=0,aux=0") != 0)
		return;
	CHECK_EQ(s.group.ranks[0].geo.num_components, 1);
	scene_fini(&s);
}

/* A stage without any layer of a kind has no such component, and one without any is refused. */
static void
stages_may_lack_kinds(void)
{
	static struct scene s;
	struct shape_rank rank;
	struct kvf_err err;

	if (scene_init(&s, "model=kimi-linear,pp=3+24") != 0)
		return;
	CHECK(component_of(&s.group.ranks[0], KVF_TOKENS, 0) == NULL);
	CHECK(component_of(&s.group.ranks[0], KVF_STATE, MODEL_MAMBA) != NULL);
	CHECK_EQ(component_of(&s.group.ranks[1], KVF_TOKENS, 0)->num_entries, 7);
	s.shape.aux_bytes = 0;
	s.model.state.num = 0;
	CHECK_EQ(shape_rank_build(&s.shape, &s.model, 0, &rank, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "rank=0 of model=kimi-linear has entries=0");
	CHECK_EQ(shape_rank_build(&s.shape, &s.model, 2, &rank, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "rank=2 must be below ranks=2");
	scene_fini(&s);
}

static void
state_types_of_files(void)
{
	static const char text[] =
		"{\"models\": [{\"name\": \"x\", \"layers\": 2, \"bytes_per_token\": 32, "
		"\"state_bytes\": 576, \"layout\": {\"prefill_tp\": 1, \"decode_tp\": 1, "
		"\"decode_dcp\": 1}, \"tokens\": [{\"heads\": 2, \"planes\": [{\"kind\": \"k\", "
		"\"head_bytes\": 8, \"dtype\": \"bf16\"}]}], \"state\": ["
		"{\"type\": \"dsa\", \"heads\": 1, \"planes\": [{\"kind\": \"index_k\", "
		"\"head_bytes\": 16, \"dtype\": \"fp8\"}]}, "
		"{\"type\": \"rows\", \"rows\": 8, \"heads\": 1, \"planes\": [{\"kind\": \"k\", "
		"\"head_bytes\": 32, \"dtype\": \"fp8\"}]}, "
		"{\"type\": \"mamba\", \"heads\": 1, \"planes\": [{\"kind\": \"ssm\", "
		"\"head_bytes\": 16, \"dtype\": \"fp8\"}]}]}]}";
	char path[] = "/tmp/kvferry-shape-XXXXXX";
	const struct kvf_component *c;
	static struct scene s;
	FILE *f;
	int fd = mkstemp(path);

	if (!CHECK(fd >= 0))
		return;
	f = fdopen(fd, "w");
	fputs(text, f);
	fclose(f);
	setenv("KVFERRY_MODELS", path, 1);
	if (scene_init(&s, "model=x,page=32,tp=2,pages=3,state-pages=5") == 0) {
		CHECK_EQ(s.group.ranks[0].geo.num_components, 5);
		c = component_of(&s.group.ranks[0], KVF_STATE, MODEL_DSA);
		CHECK(c != NULL && c->rule == KVF_STATE_CLIP && c->page_tokens == 32 &&
			c->list == SHAPE_LIST_STATE + MODEL_DSA - 1 && c->num_pages == 5);
		c = component_of(&s.group.ranks[0], KVF_STATE, MODEL_ROWS);
		CHECK(c != NULL && c->rule == KVF_STATE_EXACT && c->page_tokens == 1 &&
			c->list < KVF_MAX_LISTS);
		scene_fini(&s);
	}
	unsetenv("KVFERRY_MODELS");
	remove(path);
}

static const char *const topologies[] = {
	"tp=1",
	"tp=2,page=1",
	"tp=4,dcp=2,interleave=16,page=16",
	"tp=16,dcp=3,interleave=5,page=48",
	"pp=3,tp=2",
	"cp=3,page=32",
	"cp=5,pp=2,draft=1,state=1",
	"dcp=8,draft=1,state=1,page=128",
	"layout=hnd,tp=2",
	"layout=hnd,tp=8,pad=24,draft=1",
	"pad=40,page=16,dcp=2",
	"layout=kv-blocks,tp=2",
	"layout=kv-blocks,tp=4,pad=8,pp=2,draft=1",
	"layout=blocks-kv,tp=16,dcp=2,page=16",
};
#define NUM_TOPOLOGIES (sizeof(topologies) / sizeof(topologies[0]))

static int
has_kv(const char *model)
{
	return strncmp(model, "llama", 5) == 0 || strncmp(model, "qwen", 4) == 0 ||
	       strncmp(model, "gpt-oss", 7) == 0;
}

/* Bytes of one token (a row of each token entry) on all ranks together. */
static uint64_t
token_bytes(const struct scene *s)
{
	uint64_t sum = 0;
	uint32_t r, c, i;

	for (r = 0; r < s->group.num; r++) {
		for (c = 0; c < s->group.ranks[r].geo.num_components; c++) {
			const struct kvf_component *comp = &s->group.ranks[r].comp[c];

			for (i = 0; comp->cls == KVF_TOKENS && i < comp->num_entries; i++)
				sum += comp->entries[i].row_bytes;
		}
	}
	return sum;
}

/* What tp ranks of a group hold together: each head as often as it is replicated. */
static uint64_t
held(const struct model_groups *groups, uint32_t tp)
{
	uint64_t sum = 0;
	uint32_t i, p;

	for (i = 0; i < groups->num; i++) {
		const struct model_group *g = &groups->group[i];

		for (p = 0; p < g->num_planes; p++)
			sum += (uint64_t)g->num_layers * g->planes[p].head_bytes *
			       (tp > g->heads ? tp : g->heads);
	}
	return sum;
}

static void
all_are_valid(void)
{
	static struct scene s;
	struct model_names names;
	struct kvf_err err;
	char spec[200];
	uint32_t i, r;
	size_t t;

	if (!CHECK_EQ(model_list(models_path(), &names, &err), 0))
		return;
	CHECK(names.num >= 10);
	for (i = 0; i < names.num; i++) {
		for (t = 0; t < NUM_TOPOLOGIES; t++) {
			int kv = strstr(topologies[t], "kv") != NULL;

			snprintf(spec, sizeof(spec), "model=%s,%s", names.name[i], topologies[t]);
			if (kv && !has_kv(names.name[i])) {
				CHECK_EQ(shape_parse(spec, "", &s.shape, &s.model, &err),
					KVF_E_INVAL);
				CHECK_STR_HAS(err.text, "needs K and V");
				continue;
			}
			if (scene_init(&s, spec) != 0)
				continue;
			for (r = 0; r < s.group.num; r++) {
				if (!CHECK_EQ(kvf_geometry_check(&s.group.ranks[r].geo,
						      s.group.ranks[r].pool_bytes, &err),
					    0))
					printf("%s: %s\n", spec, err.text);
			}
			/* Nothing is lost and nothing doubled but what is replicated on purpose. */
			CHECK_EQ(token_bytes(&s), (held(&s.model.tokens, s.shape.tp) +
							  held(&s.model.draft, s.shape.tp)) *
							  s.shape.dcp * s.shape.cp);
			scene_fini(&s);
		}
	}
}

/* Every topology can serve every other one of the same model, entry for entry. */
static void
all_go_together(void)
{
	static const char *const models[] = {
		"deepseek-v3.2", "llama-3-70b", "gpt-oss-120b-swa", "kimi-linear", "kimi-k3"};
	static struct scene s[NUM_TOPOLOGIES];
	struct kvf_link *link;
	struct kvf_err err;
	char spec[200];
	size_t i, t, a, b, n;

	for (i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		for (t = n = 0; t < NUM_TOPOLOGIES; t++) {
			/* Draft and state are what both sides have or have not. */
			snprintf(spec, sizeof(spec), "model=%s,layers=5,%s", models[i],
				topologies[t]);
			if (strstr(spec, "draft=1") == NULL)
				strcat(spec, ",draft=1");
			if (strstr(spec, "state=1") == NULL)
				strcat(spec, ",state=1");
			if (strstr(spec, "kv-") != NULL || strstr(spec, "-kv") != NULL) {
				if (!has_kv(models[i]))
					continue;
			}
			n += scene_init(&s[n], spec) == 0;
		}
		for (a = 0; a < n; a++) {
			for (b = 0; b < n; b++) {
				if (!CHECK_EQ(kvf_link_build(s[a].group.geos, s[a].group.num,
						      s[b].group.geos, s[b].group.num, &link, &err),
					    0))
					printf("%s %zu -> %zu: %s\n", models[i], a, b, err.text);
				kvf_link_free(link);
			}
		}
		for (a = 0; a < n; a++)
			scene_fini(&s[a]);
	}
}

static void
units(void)
{
	struct shape s;

	shape_default(&s);
	CHECK_EQ(shape_unit(&s), 64);
	s.interleave = 5;
	CHECK_EQ(shape_unit(&s), 64);
	s.dcp = 8;
	CHECK_EQ(shape_unit(&s), 64 * 5 * 8);
	s.interleave = 16;
	CHECK_EQ(shape_unit(&s), 64 * 8);
	s.interleave = 128;
	CHECK_EQ(shape_unit(&s), 128 * 8);
}

static const struct suite_case cases[] = {
	{"ranks are numbered", ranks_are_numbered},
	{"heads are sliced", heads_are_sliced},
	{"layouts are laid", layouts_are_laid},
	{"drafts and states", drafts_and_states},
	{"stages may lack kinds", stages_may_lack_kinds},
	{"state types of files", state_types_of_files},
	{"all presets and topologies are valid", all_are_valid},
	{"all topologies go together", all_go_together},
	{"units", units},
	{"positions, worked", positions_worked},
	{"positions, random", positions_random},
};

SUITE_MAIN("apps", cases)
