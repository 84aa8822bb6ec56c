/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include <kvferry/plan.h>

#include "args.h"

static int
print_json(const struct kvf_group *groups, uint64_t n, struct kvf_err *err)
{
	json_t *root = json_array();
	int bad = root == NULL;
	uint64_t i;

	for (i = 0; !bad && i < n; i++)
		bad = json_array_append_new(
			      root, json_pack("[I,I,I]", (json_int_t)groups[i].src_start,
					    (json_int_t)groups[i].dst_start,
					    (json_int_t)groups[i].count)) != 0;
	if (!bad)
		bad = json_dumpf(root, stdout, JSON_COMPACT) != 0 || putchar('\n') == EOF;
	json_decref(root);
	return bad ? cli_fail(err, KVF_E_NOMEM, "cannot write n=%" PRIu64 " groups as JSON", n) : 0;
}

/* `src` and `dst` were parsed as numbers below 2^63. */
static int
group(const uint64_t *src, uint64_t num_src, const uint64_t *dst, uint64_t num_dst, bool json,
	struct kvf_err *err)
{
	uint64_t max = num_src < num_dst ? num_src : num_dst, n, i;
	struct kvf_group *groups = calloc(max + 1, sizeof(*groups));
	int rc;

	if (groups == NULL)
		return cli_fail(err, KVF_E_NOMEM, "no memory for max=%" PRIu64 " groups", max);
	rc = kvf_group_contiguous(
		(const int64_t *)src, num_src, (const int64_t *)dst, num_dst, groups, max, &n, err);
	if (rc == 0 && json) {
		rc = print_json(groups, n, err);
	} else if (rc == 0) {
		for (i = 0; i < n; i++)
			printf("%" PRId64 " -> %" PRId64 " count=%" PRIu64 "\n",
				groups[i].src_start, groups[i].dst_start, groups[i].count);
		printf("groups=%" PRIu64 "\n", n);
	}
	free(groups);
	return rc == 0 ? 0 : 1;
}

int
cmd_group(int argc, char **argv, struct kvf_err *err)
{
	const char *src_text = NULL, *dst_text = NULL, *json = NULL;
	const struct opt opts[] = {
		{"src", "A,B,..", "indices at the source", &src_text},
		{"dst", "A,B,..", "indices at the destination, as many", &dst_text},
		{"json", NULL, "print JSON: [[src_start,dst_start,count],...]", &json},
	};
	uint64_t *src = NULL, *dst = NULL, num_src, num_dst;
	int rc;

	rc = opts_parse(argc, argv,
		"Prints the stretches of two index lists that are contiguous on both sides.", opts,
		sizeof(opts) / sizeof(opts[0]), err);
	if (rc != 0)
		return rc < 0 ? 0 : rc;
	if (src_text == NULL || dst_text == NULL)
		return cli_fail(err, KVF_E_INVAL, "--%s is missing (\"\" is the empty list)",
			src_text == NULL ? "src" : "dst");
	rc = arg_list("src", src_text, INT64_MAX, &src, &num_src, err);
	if (rc == 0)
		rc = arg_list("dst", dst_text, INT64_MAX, &dst, &num_dst, err);
	if (rc == 0)
		rc = group(src, num_src, dst, num_dst, json != NULL, err);
	free(src);
	free(dst);
	return rc;
}
