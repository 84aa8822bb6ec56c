/* SPDX-License-Identifier: BSD-3-Clause */
/* Every refusal of a plan, with its sentence, and which one comes first. */
#include <stdio.h>
#include <string.h>

#include "common/suite.h"
#include "unit/plan/plan_tests.h"

static const uint32_t src_list[] = {5, 2, 11, 4};
static const uint32_t dst_list[] = {7, 9};

/* check, begin and create must agree, and begin must not need a place for the sentence. */
static void
expect_refusal(const struct kvf_plan_spec *spec, int code, const char *text, int line)
{
	struct kvf_err err = {0}, again = {0};
	struct kvf_plan_iter it;
	struct kvf_plan *plan = (struct kvf_plan *)&it;

	suite_check_eq(kvf_plan_check(spec, &err), code, err.text, __FILE__, line);
	suite_check_eq(err.code, code, "err.code", __FILE__, line);
	suite_check_has(err.text, text, __FILE__, line);
	suite_check_eq(kvf_plan_begin(&it, spec, NULL), code, "begin", __FILE__, line);
	suite_check_eq(kvf_plan_create(spec, 0, 0, &plan, &again), code, "create", __FILE__, line);
	suite_check(plan == NULL, "plan == NULL", __FILE__, line);
	suite_check(strcmp(err.text, again.text) == 0, again.text, __FILE__, line);
}

#define REFUSED(spec, code, text) expect_refusal((spec), (code), (text), __LINE__)

static void
expect_sentence(const struct kvf_plan_spec *spec, const char *sentence, int line)
{
	struct kvf_err err = {0};

	kvf_plan_check(spec, &err);
	suite_check(strcmp(err.text, sentence) == 0, err.text, __FILE__, line);
}

#define SENTENCE(spec, text) expect_sentence((spec), (text), __LINE__)

void
test_refuse_sharding(void)
{
	const struct kvf_plan_spec good = SPEC(2, src_list, dst_list, .tokens = 4);
	struct kvf_plan_spec spec = good;
	struct kvf_err err;

	CHECK_EQ(kvf_plan_check(&good, &err), 0);
	spec.src.size = 0;
	REFUSED(&spec, KVF_E_SHARDING, "src sharding size=0 must be at least 1");
	spec.src.size = 1025;
	REFUSED(&spec, KVF_E_SHARDING, "size=1025 must be at least 1 and at most limit=1024");
	spec = good;
	spec.dst.rank = 1;
	REFUSED(&spec, KVF_E_SHARDING, "dst sharding rank=1 must be below size=1");
	spec.dst = (struct kvf_sharding){8, 8, 1, 0};
	REFUSED(&spec, KVF_E_SHARDING, "rank=8 must be below size=8");
	spec.dst = (struct kvf_sharding){8, UINT32_MAX, 1, 0};
	REFUSED(&spec, KVF_E_SHARDING, "rank=4294967295 must be below size=8");
	spec = good;
	spec.src.interleave = 0;
	REFUSED(&spec, KVF_E_SHARDING, "interleave=0");
	spec.src.interleave = (1u << 31) + 1;
	REFUSED(&spec, KVF_E_SHARDING, "interleave=2147483649");
	CHECK_EQ(kvf_plan_check(&spec, &err), KVF_E_SHARDING);
	CHECK_STR_HAS(err.text, "limit=2147483648");
	spec = good;
	spec.dst.mode = 7;
	REFUSED(&spec, KVF_E_SHARDING, "mode=7");
	spec = good;
	spec.src_page_tokens = 0;
	REFUSED(&spec, KVF_E_INVAL, "src page_tokens=0");
	spec = good;
	spec.dst_page_tokens = 0;
	REFUSED(&spec, KVF_E_INVAL, "dst page_tokens=0");
	/* Nothing to send does not make it right. */
	spec.tokens = 0;
	REFUSED(&spec, KVF_E_INVAL, "dst page_tokens=0");
	spec = good;
	spec.tokens = 0;
	spec.src.rank = 3;
	REFUSED(&spec, KVF_E_SHARDING, "rank=3");
	/* One rank: its interleave does not matter, as long as it is one. */
	spec = good;
	spec.src.interleave = 77;
	CHECK_PLAN(&spec, 4);
	CHECK_EQ(kvf_sharding_check(&(struct kvf_sharding){1024, 1023, 1u << 31, 0}, "dst", NULL),
		0);
}

void
test_refuse_prefix(void)
{
	struct kvf_plan_spec spec = SPEC(64, src_list, dst_list, .prefix = 1000, .start = 1000);

	spec.dst = (struct kvf_sharding){8, 2, 1, 0};
	REFUSED(&spec, KVF_E_PREFIX, "got 1000");
	SENTENCE(&spec,
		"PD DCP transfer requires decode_prefix_len to align to the virtual DCP page "
		"size (512), got 1000");
	spec.prefix = spec.start = 511;
	REFUSED(&spec, KVF_E_PREFIX, "(512), got 511");
	spec.prefix = spec.start = 512;
	CHECK_EQ(kvf_plan_check(&spec, NULL), 0);
	spec.dst = (struct kvf_sharding){1, 0, 1, 0};
	spec.prefix = 65;
	REFUSED(&spec, KVF_E_PREFIX, "(64), got 65");
	spec.prefix = 64;
	CHECK_EQ(kvf_plan_check(&spec, NULL), 0);
	/* The destination's page counts, and a product past 32 bits is still a product. */
	spec.dst_page_tokens = 48;
	REFUSED(&spec, KVF_E_PREFIX, "(48), got 64");
	spec.dst_page_tokens = UINT32_MAX;
	spec.dst.size = 1024;
	REFUSED(&spec, KVF_E_PREFIX, "(4398046510080), got 64");
}

