/* SPDX-License-Identifier: BSD-3-Clause */
/* kvferry link: who serves what, and what does not go together. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "common/suite.h"
#include "unit/plan/cli.h"

/* The answer as JSON, or NULL. */
static json_t *
link_json(const char *prefill, const char *decode)
{
	struct cli_result *res = malloc(sizeof(*res));
	char line[512];
	json_t *root;

	snprintf(line, sizeof(line), "link --json --prefill %s --decode %s", prefill, decode);
	cli_run(res, line);
	if (!CHECK_EQ(res->status, 0))
		printf("%s: %s", line, res->err);
	root = json_loads(res->out, JSON_REJECT_DUPLICATES, NULL);
	CHECK(json_is_object(root));
	free(res);
	return root;
}

static json_int_t
number(const json_t *obj, const char *key)
{
	return json_integer_value(json_object_get(obj, key));
}

static int
has_class(const json_t *serve, const char *cls)
{
	return strcmp(json_string_value(json_object_get(serve, "class")), cls) == 0;
}

/* What a prefill rank gives a decode rank of one class; NULL: nothing. */
static const json_t *
serve_of(const json_t *root, json_int_t prefill, json_int_t decode, const char *cls)
{
	const json_t *o;
	size_t i;

	json_array_foreach(json_object_get(root, "serves"), i, o)
	{
		if (number(o, "prefill") == prefill && number(o, "decode") == decode &&
			has_class(o, cls))
			return o;
	}
	return NULL;
}

static const json_t *
part_of(const json_t *serve, size_t i)
{
	return json_array_get(json_object_get(serve, "parts"), i);
}

static json_int_t
at(const json_t *obj, const char *key, size_t i)
{
	return json_integer_value(json_array_get(json_object_get(obj, key), i));
}

void
test_link_text(void)
{
	OUTPUT("link --prefill model=deepseek-r1,tp=2,aux=64 --decode "
	       "model=deepseek-r1,dcp=2,aux=64",
		"prefill/0 -> decode/0: tokens kind=latent layers=0-60/2 heads=0 positions=1/2 "
		"src=all dst=0%2 bytes=17856 per token\n"
		"prefill/0 -> decode/0: aux kind=aux bytes=64 per request\n"
		"prefill/0 -> decode/1: tokens kind=latent layers=0-60/2 heads=0 positions=1/2 "
		"src=all dst=1%2 bytes=17856 per token\n"
		"prefill/0 -> decode/1: aux kind=aux bytes=64 per request\n"
		"prefill/1 -> decode/0: tokens kind=latent layers=1-59/2 heads=0 positions=1/2 "
		"src=all dst=0%2 bytes=17280 per token\n"
		"prefill/1 -> decode/1: tokens kind=latent layers=1-59/2 heads=0 positions=1/2 "
		"src=all dst=1%2 bytes=17280 per token\n"
		"balance prefill/0: bytes=35712 per token, state=0 per row, aux=128\n"
		"balance prefill/1: bytes=34560 per token, state=0 per row, aux=0\n"
		"prefill ranks=2 decode ranks=2 bytes=70272 per token, busiest/mean=1.016\n");
	OUTPUT("link --prefill model=kimi-linear,layers=4,aux=0 --decode "
	       "model=kimi-linear,layers=4,aux=0,interleave=16,dcp=1",
		"prefill/0 -> decode/0: tokens kind=latent layers=3 heads=0 positions=1/1 src=all "
		"dst=all bytes=1152 per token\n"
		"prefill/0 -> decode/0: state tag=1 rule=one kind=conv layers=0-2 heads=0-31 "
		"bytes=73728 per request\n"
		"prefill/0 -> decode/0: state tag=1 rule=one kind=conv occurrence=1 layers=0-2 "
		"heads=0-31 bytes=73728 per request\n"
		"prefill/0 -> decode/0: state tag=1 rule=one kind=conv occurrence=2 layers=0-2 "
		"heads=0-31 bytes=73728 per request\n"
		"prefill/0 -> decode/0: state tag=1 rule=one kind=ssm layers=0-2 heads=0-31 "
		"bytes=6291456 per request\n"
		"balance prefill/0: bytes=1152 per token, state=6512640 per row, aux=0\n"
		"prefill ranks=1 decode ranks=1 bytes=1152 per token, busiest/mean=1.000\n");
}

