/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "wire/defaults.h"
#include "wire/message.h"
#include "wire/ring.h"

static struct kvf_entry entries[KVF_MAX_ENTRIES + 8];
static struct kvf_component components[KVF_MAX_COMPONENTS + 1];
static struct kvf_geometry geometry;
static uint8_t buf[KVF_MSG_MAX];

/* `c` components with `e` entries each, every field with a value of its own. */
static void
make_geometry(uint32_t c, uint32_t e)
{
	uint32_t i, n = 0;

	for (i = 0; i < c; i++) {
		uint32_t j;

		components[i] = (struct kvf_component){
			.cls = KVF_TOKENS,
			.tag = 100 + i,
			.list = i % KVF_MAX_LISTS,
			.page_tokens = 16 + i,
			.num_pages = 64 + i,
			.num_entries = e,
			.sharding = {.size = 4, .rank = i % 4, .interleave = 1 + i},
			.entries = &entries[n],
		};
		for (j = 0; j < e; j++, n++)
			entries[n] = (struct kvf_entry){
				.offset = 1000u * n,
				.page_stride = 2000 + n,
				.row_stride = 3000 + n,
				.row_bytes = 64 + n,
				.layer = n,
				.kind = KVF_KIND_K,
				.dtype = 7,
				.head_first = (uint16_t)n,
				.head_count = 1,
				.head_total = 8,
			};
	}
	geometry = (struct kvf_geometry){.num_components = c, .components = components};
}

static struct kvf_endpoint_config
config(void)
{
	return (struct kvf_endpoint_config){
		.role = KVF_DECODE,
		.group = "decode-a",
		.group_size = 8,
		.rank = 5,
		.geometry = &geometry,
	};
}

static int
pack(void)
{
	struct kvf_endpoint_config cfg = config();

	make_geometry(3, 4);
	return kvf_msg_pack_register(&cfg, 123456789, buf, NULL);
}

/* Parses a copy of exactly `len` bytes, so that a read past the end is seen. */
static int
parse(const void *packet, size_t len, struct kvf_registration **reg, struct kvf_err *err)
{
	void *copy = malloc(len > 0 ? len : 1);
	int rc;

	CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
	memcpy(copy, packet, len);
	rc = kvf_msg_parse_register(copy, len, reg, err);
	free(copy);
	return rc;
}