void
test_refuse_capacity(void)
{
	struct kvf_err err;
	struct kvf_plan_spec spec = SPEC(2, src_list, dst_list, .tokens = 9);

	spec.dst_page_tokens = 8;
	SENTENCE(&spec, "num_kv_tokens must fit in the provided source pages, got tokens=9, "
			"capacity=8");
	REFUSED(&spec, KVF_E_CAPACITY, "tokens=9");
	spec.tokens = 8;
	CHECK_EQ(kvf_plan_check(&spec, NULL), 0);
	spec.num_src_pages = 0;
	spec.tokens = 1;
	REFUSED(&spec, KVF_E_CAPACITY, "got tokens=1, capacity=0");
	/* What precedes the first token in its page does not count. */
	spec.num_src_pages = 4;
	spec.start = 3;
	spec.tokens = 8;
	REFUSED(&spec, KVF_E_CAPACITY, "got tokens=8, capacity=7");
	/* The chunk counts whole, though the part before the prefix is not sent. */
	spec.start = 0;
	spec.prefix = 16;
	spec.tokens = 9;
	REFUSED(&spec, KVF_E_CAPACITY, "got tokens=9, capacity=8");
	/* Sharded source: each rank needs pages for the rows that it holds, and no others. */
	spec.prefix = 0;
	spec.src = (struct kvf_sharding){4, 0, 1, 0};
	spec.tokens = 33;
	REFUSED(&spec, KVF_E_CAPACITY, "got tokens=33, capacity=32");
	for (spec.src.rank = 1; spec.src.rank < 4; spec.src.rank++) {
		CHECK_EQ(kvf_source_check(&spec.src, 2, 4, 0, 33, 0, &err), 0);
		CHECK_EQ(kvf_source_check(&spec.src, 2, 4, 0, 32 + spec.src.rank, 0, &err), 0);
		CHECK_EQ(kvf_source_check(&spec.src, 2, 4, 0, 33 + spec.src.rank, 0, &err),
			KVF_E_CAPACITY);
	}
	/* Interleave 3 in pages of 2: 8 rows end inside the third block, at position 24 + rank * 3
	 * + 2. */
	spec.src = (struct kvf_sharding){4, 1, 3, 0};
	spec.tokens = 30;
	REFUSED(&spec, KVF_E_CAPACITY, "got tokens=30, capacity=29");
	spec.num_src_pages = 3;
	REFUSED(&spec, KVF_E_CAPACITY, "got tokens=30, capacity=24");
}

