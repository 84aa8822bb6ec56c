/* SPDX-License-Identifier: BSD-3-Clause */
/* The program itself: what it prints, where, and how it ends. KVFERRY_BIN names it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/suite.h"
#include "unit/plan/cli.h"

/* `pairs`: source row, destination row, ... */
static void
expect_plan(const char *line, const long *pairs, size_t n, int lineno)
{
	struct cli_result *res = malloc(sizeof(*res));
	json_t *root, *runs, *item;
	char full[1024];
	size_t i, at = 0;
	int ok = 1;

	snprintf(full, sizeof(full), "plan --json %s", line);
	cli_run(res, full);
	suite_check_eq(res->status, 0, line, __FILE__, lineno);
	suite_check(res->err[0] == '\0', res->err, __FILE__, lineno);
	root = json_loads(res->out, JSON_REJECT_DUPLICATES, NULL);
	runs = json_object_get(root, "runs");
	suite_check(json_is_array(runs), res->out, __FILE__, lineno);
	json_array_foreach(runs, i, item)
	{
		long long src, dst, blocks, rows, ss, ds, b, r;

		if (json_unpack(item, "{s:I,s:I,s:I,s:I,s:I,s:I !}", "src_row", &src, "dst_row",
			    &dst, "blocks", &blocks, "block_rows", &rows, "src_step", &ss,
			    "dst_step", &ds) != 0) {
			ok = 0;
			break;
		}
		for (b = 0; b < blocks; b++) {
			for (r = 0; r < rows; r++, at++)
				ok = ok && at < n && pairs[2 * at] == src + b * ss + r &&
				     pairs[2 * at + 1] == dst + b * ds + r;
		}
	}
	suite_check(ok && at == n, res->out, __FILE__, lineno);
	suite_check_eq(json_integer_value(json_object_get(root, "rows")), (int64_t)n, "rows",
		__FILE__, lineno);
	suite_check_eq((int64_t)json_object_size(root), 2, "keys", __FILE__, lineno);
	json_decref(root);
	free(res);
}

#define EXPECT_PLAN(line, ...)                                                                     \
	do {                                                                                       \
		const long pairs_[] = {__VA_ARGS__};                                               \
		expect_plan((line), pairs_, sizeof(pairs_) / sizeof(pairs_[0]) / 2, __LINE__);     \
	} while (0)

static void
test_worked(void)
{
	EXPECT_PLAN("--page-size 2 --dst-dcp 4 --src-pages 5,2,11,4 --dst-pages 7 --tokens 8", 10,
		14, 22, 15);
	EXPECT_PLAN("--page-size 2 --dst-dcp 4 --dst-rank 1 --src-pages 5,2,11,4 --dst-pages 7", 11,
		14, 23, 15);
	EXPECT_PLAN("--page-size 2 --dst-dcp 4 --dst-rank 2 --src-pages 5,2,11,4 --dst-pages 7", 4,
		14, 8, 15);
	EXPECT_PLAN("--page-size 2 --dst-dcp 4 --dst-rank 3 --src-pages 5,2,11,4 --dst-pages 7", 5,
		14, 9, 15);
	EXPECT_PLAN("--src-page-size 2 --dst-page-size 8 --src-pages 5,2,11,4 --dst-pages 7", 10,
		56, 11, 57, 4, 58, 5, 59, 22, 60, 23, 61, 8, 62, 9, 63);
	EXPECT_PLAN("--page-size 2 --dst-dcp 2 --src-pages 9,3 --dst-pages 4,6 --page-offset 1 "
		    "--prefix 4 --tokens 4",
		18, 9, 6, 12);
	EXPECT_PLAN("--page-size 2 --dst-dcp 2 --dst-rank 1 --src-pages 9,3 --dst-pages 4,6 "
		    "--start 6 --prefix 4",
		19, 9, 7, 12);
	EXPECT_PLAN("--page-size 2 --dst-page-size 4 --src-pages 9,3 --dst-pages 4,6 "
		    "--page-offset 1 --prefix 4",
		18, 18, 19, 19, 6, 24, 7, 25);
	EXPECT_PLAN("--page-size 4 --dst-dcp 8 --src-pages 3,8,6 --dst-pages 2 --tokens 9", 12, 8,
		24, 9);
	EXPECT_PLAN("--page-size=4 --dst-dcp=8 --dst-rank=7 --src-pages=3,8,6 --dst-pages=2 "
		    "--tokens=9",
		35, 8);
}