void
test_link_dcp(void)
{
	json_t *root = link_json("model=deepseek-r1,dcp=8", "model=deepseek-r1,dcp=4");
	json_int_t s, d;
	const json_t *o;

	CHECK_EQ(number(root, "prefill_ranks"), 8);
	CHECK_EQ(number(root, "decode_ranks"), 4);
	/* Ranks exchange iff they are equal modulo gcd(8, 4); the positions are a class mod 8. */
	for (s = 0; s < 8; s++) {
		for (d = 0; d < 4; d++) {
			o = serve_of(root, s, d, "tokens");
			if (!CHECK((o != NULL) == (s % 4 == d)) || o == NULL)
				continue;
			CHECK_EQ(at(o, "positions", 0), 1);
			CHECK_EQ(at(o, "positions", 1), 8);
			CHECK_EQ(number(o, "row_bytes"), 70272);
			CHECK_EQ(number(json_object_get(o, "src"), "rank"), s);
			CHECK_EQ(number(json_object_get(o, "dst"), "rank"), d);
			CHECK_EQ(json_array_size(json_object_get(part_of(o, 0), "layers")), 61);
		}
	}
	json_decref(root);
}

void
test_link_heads(void)
{
	json_t *root = link_json("model=llama-3-70b,tp=4", "model=llama-3-70b,tp=2,layout=hnd");
	json_int_t s, d;
	const json_t *o;

	for (s = 0; s < 4; s++) {
		for (d = 0; d < 2; d++) {
			o = serve_of(root, s, d, "tokens");
			if (!CHECK((o != NULL) == (s / 2 == d)) || o == NULL)
				continue;
			/* K, then V; heads that lie apart at decode are told as one range. */
			CHECK_EQ(json_array_size(json_object_get(o, "parts")), 2);
			CHECK_EQ(at(part_of(o, 0), "heads", 0), 2 * s);
			CHECK_EQ(at(part_of(o, 1), "heads", 1), 2 * s + 2);
			CHECK_EQ(number(part_of(o, 1), "row_bytes"), 80 * 2 * 256);
			CHECK_EQ(number(o, "lanes"), 80 * 2 * 2);
		}
	}
	json_decref(root);
	/* H = 4, TP 8 -> 1: each head from one of its two holders, both holders at work. */
	root = link_json("model=qwen3-235b,tp=8", "model=qwen3-235b");
	for (s = 0; s < 8; s++) {
		o = serve_of(root, s, 0, "tokens");
		if (!CHECK(o != NULL))
			continue;
		CHECK_EQ(at(part_of(o, 0), "heads", 0), s / 2);
		CHECK_EQ(at(part_of(o, 0), "heads", 1), s / 2 + 1);
		CHECK_EQ(number(o, "row_bytes"), 192512 / 8);
	}
	json_decref(root);
}

void
test_link_stages(void)
{
	json_t *root = link_json("model=deepseek-r1,layers=15,pp=7+8,draft=1",
		"model=deepseek-r1,layers=15,dcp=2,draft=1");
	const json_t *o;
	json_int_t d;

	/* 7 + 8 layers and the draft: 16 buffers, each from the stage that has it. */
	for (d = 0; d < 2; d++) {
		o = part_of(serve_of(root, 0, d, "tokens"), 0);
		CHECK_EQ(json_array_size(json_object_get(o, "layers")), 7);
		CHECK_EQ(at(o, "layers", 6), 6);
		o = part_of(serve_of(root, 1, d, "tokens"), 0);
		CHECK_EQ(json_array_size(json_object_get(o, "layers")), 8);
		CHECK_EQ(at(o, "layers", 0), 7);
	}
	json_decref(root);
	/* Drafts are whole on every DCP rank. */
	OUTPUT("link --prefill model=kimi-k3,layers=4,aux=0 --decode "
	       "model=kimi-k3,layers=4,dcp=2,aux=0",
		"prefill/0 -> decode/0: tokens kind=latent layers=3 heads=0 positions=1/2 src=all "
		"dst=0%2 bytes=576 per token\n"
		"prefill/0 -> decode/0: tokens kind=k layers=93-97 heads=0-7 positions=1/1 src=all "
		"dst=all bytes=10240 per token\n"
		"prefill/0 -> decode/0: tokens kind=v layers=93-97 heads=0-7 positions=1/1 src=all "
		"dst=all bytes=10240 per token\n"
		"prefill/0 -> decode/1: tokens kind=latent layers=3 heads=0 positions=1/2 src=all "
		"dst=1%2 bytes=576 per token\n"
		"prefill/0 -> decode/1: tokens kind=k layers=93-97 heads=0-7 positions=1/1 src=all "
		"dst=all bytes=10240 per token\n"
		"prefill/0 -> decode/1: tokens kind=v layers=93-97 heads=0-7 positions=1/1 src=all "
		"dst=all bytes=10240 per token\n"
		"balance prefill/0: bytes=42112 per token, state=0 per row, aux=0\n"
		"prefill ranks=1 decode ranks=2 bytes=42112 per token, busiest/mean=1.000\n");
}