static void
test_round_trip(void)
{
	struct kvf_endpoint_config cfg = config();
	struct kvf_registration *r;
	struct kvf_err err = {0};
	uint32_t i;
	int len;

	make_geometry(3, 4);
	cfg.sq_entries = 16;
	cfg.cq_entries = 32;
	cfg.arena_bytes = 8192;
	cfg.max_rooms = 77;
	cfg.bootstrap_timeout_ms = 11;
	cfg.waiting_timeout_ms = 22;
	len = kvf_msg_pack_register(&cfg, 123456789, buf, &err);
	CHECK_EQ(len, 136 + 3 * 48 + 12 * 56);
	CHECK_EQ(kvf_msg_check_hdr(buf, (size_t)len, &err), KVF_MSG_REGISTER);
	CHECK_EQ(parse(buf, (size_t)len, &r, &err), 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(r);
	CHECK_EQ(r->msg.role, KVF_DECODE);
	CHECK(strcmp(r->msg.group, "decode-a") == 0);
	CHECK_EQ(r->msg.group_size, 8);
	CHECK_EQ(r->msg.rank, 5);
	CHECK_EQ(r->msg.pool_length, 123456789);
	CHECK_EQ(r->msg.sq_entries, 16);
	CHECK_EQ(r->msg.cq_entries, 32);
	CHECK_EQ(r->msg.arena_bytes, 8192);
	CHECK_EQ(r->msg.max_rooms, 77);
	CHECK_EQ(r->msg.bootstrap_timeout_ms, 11);
	CHECK_EQ(r->msg.waiting_timeout_ms, 22);
	CHECK_EQ(r->geometry.num_components, 3);
	for (i = 0; i < 3; i++) {
		const struct kvf_component *a = &components[i];
		const struct kvf_component *b = &r->geometry.components[i];

		CHECK(a->cls == b->cls && a->tag == b->tag && a->list == b->list);
		CHECK(a->page_tokens == b->page_tokens && a->num_pages == b->num_pages);
		CHECK(memcmp(&a->sharding, &b->sharding, sizeof(a->sharding)) == 0);
		CHECK_EQ(b->num_entries, 4);
		CHECK(memcmp(a->entries, b->entries, 4 * sizeof(struct kvf_entry)) == 0);
	}
	free(r);
}

static void
test_defaults(void)
{
	struct kvf_registration *r;
	int len = pack();

	CHECK_EQ(parse(buf, (size_t)len, &r, NULL), 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(r);
	CHECK_EQ(r->msg.sq_entries, 1024);
	CHECK_EQ(r->msg.cq_entries, 4096);
	CHECK_EQ(r->msg.arena_bytes, 8 << 20);
	CHECK_EQ(r->msg.max_rooms, 16384);
	CHECK_EQ(r->msg.bootstrap_timeout_ms, 300000);
	CHECK_EQ(r->msg.waiting_timeout_ms, 300000);
	free(r);
}

static void
test_limits(void)
{
	struct kvf_endpoint_config cfg = config();
	struct kvf_registration *r;
	struct kvf_err err;
	int len;

	/* The largest declaration goes through, one entry or component more does not. */
	make_geometry(KVF_MAX_COMPONENTS, KVF_MAX_ENTRIES / KVF_MAX_COMPONENTS);
	len = kvf_msg_pack_register(&cfg, 1, buf, &err);
	CHECK(len > 0 && len <= (int)KVF_MSG_MAX);
	CHECK_EQ(parse(buf, (size_t)len, &r, &err), 0);
	free(r);
	components[0].num_entries++;
	CHECK_EQ(kvf_msg_pack_register(&cfg, 1, buf, &err), KVF_E_GEOMETRY);
	CHECK_STR_HAS(err.text, "entries=1025, limit=1024");
	components[0].num_entries = UINT32_MAX;
	components[1].num_entries = UINT32_MAX;
	CHECK_EQ(kvf_msg_pack_register(&cfg, 1, buf, &err), KVF_E_GEOMETRY);
	make_geometry(KVF_MAX_COMPONENTS + 1, 1);
	CHECK_EQ(kvf_msg_pack_register(&cfg, 1, buf, &err), KVF_E_GEOMETRY);
	CHECK_STR_HAS(err.text, "components=33, limit=1..32");
	make_geometry(0, 0);
	CHECK_EQ(kvf_msg_pack_register(&cfg, 1, buf, &err), KVF_E_GEOMETRY);
	CHECK_STR_HAS(err.text, "components=0");
	make_geometry(2, 0);
	CHECK_EQ(kvf_msg_pack_register(&cfg, 1, buf, &err), KVF_E_GEOMETRY);
	CHECK_STR_HAS(err.text, "entries=0");
	make_geometry(2, 1);
	components[1].num_entries =
		0; /* an empty component beside another is the check's business */
	CHECK(kvf_msg_pack_register(&cfg, 1, buf, &err) > 0);
	components[0].entries = NULL;
	CHECK_EQ(kvf_msg_pack_register(&cfg, 1, buf, &err), KVF_E_INVAL);
	geometry.components = NULL;
	CHECK_EQ(kvf_msg_pack_register(&cfg, 1, buf, &err), KVF_E_INVAL);
	cfg.geometry = NULL;
	CHECK_EQ(kvf_msg_pack_register(&cfg, 1, buf, &err), KVF_E_INVAL);
}

#define REFUSED(set, want, part)                                                                   \
	do {                                                                                       \
		struct kvf_endpoint_config cfg = config();                                         \
		struct kvf_err err = {0};                                                          \
		uint64_t pool_length = 4096;                                                       \
		set;                                                                               \
		CHECK_EQ(kvf_msg_pack_register(&cfg, pool_length, buf, &err), want);               \
		CHECK_EQ(err.code, want);                                                          \
		CHECK_STR_HAS(err.text, part);                                                     \
		CHECK_EQ(kvf_msg_pack_register(&cfg, pool_length, buf, NULL), want);               \
	} while (0)

static void
test_config_refused(void)
{
	make_geometry(1, 1);
	REFUSED(cfg.role = 0, KVF_E_INVAL, "role=0");
	REFUSED(cfg.role = 3, KVF_E_INVAL, "role=3");
	REFUSED(cfg.group = NULL, KVF_E_INVAL, "group=NULL");
	REFUSED(cfg.group = "", KVF_E_INVAL, "length=0");
	REFUSED(cfg.group = "12345678901234567890123456789012", KVF_E_INVAL, "length=32, limit=31");
	REFUSED(cfg.group = "a\nb", KVF_E_INVAL, "byte=0x0a, position=1");
	REFUSED(cfg.group = "\xff", KVF_E_INVAL, "byte=0xff, position=0");
	REFUSED(cfg.group_size = 0, KVF_E_INVAL, "group_size=0, limit=1..256");
	REFUSED(cfg.group_size = 257, KVF_E_INVAL, "group_size=257");
	REFUSED(cfg.rank = 8, KVF_E_INVAL, "rank=8 must be below group_size=8");
	REFUSED(cfg.rank = UINT32_MAX, KVF_E_INVAL, "rank=4294967295");
	REFUSED(cfg.sq_entries = 1000, KVF_E_INVAL, "sq_entries=1000");
	REFUSED(cfg.sq_entries = 131072, KVF_E_INVAL, "limit=65536");
	REFUSED(cfg.cq_entries = 3, KVF_E_INVAL, "cq_entries=3");
	REFUSED(cfg.arena_bytes = 3u << 20, KVF_E_INVAL, "arena_bytes=3145728");
	REFUSED(cfg.arena_bytes = 32, KVF_E_INVAL, "arena_bytes=32");
	REFUSED(cfg.arena_bytes = 2ull << 30, KVF_E_INVAL, "arena_bytes=2147483648");
	REFUSED(cfg.max_rooms = KVF_MAX_ROOMS + 1, KVF_E_INVAL, "max_rooms=1048577");
	REFUSED(pool_length = 0, KVF_E_INVAL, "pool_length=0");
}

static void
test_header(void)
{
	struct kvf_msg_hdr good = {.magic = KVF_MSG_MAGIC,
		.version = KVF_MSG_VERSION,
		.type = KVF_MSG_BYE,
		.length = sizeof(good)};
	struct kvf_msg_hdr h;
	struct kvf_err err;
	uint32_t type;

	CHECK_EQ(kvf_msg_check_hdr(&good, sizeof(good), &err), KVF_MSG_BYE);
	for (type = 0; type < 65536; type += type < 16 ? 1 : 997) {
		int ok = type >= KVF_MSG_REGISTER && type <= KVF_MSG_STATUS_TEXT;

		h = good;
		h.type = (uint16_t)type;
		CHECK_EQ(kvf_msg_check_hdr(&h, sizeof(h), NULL), ok ? (int)type : KVF_E_PROTO);
	}
	h = good;
	h.magic ^= 1;
	CHECK_EQ(kvf_msg_check_hdr(&h, sizeof(h), &err), KVF_E_PROTO);
	CHECK_STR_HAS(err.text, "magic=0x6b766678, expected=0x6b766679");
	h = good;
	h.version = 2;
	CHECK_EQ(kvf_msg_check_hdr(&h, sizeof(h), &err), KVF_E_VERSION);
	CHECK_STR_HAS(err.text, "version=2");
	h = good;
	h.length = 17;
	CHECK_EQ(kvf_msg_check_hdr(&h, sizeof(h), &err), KVF_E_PROTO);
	CHECK_STR_HAS(err.text, "length=17, got length=16");
	h = good;
	h.reserved = 1;
	CHECK_EQ(kvf_msg_check_hdr(&h, sizeof(h), &err), KVF_E_PROTO);
	CHECK_EQ(kvf_msg_check_hdr(&good, 15, &err), KVF_E_PROTO);
	CHECK_EQ(kvf_msg_check_hdr(&good, 0, &err), KVF_E_PROTO);
	CHECK_EQ(kvf_msg_check_hdr(&good, KVF_MSG_MAX + 1, &err), KVF_E_PROTO);
	CHECK_STR_HAS(err.text, "length=196609");
}

/* Every length but the right one is refused, with the header telling the truth and without. */
static void
test_truncated(void)
{
	struct kvf_registration *r = (void *)buf;
	int full = pack();
	uint8_t *p;
	int len;

	p = calloc(1, (size_t)full + 64);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	memcpy(p, buf, (size_t)full);
	for (len = 0; len < full + 64; len++) {
		uint32_t says = (uint32_t)len;

		if (len == full)
			continue;
		CHECK_EQ(parse(p, (size_t)len, &r, NULL), KVF_E_PROTO);
		CHECK(r == NULL);
		memcpy(p + offsetof(struct kvf_msg_hdr, length), &says, sizeof(says));
		CHECK_EQ(parse(p, (size_t)len, &r, NULL), KVF_E_PROTO);
		says = (uint32_t)full;
		memcpy(p + offsetof(struct kvf_msg_hdr, length), &says, sizeof(says));
	}
	CHECK_EQ(parse(p, (size_t)full, &r, NULL), 0);
	free(r);
	free(p);
}

static void
put32(size_t off, uint32_t v)
{
	memcpy(buf + off, &v, sizeof(v));
}

#define COMP_ENTRIES(i)                                                                            \
	(sizeof(struct kvf_msg_register) + (i) * sizeof(struct kvf_wire_component) +               \
		offsetof(struct kvf_wire_component, num_entries))

static void
test_count_lies(void)
{
	struct kvf_registration *r;
	struct kvf_err err;
	size_t len;

	/* 3 components of 4 entries. The sum wraps in 32 bits, the parts do not fit. */
	len = (size_t)pack();
	put32(COMP_ENTRIES(0), UINT32_MAX);
	put32(COMP_ENTRIES(1), 9);
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_PROTO);
	CHECK_STR_HAS(err.text, "component=0 claims entries=4294967295");
	len = (size_t)pack();
	put32(COMP_ENTRIES(2), 5);
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_PROTO);
	CHECK_STR_HAS(err.text, "component=2 claims entries=5, the message has left=4");
	len = (size_t)pack();
	put32(COMP_ENTRIES(2), 3);
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_PROTO);
	CHECK_STR_HAS(err.text, "claim entries=11, the message has entries=12");
	/* 7 entries are as long as 9.8 components: lengths that could be mixed up. */
	len = (size_t)pack();
	put32(offsetof(struct kvf_msg_register, num_components), 32);
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_PROTO);
	len = (size_t)pack();
	put32(offsetof(struct kvf_msg_register, num_components), UINT32_MAX);
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_GEOMETRY);
	len = (size_t)pack();
	put32(offsetof(struct kvf_msg_register, num_entries), UINT32_MAX);
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_GEOMETRY);
	CHECK_STR_HAS(err.text, "entries=4294967295, limit=1..1024");
	/* 2^32 / 56 entries: the 32-bit product would look small. */
	len = (size_t)pack();
	put32(offsetof(struct kvf_msg_register, num_entries), 76695845);
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_GEOMETRY);
	CHECK(r == NULL);
}