static void
test_shapes(void)
{
	char line[8192] = "plan --json --page-size 64 --dst-dcp 8 --dst-rank 3 --dst-pages 5,6,7,8 "
			  "--src-pages 10";
	size_t len = strlen(line);
	int i;

	OUTPUT("plan --page-size 4 --src-pages '' --dst-pages '' --tokens 0 --json",
		"{\"runs\":[],\"rows\":0}\n");
	OUTPUT("plan --page-size 4 --src-pages 3,8,6 --dst-pages 2 --tokens 0 --json",
		"{\"runs\":[],\"rows\":0}\n");
	OUTPUT("plan --page-size 4 --src-pages '' --dst-pages '' --json",
		"{\"runs\":[],\"rows\":0}\n");
	OUTPUT("plan --page-size 4 --src-pages '' --dst-pages ''", "runs=0 rows=0\n");
	/* 32 contiguous pages, eight ranks: one run of 256 blocks */
	for (i = 11; i < 42; i++)
		len += (size_t)snprintf(line + len, sizeof(line) - len, ",%d", i);
	OUTPUT(line, "{\"runs\":[{\"src_row\":643,\"dst_row\":320,\"blocks\":256,\"block_rows\":1,"
		     "\"src_step\":8,\"dst_step\":1}],\"rows\":256}\n");
	/* N -> 1 and N -> N by page */
	OUTPUT("plan --json --page-size 4 --src-dcp 2 --src-rank 1 --src-interleave 4 --src-pages "
	       "7,8 --dst-pages 1,2,3,4",
		"{\"runs\":[{\"src_row\":28,\"dst_row\":8,\"blocks\":2,\"block_rows\":4,"
		"\"src_step\":4,\"dst_step\":8}],\"rows\":8}\n");
	OUTPUT("plan --json --page-size 4 --src-dcp 2 --src-rank 1 --src-interleave 4 --dst-dcp 2 "
	       "--dst-rank 1 --dst-interleave 4 --src-pages 7,8 --dst-pages 1,2",
		"{\"runs\":[{\"src_row\":28,\"dst_row\":4,\"blocks\":1,\"block_rows\":8,"
		"\"src_step\":8,\"dst_step\":8}],\"rows\":8}\n");
	OUTPUT("plan --page-size 2 --src-pages 5,6 --dst-pages 7,9 --tokens 3",
		"     src_row      dst_row     blocks block_rows   src_step   dst_step\n"
		"          10           14          1          2          2          2\n"
		"          12           18          1          1          1          1\n"
		"runs=2 rows=3\n");
}

