/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include <kvferry/plan.h>

#include "args.h"

/* What the options say, as text. */
struct plan_opts {
	const char *page_size, *src_page_size, *dst_page_size;
	const char *src_dcp, *src_rank, *src_interleave;
	const char *dst_dcp, *dst_rank, *dst_interleave;
	const char *src_pages, *dst_pages;
	const char *src_num_pages, *dst_num_pages;
	const char *prefix, *page_offset, *start, *tokens;
	const char *src_band, *dst_band, *total;
	const char *json;
};

static int
page_ids(const char *name, const char *text, uint32_t **ids, uint64_t *n, struct kvf_err *err)
{
	uint64_t *list, i;

	*ids = NULL;
	if (text == NULL)
		return cli_fail(err, KVF_E_INVAL, "--%s is missing (\"\" is the empty list)", name);
	if (arg_list(name, text, UINT32_MAX, &list, n, err) != 0)
		return 1;
	if (*n == 0)
		return 0;
	*ids = calloc(*n, sizeof(**ids));
	if (*ids == NULL) {
		free(list);
		return cli_fail(err, KVF_E_NOMEM, "no memory for n=%" PRIu64 " page ids", *n);
	}
	for (i = 0; i < *n; i++)
		(*ids)[i] = (uint32_t)list[i];
	free(list);
	return 0;
}

static int
page_size(const char *side, const char *own, const char *both, uint32_t *size, struct kvf_err *err)
{
	char name[32];

	if (own == NULL && both == NULL)
		return cli_fail(err, KVF_E_INVAL, "--page-size or --%s is missing", side);
	snprintf(name, sizeof(name), "%s", own != NULL ? side : "page-size");
	return arg_u32(name, own != NULL ? own : both, KVF_E_INVAL, size, err);
}

static int
read_sharding(const char *side, const char *size, const char *rank, const char *interleave,
	const char *band, uint32_t page, struct kvf_sharding *sh, struct kvf_err *err)
{
	char name[3][24];

	snprintf(name[0], sizeof(name[0]), "%s-dcp", side);
	snprintf(name[1], sizeof(name[1]), "%s-rank", side);
	snprintf(name[2], sizeof(name[2]), "%s-interleave", side);
	*sh = (struct kvf_sharding){1, 0, 1, KVF_SHARD_CYCLIC};
	if (band != NULL) {
		sh->mode = KVF_SHARD_BAND;
		sh->interleave = page;
	}
	if (arg_u32(name[0], size, KVF_E_SHARDING, &sh->size, err) != 0 ||
		arg_u32(name[1], rank, KVF_E_SHARDING, &sh->rank, err) != 0 ||
		arg_u32(name[2], interleave, KVF_E_SHARDING, &sh->interleave, err) != 0)
		return 1;
	return 0;
}

static int
past_total(const struct kvf_plan_spec *spec, struct kvf_err *err)
{
	return cli_fail(err, KVF_E_INVAL,
		"start=%" PRIu64 " + tokens=%" PRIu64 " must not be past total=%" PRIu64,
		spec->start, spec->tokens, spec->total);
}

/* Where a band lies depends on the length of the prompt, so a chunk of it is part of a known whole.
 */
static int
chunk_of_bands(const struct plan_opts *o, struct kvf_plan_spec *spec, struct kvf_err *err)
{
	if (o->page_offset != NULL && o->src_band != NULL)
		return cli_fail(err, KVF_E_INVAL,
			"--page-offset=%s says nothing about a band: give --start", o->page_offset);
	if (o->total == NULL && o->tokens == NULL)
		return cli_fail(
			err, KVF_E_INVAL, "a band needs --total (or --tokens of the only chunk)");
	if (arg_u64("total", o->total, UINT64_MAX, KVF_E_INVAL, &spec->total, err) != 0 ||
		arg_u64("tokens", o->tokens, UINT64_MAX, KVF_E_CAPACITY, &spec->tokens, err) != 0)
		return 1;
	if (o->total != NULL && spec->start > spec->total)
		return past_total(spec, err);
	if (o->tokens == NULL)
		spec->tokens = spec->total - spec->start;
	if (o->total == NULL && __builtin_add_overflow(spec->start, spec->tokens, &spec->total))
		return cli_fail(err, KVF_E_OVERFLOW,
			"start=%" PRIu64 " + tokens=%" PRIu64 " pass limit=%" PRIu64, spec->start,
			spec->tokens, UINT64_MAX);
	return 0;
}