static void
test_field_lies(void)
{
	struct kvf_registration *r;
	struct kvf_err err;
	size_t len;

	len = (size_t)pack();
	memset(buf + offsetof(struct kvf_msg_register, group), 'x', KVF_GROUP_NAME_MAX);
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_PROTO);
	CHECK_STR_HAS(err.text, "no NUL within bytes=32");
	len = (size_t)pack();
	buf[offsetof(struct kvf_msg_register, group)] = '\0';
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_INVAL);
	len = (size_t)pack();
	buf[offsetof(struct kvf_msg_register, reserved) + 31] = 1;
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_PROTO);
	len = (size_t)pack();
	put32(offsetof(struct kvf_msg_register, waiting_timeout_ms), 0);
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "waiting_timeout_ms=0");
	len = (size_t)pack();
	put32(offsetof(struct kvf_msg_register, max_rooms), 0);
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_INVAL);
	len = (size_t)pack();
	put32(offsetof(struct kvf_msg_register, rank), 8);
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_INVAL);
	len = (size_t)pack();
	buf[offsetof(struct kvf_msg_hdr, type)] = KVF_MSG_BYE;
	CHECK_EQ(parse(buf, len, &r, &err), KVF_E_PROTO);
	CHECK_STR_HAS(err.text, "type=4, expected=1");
}