void
test_link_bands(void)
{
	OUTPUT("link --prefill model=deepseek-r1,layers=1,cp=2,aux=0 --decode "
	       "model=deepseek-r1,layers=1,dcp=2,interleave=16,aux=0",
		"prefill/0 -> decode/0: tokens kind=latent layers=0 heads=0 positions=1/4 "
		"src=band:0/2 dst=0%2x16 bytes=288 per token\n"
		"prefill/0 -> decode/1: tokens kind=latent layers=0 heads=0 positions=1/4 "
		"src=band:0/2 dst=1%2x16 bytes=288 per token\n"
		"prefill/1 -> decode/0: tokens kind=latent layers=0 heads=0 positions=1/4 "
		"src=band:1/2 dst=0%2x16 bytes=288 per token\n"
		"prefill/1 -> decode/1: tokens kind=latent layers=0 heads=0 positions=1/4 "
		"src=band:1/2 dst=1%2x16 bytes=288 per token\n"
		"balance prefill/0: bytes=576 per token, state=0 per row, aux=0\n"
		"balance prefill/1: bytes=576 per token, state=0 per row, aux=0\n"
		"prefill ranks=2 decode ranks=2 bytes=1152 per token, busiest/mean=1.000\n");
}

/* Whatever the topologies, each decode rank is served exactly what it holds. */
void
test_link_sums(void)
{
	static const struct {
		const char *prefill, *decode;
		double per_token; /* altogether */
		json_int_t state; /* bytes of a row of each list of one decode rank */
	} cases[] = {
		{"model=deepseek-r1,tp=4", "model=deepseek-r1,tp=2,dcp=8", 2 * 70272, 0},
		{"model=deepseek-r1,dcp=3,interleave=5,pp=2",
			"model=deepseek-r1,dcp=4,interleave=7,pp=3", 70272, 0},
		{"model=deepseek-r1,cp=3", "model=deepseek-r1,cp=4,page=16", 70272, 0},
		{"model=deepseek-v3.2,cp=5,pp=30+31", "model=deepseek-v3.2,dcp=6", 78324, 0},
		{"model=deepseek-v4,tp=2", "model=deepseek-v4,dcp=4,ring=64", 25112, 4 * 25112},
		{"model=llama-3-70b,tp=16,layout=hnd", "model=llama-3-70b,tp=4,layout=kv-blocks",
			327680, 0},
		{"model=llama-3-70b,tp=2,layout=blocks-kv,pad=16",
			"model=llama-3-70b,tp=16,dcp=2,page=16", 2 * 327680, 0},
		{"model=gpt-oss-120b,tp=4,pp=5", "model=gpt-oss-120b,tp=2,pp=4", 73728, 0},
		{"model=gpt-oss-120b-swa,tp=4,page=16", "model=gpt-oss-120b-swa,tp=2", 36864,
			36864},
		{"model=kimi-linear,tp=2", "model=kimi-linear,tp=4,dcp=2", 4 * 8064, 2 * 43417600},
		{"model=kimi-k3,dcp=2", "model=kimi-k3,dcp=8", 27648 + 8 * 20480, 0},
		{"model=qwen3-32b,tp=8,cp=2", "model=qwen3-32b,tp=4", 262144, 0},
	};
	size_t i, k;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *root = link_json(cases[i].prefill, cases[i].decode);
		double tokens = 0, balanced = 0;
		json_int_t state = 0;
		const json_t *o;

		json_array_foreach(json_object_get(root, "serves"), k, o)
		{
			if (has_class(o, "tokens"))
				tokens += json_real_value(json_object_get(o, "bytes_per_token"));
			if (has_class(o, "state"))
				state += number(o, "row_bytes");
		}
		json_array_foreach(json_object_get(root, "balance"), k, o) balanced +=
			json_real_value(json_object_get(o, "bytes_per_token"));
		if (!CHECK(fabs(tokens - cases[i].per_token) < 1e-3) ||
			!CHECK(fabs(balanced - tokens) < 1e-3) || !CHECK_EQ(state, cases[i].state))
			printf("%s -> %s: %f\n", cases[i].prefill, cases[i].decode, tokens);
		json_decref(root);
	}
}

