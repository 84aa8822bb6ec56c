/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/suite.h"
#include "unit/demo/demo.h"

/* The published figures once more, so that the file alone cannot be wrong in a consistent way. */
static const struct {
	const char *name;
	uint64_t bytes_per_token;
	uint64_t state_bytes;
	uint32_t entries;
} published[] = {
	{"deepseek-r1", 61 * 1152, 0, 61},
	{"deepseek-r1-mtp", 61 * 1152, 0, 61},
	{"deepseek-r1-fp8", 61 * 656, 0, 61},
	{"deepseek-v3.2", 61 * (1152 + 8448 / 64), 0, 61 * 3},
	{"llama-3-70b", 80 * 4096, 0, 160},
	{"qwen3-32b", 64 * 2 * 8 * 128 * 2, 0, 128},
	{"qwen3-235b", 94 * 2 * 4 * 128 * 2, 0, 188},
	{"gpt-oss-120b", 36 * 2 * 8 * 64 * 2, 0, 72},
	{"gpt-oss-120b-swa", 18 * 2 * 8 * 64 * 2, 18ull * 2 * 8 * 64 * 2 * 128, 36},
	{"deepseek-v4", 43 * (576 + 8), 43ull * (576 + 8) * 128, 86},
	{"kimi-k3", 24 * 576 * 2, 0, 24},
	{"kimi-linear", 7 * 576 * 2, 20ull * 32 * (3 * 128 * 3 * 2 + 128 * 128 * 4), 7},
};

static uint32_t
count(const struct model_groups *groups)
{
	uint32_t i, n = 0;

	for (i = 0; i < groups->num; i++)
		n += groups->group[i].num_layers * groups->group[i].num_planes;
	return n;
}

void
models_add_up(void)
{
	struct model_names names;
	struct kvf_err err;
	struct model m;
	size_t i;

	if (!CHECK_EQ(model_list(models_path(), &names, &err), 0))
		return;
	CHECK_EQ(names.num, sizeof(published) / sizeof(published[0]));
	for (i = 0; i < sizeof(published) / sizeof(published[0]); i++) {
		if (!CHECK_EQ(model_load(models_path(), published[i].name, &m, &err), 0)) {
			printf("%s\n", err.text);
			continue;
		}
		CHECK_EQ(m.bytes_per_token, published[i].bytes_per_token);
		CHECK_EQ(m.state_bytes, published[i].state_bytes);
		CHECK_EQ(count(&m.tokens), published[i].entries);
	}
}

static int
load_text(const char *json, const char *name, struct model *m, struct kvf_err *err)
{
	char path[] = "/tmp/kvferry-models-XXXXXX";
	int fd = mkstemp(path), rc;

	if (!CHECK(fd >= 0))
		return 0;
	CHECK_EQ(write(fd, json, strlen(json)), (ssize_t)strlen(json));
	close(fd);
	setenv("KVFERRY_MODELS", path, 1);
	rc = model_load(models_path(), name, m, err);
	unsetenv("KVFERRY_MODELS");
	unlink(path);
	return rc;
}

#define MODEL(bytes, groups)                                                                       \
	"{\"models\": [{\"name\": \"x\", \"layers\": 2, \"bytes_per_token\": " bytes ", "          \
	"\"layout\": {\"prefill_tp\": 1, \"decode_tp\": 1, \"decode_dcp\": 1}, \"tokens\": "       \
	"[" groups "]}]}"
#define GROUP(heads, bytes, more)                                                                  \
	"{\"heads\": " heads ", \"planes\": [{\"kind\": \"k\", \"head_bytes\": " bytes             \
	", \"dtype\": \"bf16\"}]" more "}"