static int
pow2(uint64_t v, uint64_t lo, uint64_t hi)
{
	uint64_t b;

	for (b = lo; b <= hi; b *= 2)
		if (b == v)
			return 1;
	return 0;
}

/* The rules once more, written down independently: is this packet acceptable? */
static int
acceptable(const uint8_t *p, size_t len)
{
	struct kvf_msg_register m;
	uint64_t sum = 0;
	size_t i, name;

	if (len < sizeof(m))
		return 0;
	memcpy(&m, p, sizeof(m));
	if (m.hdr.magic != 0x6b766679 || m.hdr.version != 1 || m.hdr.type != 1 ||
		m.hdr.length != len || m.hdr.reserved != 0)
		return 0;
	if (m.role < 1 || m.role > 2 || m.group_size < 1 || m.group_size > 256 ||
		m.rank >= m.group_size)
		return 0;
	for (name = 0; name < 32 && m.group[name] != 0; name++)
		if (m.group[name] < ' ' || m.group[name] > '~')
			return 0;
	if (name == 0 || name == 32 || m.pool_length == 0)
		return 0;
	if (!pow2(m.sq_entries, 1, 65536) || !pow2(m.cq_entries, 1, 65536) ||
		!pow2(m.arena_bytes, 64, 1u << 30))
		return 0;
	if (m.max_rooms < 1 || m.max_rooms > 1048576 || m.bootstrap_timeout_ms == 0 ||
		m.waiting_timeout_ms == 0)
		return 0;
	for (i = 0; i < sizeof(m.reserved); i++)
		if (m.reserved[i] != 0)
			return 0;
	if (m.num_components < 1 || m.num_components > 32 || m.num_entries < 1 ||
		m.num_entries > 1024 ||
		len != 136 + 48ull * m.num_components + 56ull * m.num_entries)
		return 0;
	for (i = 0; i < m.num_components; i++) {
		uint32_t n;

		memcpy(&n, p + COMP_ENTRIES(i), sizeof(n));
		sum += n;
	}
	return sum == m.num_entries;
}