/* A file with this text; its name stays valid until the next call. */
static const char *
file_of(const char *text)
{
	static char path[64];
	int fd;

	snprintf(path, sizeof(path), "/tmp/kvferry-link-XXXXXX");
	fd = mkstemp(path);
	if (!CHECK(fd >= 0))
		return path;
	CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	return path;
}

#define RANK(sharding, more)                                                                       \
	"{\"components\": [{\"class\": \"tokens\", \"page_tokens\": 4, \"num_pages\": 10, "        \
	"\"sharding\": " sharding ", \"entries\": [{\"page_stride\": 32, \"row_stride\": 8, "      \
	"\"row_bytes\": 8, \"layer\": 5, \"kind\": \"latent\"" more "}]}]}"
#define ALL "{\"size\": 1}"

void
test_link_files(void)
{
	static const struct {
		const char *text, *refusal;
	} bad[] = {
		{"{\"ranks\": []}", "INVAL: file "},
		{"{\"ranks\": [3]}", "INVAL: file "},
		{"{\"ranks\": [{\"components\": []}]}", "INVAL: file "},
		{"{\"ranks\": ", "SYS: file "},
	};
	struct cli_result *res = malloc(sizeof(*res));
	char line[256], copy[64];
	size_t i;

	snprintf(copy, sizeof(copy), "%s",
		file_of("{\"ranks\": [" RANK("{\"size\": 2, \"rank\": 0}", "") ", " RANK(
			"{\"size\": 2, \"rank\": 1}", "") "]}"));
	snprintf(line, sizeof(line), "link --prefill @%s --decode @%s", copy,
		file_of("{\"ranks\": [" RANK(ALL, "") "]}"));
	OUTPUT(line,
		"prefill/0 -> decode/0: tokens kind=latent layers=5 heads=0 positions=1/2 src=0%2 "
		"dst=all bytes=4 per token\n"
		"prefill/1 -> decode/0: tokens kind=latent layers=5 heads=0 positions=1/2 src=1%2 "
		"dst=all bytes=4 per token\n"
		"balance prefill/0: bytes=4 per token, state=0 per row, aux=0\n"
		"balance prefill/1: bytes=4 per token, state=0 per row, aux=0\n"
		"prefill ranks=2 decode ranks=1 bytes=8 per token, busiest/mean=1.000\n");
	unlink(strrchr(line, '@') + 1);
	unlink(copy);

	/* Prefill ranks that do not agree on how positions are dealt. */
	snprintf(copy, sizeof(copy), "%s",
		file_of("{\"ranks\": [" RANK("{\"size\": 2, \"rank\": 0}", "") ", " RANK(
			"{\"size\": 2, \"rank\": 1, \"interleave\": 4}", "") "]}"));
	snprintf(line, sizeof(line), "link --prefill @%s --decode @%s", copy, copy);
	REFUSED(line, "SHARDING: prefill ranks shard differently: layer=5 kind=1: rank=0 has "
		      "size=2 interleave=1 mode=0, rank=1 has size=2 interleave=4 mode=0");
	unlink(copy);

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(copy, sizeof(copy), "%s", file_of(bad[i].text));
		snprintf(line, sizeof(line), "link --prefill @%s --decode model=deepseek-r1", copy);
		REFUSED(line, bad[i].refusal);
		unlink(copy);
	}
	/* Each names where. */
	snprintf(copy, sizeof(copy), "%s",
		file_of("{\"ranks\": [" RANK(ALL, "") ", " RANK(ALL, ", \"head_firts\": 1") "]}"));
	snprintf(line, sizeof(line), "link --prefill @%s --decode model=deepseek-r1", copy);
	cli_run(res, line);
	CHECK_EQ(res->status, 1);
	CHECK_STR_HAS(res->err, "rank=1 component=0 entry=0: head_firts is not a field");
	unlink(copy);
	snprintf(copy, sizeof(copy), "%s",
		file_of("{\"ranks\": [" RANK(ALL, ", \"head_first\": 1") "]}"));
	snprintf(line, sizeof(line), "link --prefill @%s --decode model=deepseek-r1", copy);
	cli_run(res, line);
	CHECK_STR_HAS(res->err, "GEOMETRY: file ");
	CHECK_STR_HAS(
		res->err, "rank=0: bad geometry: component=0 entry=0 head_first+head_count=2");
	unlink(copy);
	snprintf(copy, sizeof(copy), "%s",
		file_of("{\"ranks\": [" RANK("{\"size\": 2, \"mode\": \"bend\"}", "") "]}"));
	snprintf(line, sizeof(line), "link --prefill @%s --decode model=deepseek-r1", copy);
	cli_run(res, line);
	CHECK_STR_HAS(res->err, "mode=bend is not known");
	unlink(copy);
	REFUSED("link --prefill @/nonexistent.json --decode model=deepseek-r1",
		"SYS: file /nonexistent.json");
	free(res);
}