static void
test_refusals(void)
{
	REFUSED("plan --page-size 2 --src-pages 5,2,11,4 --dst-pages 7 --tokens 9",
		"CAPACITY: num_kv_tokens must fit in the provided source pages, got tokens=9, "
		"capacity=8\n");
	REFUSED("plan --page-size 2 --src-pages 5,2,11,4 --dst-pages 7 --tokens -1 --json",
		"CAPACITY: num_kv_tokens must fit in the provided source pages, got tokens=-1, "
		"capacity=8\n");
	REFUSED("plan --page-size 64 --dst-dcp 8 --prefix 1000 --src-pages 1 --dst-pages 1",
		"PREFIX: PD DCP transfer requires decode_prefix_len to align to the virtual DCP "
		"page size (512), got 1000\n");
	REFUSED("plan --page-size 64 --prefix 65 --src-pages 1 --dst-pages 1 --tokens -5",
		"PREFIX: PD DCP transfer requires decode_prefix_len to align to the virtual DCP "
		"page size (64), got 65\n");
	REFUSED("plan --page-size 2 --dst-dcp 4 --dst-rank 1 --src-pages 0,1,2,3,4 --dst-pages 7",
		"DST_PAGES: destination pages must hold every row that this rank receives: "
		"required=2, provided=1, src_page_offset=0, dcp_rank=1\n");
	REFUSED("plan --page-size 2 --dst-dcp 4 --dst-rank 4 --src-pages 1 --dst-pages 1",
		"SHARDING: dst sharding rank=4 must be below size=4");
	REFUSED("plan --page-size 2 --src-dcp 0 --src-pages 1 --dst-pages 1",
		"SHARDING: src sharding size=0");
	REFUSED("plan --page-size 2 --dst-rank -1 --src-pages 1 --dst-pages 1",
		"SHARDING: dst-rank=-1 is negative");
	REFUSED("plan --page-size 2 --dst-interleave 0 --src-pages 1 --dst-pages 1",
		"SHARDING: dst sharding interleave=0");
	REFUSED("plan --page-size 0 --src-pages 1 --dst-pages 1", "INVAL: src page_tokens=0");
	REFUSED("plan --page-size -2 --src-pages 1 --dst-pages 1", "INVAL: page-size=-2");
	REFUSED("plan --page-size 2 --src-pages 1,-3 --dst-pages 1,2",
		"PAGE: src-pages[1]=-3 is negative");
	REFUSED("plan --page-size 2 --src-pages 1,9 --src-num-pages 9 --dst-pages 1,2",
		"PAGE: src page=9 at index=1 must be below limit=9");
	REFUSED("plan --page-size 2 --src-pages 1,9 --dst-num-pages 2 --dst-pages 1,2",
		"PAGE: dst page=2 at index=1 must be below limit=2");
	REFUSED("plan --page-size 2 --src-pages 1,2147483647 --dst-pages 1,2",
		"PAGE: src page=2147483647 at index=1 must be below limit=2147483647");
	REFUSED("plan --page-size 2 --src-pages 1,2 --dst-pages 4,4",
		"DUP_PAGE: dst page=4 stands in the list twice: first=0, second=1");
	REFUSED("plan --page-size 2 --src-pages 1,4294967296 --dst-pages 1,2",
		"OVERFLOW: src-pages[1]=4294967296 is past limit=4294967295");
	REFUSED("plan --page-size 2 --src-pages 1 --dst-pages 1 --tokens 18446744073709551616",
		"OVERFLOW: tokens=18446744073709551616 is past limit=18446744073709551615");
	REFUSED("plan --page-size 2 --src-pages 1 --dst-pages 1 --start 18446744073709551615 "
		"--tokens 1",
		"OVERFLOW: ");
	REFUSED("plan --page-size 4294967296 --src-pages 1 --dst-pages 1",
		"OVERFLOW: page-size=4294967296 is past limit=4294967295");
	REFUSED("plan --page-size 2 --page-offset 9223372036854775807 --src-dcp 4 --src-pages 1 "
		"--dst-pages 1",
		"OVERFLOW: prefix=0 + page-offset=9223372036854775807");
	REFUSED("plan --page-size 2 --src-num-pages 0 --src-pages 1 --dst-pages 1",
		"INVAL: src-num-pages=0");
}

static void
test_usage(void)
{
	static const char *const help[] = {"--help", "plan --help", "group --help", "status --help",
		"doctor --help", "link --help", "plan --page-size 2 --help"};
	struct cli_result *res = malloc(sizeof(*res));
	size_t i;

	REFUSED("plan --page-size 2 --src-pages 1,,2 --dst-pages 1", "INVAL: src-pages[1]=\"\"");
	REFUSED("plan --page-size 2 --src-pages 1,2, --dst-pages 1", "INVAL: src-pages[2]=\"\"");
	REFUSED("plan --page-size 0x10 --src-pages 1 --dst-pages 1", "INVAL: page-size=\"0x10\"");
	REFUSED("plan --page-size +2 --src-pages 1 --dst-pages 1", "INVAL: page-size=\"+2\"");
	REFUSED("plan --page-size '' --src-pages 1 --dst-pages 1", "INVAL: page-size=\"\"");
	REFUSED("plan --page-size 2 --src-pages 1 --dst-pages 1 --tokens 1.5",
		"INVAL: tokens=\"1.5\"");
	REFUSED("plan --src-pages 1 --dst-pages 1", "INVAL: --page-size or --src-page-size");
	REFUSED("plan --src-page-size 2 --src-pages 1 --dst-pages 1",
		"INVAL: --page-size or --dst-page-size");
	REFUSED("plan --page-size 2 --dst-pages 1", "INVAL: --src-pages is missing");
	REFUSED("plan --page-size 2 --src-pages 1", "INVAL: --dst-pages is missing");
	REFUSED("plan --page-size 2 --src-pages 1 --dst-pages 1 --start 0 --page-offset 0",
		"INVAL: --start=0 and --page-offset=0");
	REFUSED("plan --page-size", "INVAL: --page-size needs a value");
	REFUSED("plan --page 2", "INVAL: unknown option --page (");
	REFUSED("plan --tok 2", "INVAL: unknown option --tok ");
	REFUSED("plan --json=yes", "INVAL: --json takes no value");
	REFUSED("plan 7", "INVAL: unexpected argument \"7\"");
	REFUSED("plam", "INVAL: unknown command \"plam\"");
	for (i = 0; i < sizeof(help) / sizeof(help[0]); i++) {
		cli_run(res, help[i]);
		CHECK_EQ(res->status, 0);
		CHECK_STR_HAS(res->out, "usage: kvferry");
		CHECK_EQ(strlen(res->err), 0);
	}
	cli_run(res, "--version");
	CHECK_EQ(res->status, 0);
	CHECK_EQ(strncmp(res->out, "kvferry ", 8), 0);
	cli_run(res, "");
	CHECK_EQ(res->status, 1);
	CHECK_EQ(strlen(res->out), 0);
	CHECK_STR_HAS(res->err, "usage: kvferry");
	free(res);
}