void
models_refuse_wrong_sums(void)
{
	struct kvf_err err;
	struct model m;

	CHECK_EQ(load_text(MODEL("32", GROUP("2", "8", "")), "x", &m, &err), 0);
	CHECK_EQ(m.tokens.group[0].num_layers, 2);
	CHECK_EQ(load_text(MODEL("33", GROUP("2", "8", "")), "x", &m, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "bytes_per_token=33");
	CHECK_STR_HAS(err.text, "add up to 32");
	CHECK_EQ(load_text(MODEL("32", GROUP("0", "8", "")), "x", &m, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "heads=0");
	CHECK_EQ(load_text(MODEL("8", GROUP("1", "8", ", \"layers\": [3, 3]")), "x", &m, &err),
		KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "layers[1]=3");
	CHECK_EQ(load_text("{\"models\": 5}", "x", &m, &err), KVF_E_INVAL);
	CHECK_EQ(load_text("{\"models\": ", "x", &m, &err), KVF_E_SYS);
}

void
models_name_what_there_is(void)
{
	struct kvf_err err;
	struct model m;

	CHECK_EQ(model_load(models_path(), "no-such-model", &m, &err), KVF_E_NOENT);
	CHECK_STR_HAS(err.text, "model=no-such-model");
	CHECK_STR_HAS(err.text, "deepseek-r1");
	CHECK_EQ(model_load("/nonexistent/models.json", "x", &m, &err), KVF_E_SYS);
}

void
models_cut(void)
{
	struct kvf_err err;
	struct model m;

	CHECK_EQ(model_load(models_path(), "kimi-linear", &m, &err), 0);
	CHECK_EQ(model_cut_layers(&m, 3, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "layer=3");
	CHECK_EQ(model_cut_layers(&m, 28, &err), KVF_E_INVAL);
	CHECK_EQ(model_cut_layers(&m, 5, &err), 0);
	CHECK_EQ(m.bytes_per_token, 1152);
	CHECK_EQ(m.state.group[0].num_layers, 4);
	model_add_draft(&m);
	CHECK_EQ(m.draft.num, 1);
	CHECK_EQ(m.draft.group[0].layers[0], 27);
}

void
options_refuse(void)
{
	static const struct {
		const char *args;
		const char *text;
	} bad[] = {
		{"--tokens 0", "tokens=0"},
		{"--tokens -1", "tokens=-1"},
		{"--tokens 99999999999", "tokens=99999999999"},
		{"--tokens 12x", "tokens=12x"},
		{"--rooms 5000", "[1, 4096]"},
		{"--page-size 0", "page-size=0"},
		{"--nonsense", "--nonsense"},
		{"--rooms", "needs a value"},
		{"stray", "stray"},
		{"--model llama-3-70b --prefill-tp 3", "prefill-tp=3"},
		{"--model llama-3-70b --decode-tp 12", "heads=8"},
		{"--decode-dcp 128 --decode-tp 2", "decode-tp=2"},
		{"--model nope", "model=nope"},
		{"--layers 62", "layers=62"},
		{"--layout nope", "layout=nope"},
		{"--layout kv-blocks", "prefill-layout=kv-blocks"},
		{"--decode-pp 60+2", "layers=62"},
		{"--decode-pp 62", "decode-pp=62"},
		{"--prefill-cp 2 --prefill-dcp 2", "prefill-cp=2 and prefill-dcp=2"},
	};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct demo_options o;
		struct model m;
		struct kvf_err err = {0};
		char text[128], *argv[16] = {(char[]){"pd-demo"}}, *save = NULL, *word;
		int argc = 1, rc;

		snprintf(text, sizeof(text), "%s", bad[i].args);
		for (word = strtok_r(text, " ", &save); word != NULL && argc < 15;
			word = strtok_r(NULL, " ", &save))
			argv[argc++] = word;
		demo_options_default(&o);
		rc = demo_options_parse(&o, argc, argv, &err);
		if (rc == 0)
			rc = demo_options_model(&o, &m, &err);
		CHECK(rc < 0);
		CHECK_EQ(err.code, rc);
		CHECK_STR_HAS(err.text, bad[i].text);
	}
}

/* What a worker parses is what the parent had. */
void
options_reach_workers(void)
{
	static struct demo_worker_args args;
	struct demo_options o;
	struct kvf_err err;
	struct scene s;
	int argc;

	if (scene_init(&s,
		    "--model qwen3-32b --tokens 777 --rooms 3 --page-size 16 --chunk 100 "
		    "--prefill-tp 4 "
		    "--decode-tp 2 --decode-dcp 3 --interleave 5 --layers 7 --draft --state "
		    "--prefill-cp 2 --prefill-pp 3+4 --prefill-page-size 32 --layout kv-blocks "
		    "--prefill-layout hnd --decode-pad 8 --decode-ring 77 "
		    "--no-hugepages --seed 18446744073709551615 --socket /x --timeout 9") != 0)
		return;
	CHECK_EQ(demo_options_worker(&s.o, KVF_DECODE, 5, 17, &args, &err), 0);
	for (argc = 0; args.argv[argc] != NULL; argc++)
		;
	demo_options_default(&o);
	CHECK_EQ(demo_options_parse(&o, argc, args.argv, &err), 0);
	CHECK_EQ(o.worker_role, KVF_DECODE);
	CHECK_EQ(o.worker_rank, 5);
	CHECK_EQ(o.worker_fd, 17);
	CHECK_EQ(strcmp(o.model, s.o.model), 0);
	CHECK_EQ(strcmp(o.socket, s.o.socket), 0);
	CHECK_EQ(o.tokens, 777);
	CHECK_EQ(o.rooms, 3);
	CHECK_EQ(o.chunk, 100);
	CHECK_EQ(o.prefill.tp, 4);
	CHECK_EQ(o.prefill.dcp, 1);
	CHECK_EQ(o.prefill.cp, 2);
	CHECK_EQ(o.prefill.pp, 2);
	CHECK_EQ(o.prefill.stage_layers[0], 3);
	CHECK_EQ(o.prefill.stage_layers[1], 4);
	CHECK_EQ(o.prefill.page_tokens, 32);
	CHECK_EQ(o.prefill.layout, SHAPE_HND);
	CHECK_EQ(o.decode.tp, 2);
	CHECK_EQ(o.decode.dcp, 3);
	CHECK_EQ(o.decode.interleave, 5);
	CHECK_EQ(o.decode.pp, 1);
	CHECK_EQ(o.decode.page_tokens, 16);
	CHECK_EQ(o.decode.layout, SHAPE_KV_BLOCKS);
	CHECK_EQ(o.decode.row_pad, 8);
	CHECK_EQ(o.decode.ring_rows, 77);
	CHECK_EQ(o.layers, 7);
	CHECK(o.draft && o.state);
	CHECK_EQ(o.memory, DEMO_MEMORY_SMALL);
	CHECK(o.seed == UINT64_MAX);
	CHECK_EQ(o.timeout_s, 9);
	scene_fini(&s);
}