/* Where the chunk starts and how many positions it covers. */
static int
chunk(const struct plan_opts *o, struct kvf_plan_spec *spec, struct kvf_err *err)
{
	uint64_t offset = 0, capacity;

	if (o->start != NULL && o->page_offset != NULL)
		return cli_fail(err, KVF_E_INVAL,
			"--start=%s and --page-offset=%s say the same thing: give one of them",
			o->start, o->page_offset);
	if (arg_u64("prefix", o->prefix, UINT64_MAX, KVF_E_INVAL, &spec->prefix, err) != 0 ||
		arg_u64("page-offset", o->page_offset, UINT64_MAX, KVF_E_INVAL, &offset, err) !=
			0 ||
		arg_u64("start", o->start, UINT64_MAX, KVF_E_INVAL, &spec->start, err) != 0)
		return 1;
	if (o->start == NULL) {
		uint64_t virt = (uint64_t)spec->src_page_tokens * spec->src.size;

		if (__builtin_mul_overflow(offset, virt, &spec->start) ||
			__builtin_add_overflow(spec->start, spec->prefix, &spec->start))
			return cli_fail(err, KVF_E_OVERFLOW,
				"prefix=%" PRIu64 " + page-offset=%" PRIu64 " pages of %" PRIu64
				" tokens pass limit=%" PRIu64,
				spec->prefix, offset, virt, UINT64_MAX);
	}
	if (o->src_band != NULL || o->dst_band != NULL)
		return chunk_of_bands(o, spec, err);
	spec->total = UINT64_MAX;
	if (arg_u64("total", o->total, UINT64_MAX, KVF_E_INVAL, &spec->total, err) != 0)
		return 1;
	if (spec->start > spec->total)
		return past_total(spec, err);
	/* What is wrong with the rest comes first; nothing at all always fits. */
	if (kvf_plan_check(spec, err) != 0 ||
		kvf_plan_capacity(&spec->src, spec->src_page_tokens, spec->num_src_pages,
			spec->start, &capacity, err) != 0)
		return 1;
	spec->tokens = spec->total - spec->start < capacity ? spec->total - spec->start : capacity;
	if (arg_u64("tokens", o->tokens, UINT64_MAX, KVF_E_CAPACITY, &spec->tokens, err) == 0)
		return spec->tokens > spec->total - spec->start && o->total != NULL
			       ? past_total(spec, err)
			       : 0;
	if (err->code == KVF_E_CAPACITY)
		return cli_fail(err, KVF_E_CAPACITY,
			"num_kv_tokens must fit in the provided source pages, got tokens=%.64s, "
			"capacity=%" PRIu64,
			o->tokens, capacity);
	return 1;
}

static int
print_json(const struct kvf_plan *plan, struct kvf_err *err)
{
	json_t *root = json_object(), *runs = json_array();
	size_t i;
	int bad;

	bad = root == NULL || runs == NULL;
	for (i = 0; !bad && i < plan->num_runs; i++) {
		const struct kvf_run *r = &plan->runs[i];

		bad = json_array_append_new(
			      runs, json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "src_row",
					    (json_int_t)r->src_row, "dst_row",
					    (json_int_t)r->dst_row, "blocks", (json_int_t)r->blocks,
					    "block_rows", (json_int_t)r->block_rows, "src_step",
					    (json_int_t)r->src_step, "dst_step",
					    (json_int_t)r->dst_step)) != 0;
	}
	if (!bad) {
		bad = json_object_set(root, "runs", runs) != 0 ||
		      json_object_set_new(root, "rows", json_integer((json_int_t)plan->rows)) != 0;
	}
	if (!bad)
		bad = json_dumpf(root, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER) != 0 ||
		      putchar('\n') == EOF;
	json_decref(runs);
	json_decref(root);
	return bad ? cli_fail(err, KVF_E_NOMEM, "cannot write the plan of runs=%zu as JSON",
			     plan->num_runs)
		   : 0;
}

static void
print_table(const struct kvf_plan *plan)
{
	size_t i;

	if (plan->num_runs > 0)
		printf("%12s %12s %10s %10s %10s %10s\n", "src_row", "dst_row", "blocks",
			"block_rows", "src_step", "dst_step");
	for (i = 0; i < plan->num_runs; i++) {
		const struct kvf_run *r = &plan->runs[i];

		printf("%12" PRIu64 " %12" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64
		       " %10" PRIu64 "\n",
			r->src_row, r->dst_row, r->blocks, r->block_rows, r->src_step, r->dst_step);
	}
	printf("runs=%zu rows=%" PRIu64 "\n", plan->num_runs, plan->rows);
}