static void
test_groups(void)
{
	OUTPUT("group --src 1,2,3,7,8,20,19 --dst 5,6,7,8,9,10,11 --json",
		"[[1,5,3],[7,8,2],[20,10,1],[19,11,1]]\n");
	OUTPUT("group --src 1,2,9 --dst 5,6,7", "1 -> 5 count=2\n9 -> 7 count=1\ngroups=2\n");
	OUTPUT("group --src '' --dst 5,6 --json", "[]\n");
	OUTPUT("group --src 5,6 --dst '' --json", "[]\n");
	OUTPUT("group --src 9223372036854775806,9223372036854775807 --dst 4294967296,4294967297 "
	       "--json",
		"[[9223372036854775806,4294967296,2]]\n");
	REFUSED("group --src 1,2,3 --dst 5,6 --json",
		"LENGTH: group_concurrent_contiguous requires equal-length src/dst index arrays, "
		"got 3 and 2\n");
	REFUSED("group --src 1,-2 --dst 5,6", "PAGE: src[1]=-2 is negative");
	REFUSED("group --src 1,2 --dst 5,9223372036854775808",
		"OVERFLOW: dst[1]=9223372036854775808 is past limit=9223372036854775807");
	REFUSED("group --src 1", "INVAL: --dst is missing");
}