static int
agree(const uint8_t *p, size_t len)
{
	struct kvf_registration *r;
	int ok = parse(p, len, &r, NULL) == 0;

	CHECK_EQ(ok, acceptable(p, len));
	CHECK_EQ(ok, r != NULL);
	free(r);
	return ok;
}

static void
test_random_bytes(void)
{
	uint64_t state = suite_seed();
	int i;

	for (i = 0; i < 5000; i++) {
		size_t len = suite_range(&state, 0, 700);
		struct kvf_msg_hdr h = {.magic = KVF_MSG_MAGIC,
			.version = KVF_MSG_VERSION,
			.type = KVF_MSG_REGISTER,
			.length = (uint32_t)len};
		size_t k;

		for (k = 0; k < len; k++)
			buf[k] = (uint8_t)suite_rand(&state);
		if (i % 2 == 0 && len >= sizeof(h))
			memcpy(buf, &h, sizeof(h));
		CHECK_EQ(agree(buf, len), 0);
	}
}

static void
test_random_mutations(void)
{
	static const uint32_t magic[] = {0, 1, 2, 3, 4, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025,
		65536, 0x7fffffff, 0x80000000, 0xffffffff};
	uint64_t state = suite_seed() ^ 0x9e3779b97f4a7c15ull;
	int i, accepted = 0;

	for (i = 0; i < 20000; i++) {
		size_t len = (size_t)pack();
		int n = (int)suite_range(&state, 1, 3);

		while (n-- > 0) {
			size_t word = suite_range(&state, 0, 63);

			switch (suite_range(&state, 0, 3)) {
			case 0:
				buf[suite_range(&state, 0, len - 1)] ^=
					(uint8_t)(1u << suite_range(&state, 0, 7));
				break;
			case 1:
				put32(word * 4, magic[suite_range(&state, 0, 17)]);
				break;
			case 2:
				put32(word * 4, (uint32_t)suite_rand(&state));
				break;
			default:
				len = suite_range(&state, 0, len + 120);
				if (suite_rand(&state) % 2 == 0)
					put32(offsetof(struct kvf_msg_hdr, length), (uint32_t)len);
				break;
			}
			if (len < 256)
				break;
		}
		accepted += agree(buf, len);
	}
	/* Both answers were really tried. */
	CHECK(accepted > 100 && accepted < 19900);
}

static const struct suite_case cases[] = {
	{"register goes through whole", test_round_trip},
	{"zeros become the documented defaults", test_defaults},
	{"largest and too large declarations", test_limits},
	{"config refused with value and limit", test_config_refused},
	{"header: magic, version, type, length", test_header},
	{"register of every wrong length", test_truncated},
	{"counts that lie or overflow", test_count_lies},
	{"fields that lie, string without NUL", test_field_lies},
	{"random bytes", test_random_bytes},
	{"random mutations agree with a second reading", test_random_mutations},
};

SUITE_MAIN("wire_message", cases)