static int
plan_with(const struct plan_opts *o, struct kvf_plan_spec *spec, struct kvf_err *err)
{
	uint32_t src_limit = 0, dst_limit = 0;
	struct kvf_plan *plan;
	int rc;

	/* A limit of 0 would mean "any id" further down. */
	if (arg_u32("src-num-pages", o->src_num_pages, KVF_E_INVAL, &src_limit, err) != 0 ||
		arg_u32("dst-num-pages", o->dst_num_pages, KVF_E_INVAL, &dst_limit, err) != 0)
		return 1;
	if (o->src_num_pages != NULL && src_limit == 0)
		return cli_fail(err, KVF_E_INVAL, "src-num-pages=0 must be at least limit=1");
	if (o->dst_num_pages != NULL && dst_limit == 0)
		return cli_fail(err, KVF_E_INVAL, "dst-num-pages=0 must be at least limit=1");
	if (chunk(o, spec, err) != 0)
		return 1;
	if (kvf_plan_create(spec, src_limit, dst_limit, &plan, err) != 0)
		return 1;
	rc = 0;
	if (o->json != NULL)
		rc = print_json(plan, err);
	else
		print_table(plan);
	kvf_plan_free(plan);
	return rc;
}

int
cmd_plan(int argc, char **argv, struct kvf_err *err)
{
	struct plan_opts o = {0};
	const struct opt opts[] = {
		{"page-size", "P", "tokens in a page, on both sides", &o.page_size},
		{"src-page-size", "P", "... on the source side", &o.src_page_size},
		{"dst-page-size", "P", "... on the destination side", &o.dst_page_size},
		{"src-dcp", "N", "ranks that share the positions at the source (1)", &o.src_dcp},
		{"src-rank", "R", "the source rank (0)", &o.src_rank},
		{"src-interleave", "I", "adjacent positions on one source rank (1)",
			&o.src_interleave},
		{"dst-dcp", "N", "ranks that share them at the destination (1)", &o.dst_dcp},
		{"dst-rank", "R", "the destination rank (0)", &o.dst_rank},
		{"dst-interleave", "I", "adjacent positions on one of those (1)",
			&o.dst_interleave},
		{"src-band", NULL,
			"the source ranks hold bands of pages of --src-interleave tokens (a page)",
			&o.src_band},
		{"dst-band", NULL, "the destination ranks do", &o.dst_band},
		{"total", "T", "length of the prompt: bands depend on it (start + tokens)",
			&o.total},
		{"src-pages", "A,B,..", "page ids of this chunk at the source", &o.src_pages},
		{"dst-pages", "A,B,..", "page ids from the prefix on at the destination",
			&o.dst_pages},
		{"src-num-pages", "N", "pages in the source pool: ids are below", &o.src_num_pages},
		{"dst-num-pages", "N", "pages in the destination pool", &o.dst_num_pages},
		{"prefix", "T", "tokens that the destination already holds (0)", &o.prefix},
		{"page-offset", "O", "source pages sent before this chunk (0)", &o.page_offset},
		{"start", "S", "or: position of the chunk's first token", &o.start},
		{"tokens", "T", "positions in the chunk (what the pages hold; bands: up to total)",
			&o.tokens},
		{"json", NULL, "print JSON", &o.json},
	};
	struct kvf_plan_spec spec = {0};
	uint32_t *src = NULL, *dst = NULL;
	int rc;

	rc = opts_parse(argc, argv,
		"Prints the row plan of one chunk from one source rank to one destination rank, "
		"in\n"
		"pool rows (page id * page size + slot).",
		opts, sizeof(opts) / sizeof(opts[0]), err);
	if (rc != 0)
		return rc < 0 ? 0 : rc;
	if (page_size("src-page-size", o.src_page_size, o.page_size, &spec.src_page_tokens, err) !=
			0 ||
		page_size("dst-page-size", o.dst_page_size, o.page_size, &spec.dst_page_tokens,
			err) != 0 ||
		read_sharding("src", o.src_dcp, o.src_rank, o.src_interleave, o.src_band,
			spec.src_page_tokens, &spec.src, err) != 0 ||
		read_sharding("dst", o.dst_dcp, o.dst_rank, o.dst_interleave, o.dst_band,
			spec.dst_page_tokens, &spec.dst, err) != 0)
		return 1;
	rc = page_ids("src-pages", o.src_pages, &src, &spec.num_src_pages, err);
	if (rc == 0)
		rc = page_ids("dst-pages", o.dst_pages, &dst, &spec.num_dst_pages, err);
	if (rc == 0) {
		spec.src_pages = src;
		spec.dst_pages = dst;
		rc = plan_with(&o, &spec, err);
	}
	free(src);
	free(dst);
	return rc;
}