void
test_link_refusals(void)
{
#define R1 "model=deepseek-r1"
#define TO " --decode model=deepseek-r1"
	/* Two groups that do not go together. */
	REFUSED("link --prefill model=kimi-k3,draft=0 --decode model=kimi-k3,dcp=2",
		"COVERAGE: no prefill rank holds layer=93 kind=2 occurrence=0 heads=[0,8)");
	REFUSED("link --prefill " R1 ",layers=60" TO, "COVERAGE: no prefill rank holds layer=60");
	REFUSED("link --prefill model=deepseek-r1-fp8" TO,
		"MISMATCH: dtype differs: entry=0 component=0 of decode rank=0 and prefill rank=0, "
		"layer=0 kind=1: prefill=5 decode=1");
	REFUSED("link --prefill model=gpt-oss-120b,state=0 --decode model=llama-3-70b,state=0",
		"MISMATCH: row bytes per head differ: ");
	REFUSED("link --prefill " R1 ",state=1,layers=4 --decode "
		"model=kimi-linear,layers=4",
		"COVERAGE: no prefill rank holds layer=");
	REFUSED("link --prefill model=qwen3-32b --decode model=llama-3-70b",
		"COVERAGE: no prefill rank holds layer=64");
	REFUSED("link --prefill model=qwen3-235b --decode model=qwen3-32b",
		"MISMATCH: head_total differs: ");
	/* Groups that cannot be. */
	REFUSED("link" TO, "INVAL: --prefill is missing");
	REFUSED("link --prefill " R1, "INVAL: --decode is missing");
	REFUSED("link --prefill tp=2" TO, "INVAL: prefill-model is missing");
	REFUSED("link --prefill model=nope" TO, "NOENT: model=nope is not known; there is: deep");
	REFUSED("link --prefill " R1 ",tpp=2" TO, "INVAL: prefill-tpp is not known; there is: ");
	REFUSED("link --prefill " R1 ",tp" TO, "INVAL: prefill-tp must be KEY=VALUE");
	REFUSED("link --prefill " R1 ",tp=2,tp=2" TO, "INVAL: prefill-tp is given twice");
	REFUSED("link --prefill " R1 ",tp=-2" TO, "INVAL: prefill-tp=-2 must be a whole number");
	REFUSED("link --prefill " R1 ",tp=0" TO, "INVAL: prefill-tp=0 must be in [1, 256]");
	REFUSED("link --prefill " R1 ",tp=32,dcp=16" TO,
		"INVAL: prefill-pp=1 times cp=1 times tp=32 times dcp=16 is more than 256 ranks");
	REFUSED("link --prefill " R1 ",cp=2,dcp=2" TO,
		"INVAL: prefill-cp=2 and prefill-dcp=2 both deal the positions");
	REFUSED("link --prefill " R1 ",pp=7+8" TO,
		"INVAL: prefill-pp: the stages have layers=15, model=deepseek-r1 has layers=61");
	REFUSED("link --prefill " R1 ",pp=61+0" TO,
		"INVAL: prefill-pp=61+0 has a stage of layers=0");
	REFUSED("link --prefill " R1 ",pp=62" TO, "INVAL: prefill-pp=62 stages exceed layers=61");
	REFUSED("link --prefill " R1 ",pp=7+x" TO, "INVAL: prefill-pp=x must be a whole number");
	REFUSED("link --prefill model=llama-3-70b,tp=3" TO,
		"INVAL: prefill-tp=3 must divide heads=8 of the KV cache or be a multiple of it");
	REFUSED("link --prefill " R1 " --decode model=kimi-k3,tp=3",
		"INVAL: decode-tp=3 must divide heads=8 of the draft");
	REFUSED("link --prefill " R1 ",layout=kv-blocks" TO,
		"INVAL: prefill-layout=kv-blocks needs K and V of the same layers and heads");
	REFUSED("link --prefill " R1 ",layout=hdn" TO, "INVAL: prefill-layout=hdn must be one of");
	REFUSED("link --prefill " R1 ",page=0" TO, "INVAL: prefill-page=0 must be in [1, 65536]");
	REFUSED("link --prefill " R1 ",layers=62" TO, "INVAL: layers=62 must be in [1, 61]");
	REFUSED("link --prefill " R1 ",draft=2" TO,
		"INVAL: prefill-draft=2 must be a whole number");
#undef R1
#undef TO
}
