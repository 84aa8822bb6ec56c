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
	/* What is wrong with the rest comes first; nothing at all always fits. */
	if (kvf_plan_check(spec, err) != 0 ||
		kvf_plan_capacity(&spec->src, spec->src_page_tokens, spec->num_src_pages,
			spec->start, &capacity, err) != 0)
		return 1;
	spec->tokens = capacity;
	if (arg_u64("tokens", o->tokens, UINT64_MAX, KVF_E_CAPACITY, &spec->tokens, err) == 0)
		return 0;
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
		{"src-pages", "A,B,..", "page ids of this chunk at the source", &o.src_pages},
		{"dst-pages", "A,B,..", "page ids from the prefix on at the destination",
			&o.dst_pages},
		{"src-num-pages", "N", "pages in the source pool: ids are below", &o.src_num_pages},
		{"dst-num-pages", "N", "pages in the destination pool", &o.dst_num_pages},
		{"prefix", "T", "tokens that the destination already holds (0)", &o.prefix},
		{"page-offset", "O", "source pages sent before this chunk (0)", &o.page_offset},
		{"start", "S", "or: position of the chunk's first token", &o.start},
		{"tokens", "T", "positions in the chunk (what the pages hold)", &o.tokens},
		{"json", NULL, "print JSON", &o.json},
	};
	struct kvf_plan_spec spec = {.src = {1, 0, 1, 0}, .dst = {1, 0, 1, 0}};
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
		arg_u32("src-dcp", o.src_dcp, KVF_E_SHARDING, &spec.src.size, err) != 0 ||
		arg_u32("src-rank", o.src_rank, KVF_E_SHARDING, &spec.src.rank, err) != 0 ||
		arg_u32("src-interleave", o.src_interleave, KVF_E_SHARDING, &spec.src.interleave,
			err) != 0 ||
		arg_u32("dst-dcp", o.dst_dcp, KVF_E_SHARDING, &spec.dst.size, err) != 0 ||
		arg_u32("dst-rank", o.dst_rank, KVF_E_SHARDING, &spec.dst.rank, err) != 0 ||
		arg_u32("dst-interleave", o.dst_interleave, KVF_E_SHARDING, &spec.dst.interleave,
			err) != 0)
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