static void
test_plan_bands(void)
{
	/* 30 tokens are 8 pages of 4; of three ranks the second has pages 3 to 5. */
	EXPECT_PLAN("--page-size 4 --src-dcp 3 --src-band --src-rank 1 --total 30 --src-pages "
		    "5,6,9 --dst-pages 1,2,3,4,5,6,7,8",
		20, 16, 21, 17, 22, 18, 23, 19, 24, 20, 25, 21, 26, 22, 27, 23, 36, 24, 37, 25, 38,
		26, 39, 27);
	/* A chunk of it, to a DCP rank. */
	EXPECT_PLAN("--page-size 4 --src-dcp 3 --src-band --total 30 --start 4 --tokens 4 "
		    "--src-pages 6,9 --dst-dcp 2 --dst-rank 1 --dst-pages 1,2,3,4",
		25, 6, 27, 7);
	/* Bands at the destination: the list starts with the band's first page, or the prefix's. */
	EXPECT_PLAN("--page-size 2 --dst-dcp 2 --dst-band --dst-rank 1 --src-pages 1,2,3 "
		    "--dst-pages 9 --tokens 6",
		6, 18, 7, 19);
	EXPECT_PLAN("--page-size 2 --dst-dcp 2 --dst-band --src-pages 1,2,3 --prefix 2 --start 0 "
		    "--total 6 --dst-pages 9",
		4, 18, 5, 19);
	/* Pages of the band may be several of the pool's. */
	EXPECT_PLAN("--page-size 2 --src-dcp 2 --src-band --src-interleave 4 --src-rank 1 --total "
		    "6 --src-pages 8 --dst-pages 1,2,3",
		16, 6, 17, 7);
	/* A rank past the last page has nothing. */
	OUTPUT("plan --page-size 4 --src-dcp 3 --src-band --src-rank 2 --total 5 --src-pages '' "
	       "--dst-pages 1,2 --json",
		"{\"runs\":[],\"rows\":0}\n");
	/* Without bands the length of the prompt bounds the chunk. */
	EXPECT_PLAN(
		"--page-size 2 --src-pages 4,5 --dst-pages 6,7 --total 3", 8, 12, 9, 13, 10, 14);
	REFUSED("plan --page-size 2 --src-pages 4,5 --dst-pages 6,7 --total 3 --tokens 4",
		"INVAL: start=0 + tokens=4 must not be past total=3");
	REFUSED("plan --page-size 2 --src-pages 4,5 --dst-pages 6,7 --total 3 --start 4",
		"INVAL: start=4 + tokens=0 must not be past total=3");
	REFUSED("plan --page-size 2 --src-band --src-dcp 2 --src-pages 4,5 --dst-pages 6,7",
		"INVAL: a band needs --total");
	REFUSED("plan --page-size 2 --src-band --src-dcp 2 --src-pages 4 --dst-pages 6 --total 4 "
		"--page-offset 1",
		"INVAL: --page-offset=1 says nothing about a band");
	REFUSED("plan --page-size 2 --src-band --src-dcp 2 --src-pages 4 --dst-pages 6,7 --total 4 "
		"--tokens 5",
		"INVAL: a band needs the prompt's length: start=0 + tokens=5 are past total=4");
	REFUSED("plan --page-size 4 --dst-band --dst-dcp 2 --dst-interleave 6 --src-pages 4 "
		"--dst-pages 6 --total 4",
		"SHARDING: dst band of pages of interleave=6 tokens, which is not a multiple of "
		"page_tokens=4");
	REFUSED("plan --page-size 4 --src-band --src-dcp 2 --src-pages '' --dst-pages 6 --total 4",
		"CAPACITY: ");
	REFUSED("plan --page-size 2 --src-band --src-dcp 2 --src-rank 2 --src-pages 4 --dst-pages "
		"6 --total 4",
		"SHARDING: src sharding rank=2 must be below size=2");
}

/* Without an engine: said as an error by one, as a warning by the other. */
static void
test_no_engine(void)
{
	struct cli_result *res = malloc(sizeof(*res));
	const char *line;

	REFUSED("status --socket /nonexistent/kvferry.sock", "");
	REFUSED("top --socket /nonexistent/kvferry.sock", "");
	REFUSED("status --json --socket /nonexistent/kvferry.sock", "");
	cli_run(res, "doctor --socket /nonexistent/kvferry.sock");
	CHECK_EQ(res->status, 0);
	CHECK_EQ(strlen(res->err), 0);
	CHECK_STR_HAS(res->out, " cpu ");
	CHECK_STR_HAS(res->out, " cores ");
	CHECK_STR_HAS(res->out, " hugepages ");
	CHECK_STR_HAS(res->out, " memlock ");
	CHECK_STR_HAS(res->out, " hugetlbfs ");
	CHECK_STR_HAS(res->out, "warn  engine");
	CHECK_STR_HAS(res->out, "try: kvferryd --socket /nonexistent/kvferry.sock");
	for (line = res->out; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
		line += *line == '\n';
		CHECK(*line == '\0' || strncmp(line, "ok ", 3) == 0 ||
			strncmp(line, "warn ", 5) == 0 || strncmp(line, "      ", 6) == 0 ||
			strncmp(line, "warnings=", 9) == 0);
	}
	free(res);
}

static const struct suite_case cases[] = {
	{"worked cases", test_worked},
	{"shapes of answers", test_shapes},
	{"refusals", test_refusals},
	{"usage", test_usage},
	{"groups", test_groups},
	{"without an engine", test_no_engine},
	{"plan: bands", test_plan_bands},
	{"link: who serves what", test_link_text},
	{"link: DCP 8 to 4", test_link_dcp},
	{"link: head slices", test_link_heads},
	{"link: stages and drafts", test_link_stages},
	{"link: bands", test_link_bands},
	{"link: sums of all topologies", test_link_sums},
	{"link: files", test_link_files},
	{"link: refusals", test_link_refusals},
};

SUITE_MAIN("cli", cases)