void
test_refuse_destination(void)
{
	static const uint32_t many[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	struct kvf_plan_spec spec = SPEC(2, many, dst_list, .tokens = 32);
	struct kvf_err err;

	spec.dst = (struct kvf_sharding){4, 2, 1, 0};
	REFUSED(&spec, KVF_E_DST_PAGES, "required=4, provided=2, src_page_offset=0, dcp_rank=2");
	spec.tokens = 18;
	/* Row 4, at position 18, is the first one past the list. */
	CHECK_EQ(kvf_plan_check(&spec, &err), 0);
	spec.tokens = 19;
	REFUSED(&spec, KVF_E_DST_PAGES, "required=3, provided=2");
	spec.dst.rank = 3;
	CHECK_EQ(kvf_plan_check(&spec, &err), 0);
	/* A later chunk of the same request. */
	spec.dst.rank = 1;
	spec.start = 12;
	spec.tokens = 6;
	REFUSED(&spec, KVF_E_DST_PAGES, "required=3, provided=2, src_page_offset=6, dcp_rank=1");
	spec.prefix = 8;
	spec.num_dst_pages = 1;
	REFUSED(&spec, KVF_E_DST_PAGES, "required=2, provided=1, src_page_offset=2, dcp_rank=1");
	spec.start = 4;
	spec.tokens = 14;
	REFUSED(&spec, KVF_E_DST_PAGES, "required=2, provided=1, src_page_offset=0, dcp_rank=1");
	/* Rows past the list that another source rank sends are not this one's business. */
	spec = SPEC(2, many, dst_list, .tokens = 24);
	spec.src = (struct kvf_sharding){2, 1, 8, 0};
	spec.dst = (struct kvf_sharding){1, 0, 1, 0};
	spec.num_dst_pages = 8;
	spec.dst_pages = many;
	CHECK_EQ(kvf_plan_check(&spec, &err), 0);
	CHECK_PLAN(&spec, 8);
	spec.src.rank = 0;
	REFUSED(&spec, KVF_E_DST_PAGES, "required=12, provided=8");
	/* No list at all. */
	spec.num_dst_pages = 0;
	REFUSED(&spec, KVF_E_DST_PAGES, "required=12, provided=0");
}

void
test_refuse_overflow(void)
{
	struct kvf_plan_spec spec = SPEC(16, src_list, dst_list, .start = UINT64_MAX);
	uint64_t tokens;
	struct kvf_err err;

	spec.tokens = 1;
	REFUSED(&spec, KVF_E_OVERFLOW, "start=18446744073709551615 + tokens=1");
	spec.start = 1;
	spec.tokens = UINT64_MAX;
	REFUSED(&spec, KVF_E_OVERFLOW, "limit=18446744073709551615");
	spec.tokens = 1;
	spec.num_src_pages = UINT64_MAX / 16 + 1;
	REFUSED(&spec, KVF_E_OVERFLOW, "src pages=1152921504606846976");
	spec.num_src_pages = UINT64_MAX / 32;
	spec.src = (struct kvf_sharding){4, 0, 1, 0};
	REFUSED(&spec, KVF_E_OVERFLOW, "size=4");
	spec.src.interleave = 5;
	REFUSED(&spec, KVF_E_OVERFLOW, "size=4");
	spec = SPEC(16, src_list, dst_list, .tokens = 1);
	spec.num_dst_pages = UINT64_MAX / 16 + 1;
	REFUSED(&spec, KVF_E_OVERFLOW, "dst pages=1152921504606846976");
	CHECK_EQ(kvf_plan_capacity(&spec.src, 16, UINT64_MAX / 16, 0, &tokens, &err), 0);
	CHECK(tokens == UINT64_MAX / 16 * 16);
}

void
test_refuse_arguments(void)
{
	const struct kvf_plan_spec good = SPEC(16, src_list, dst_list, .tokens = 1);
	struct kvf_plan_spec spec = good;
	struct kvf_err err;
	uint64_t tokens;

	spec.flags = 4;
	REFUSED(&spec, KVF_E_INVAL, "flags=0x4, known flags=0x3");
	spec = good;
	spec.reserved = 9;
	REFUSED(&spec, KVF_E_INVAL, "reserved=9");
	spec = good;
	spec.src_pages = NULL;
	REFUSED(&spec, KVF_E_INVAL, "src_pages=NULL with num_src_pages=4");
	spec = good;
	spec.dst_pages = NULL;
	REFUSED(&spec, KVF_E_INVAL, "dst_pages=NULL with num_dst_pages=2");
	CHECK_EQ(kvf_plan_check(NULL, &err), KVF_E_INVAL);
	CHECK_EQ(kvf_plan_capacity(&good.src, 0, 1, 0, &tokens, &err), KVF_E_INVAL);
	CHECK_EQ(kvf_plan_capacity(&(struct kvf_sharding){2, 2, 1, 0}, 1, 1, 0, &tokens, &err),
		KVF_E_SHARDING);
}

/* sharding -> overflow -> prefix -> capacity -> destination */
void
test_order_of_refusals(void)
{
	struct kvf_plan_spec spec = SPEC(16, src_list, dst_list, .start = UINT64_MAX);

	spec.dst.rank = 1;
	spec.tokens = 1;
	spec.prefix = 5;
	REFUSED(&spec, KVF_E_SHARDING, "rank=1");
	spec.dst.rank = 0;
	REFUSED(&spec, KVF_E_OVERFLOW, "tokens=1");
	spec.start = 0;
	spec.tokens = 1000;
	REFUSED(&spec, KVF_E_PREFIX, "got 5");
	spec.prefix = 0;
	REFUSED(&spec, KVF_E_CAPACITY, "tokens=1000, capacity=64");
	spec.tokens = 64;
	REFUSED(&spec, KVF_E_DST_PAGES, "required=4, provided=2");
	spec.tokens = 32;
	CHECK_PLAN(&spec, 4);
}

void
test_capacity_counted(void)
{
	static const uint32_t page[] = {1, 2, 3, 16, 48, 64};
	uint64_t rng = suite_seed() | 1, c, got;
	struct kvf_err err;

	for (c = 0; c < 600; c++) {
		struct kvf_sharding sh = {.size = (uint32_t)suite_range(&rng, 1, 9)};
		uint32_t p = page[suite_range(&rng, 0, 5)];
		uint64_t start = suite_range(&rng, 0, 700), n = suite_range(&rng, 0, 5);
		char what[160];

		sh.rank = (uint32_t)suite_range(&rng, 0, sh.size - 1);
		sh.interleave = (uint32_t)suite_range(&rng, 1, 20);
		CHECK_EQ(kvf_plan_capacity(&sh, p, n, start, &got, &err), 0);
		snprintf(what, sizeof(what), "capacity of {%u,%u,%u} P %u x %d from %d", sh.size,
			sh.rank, sh.interleave, p, (int)n, (int)start);
		suite_check_eq((int64_t)got, (int64_t)oracle_capacity(&sh, p, n, start), what,
			__FILE__, __LINE__);
	}
}
