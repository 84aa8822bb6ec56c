/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hostile endpoints next to an honest pair. The input says what the hostile ones write into their
 * rings and arenas, when they die and come back, when copies finish or fail and how time goes on.
 * The honest pair's request must succeed with the right bytes whatever happens.
 */
#include <sys/random.h>

#include "bytes.h"
#include "common/stepped.h"

enum {
	G_PREFILL,
	G_DECODE,
	G_GOOD_PREFILL,
	G_GOOD_DECODE,
};

#define MAX_OPS     250
#define GOOD_TOKENS 10u
#define MS          1000000ull

static struct stepped eng;
static struct stepped_shape shapes[2]; /* hostile prefill, decode */
static const struct stepped_shape good = {
	.page_tokens = 2, .layers = 2, .row_bytes = 16, .aux = true};
/* Seen by nobody but the honest pair, not even by a fuzzer that watches comparisons: a new one each
 * time. */
static uint64_t key;

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	MUST(getrandom(&key, sizeof(key), 0) == (ssize_t)sizeof(key));
	return 0;
}

static struct stepped_ep *
hostile(struct bytes *b)
{
	uint8_t which = take8(b);

	return eng.eps[which % 2][which / 2 % STEPPED_RANKS];
}

static struct kvf_sqe *
next_entry(struct stepped_ep *e)
{
	uint32_t tail = atomic_load(&e->ep.ring.hdr->sq_tail);

	return &e->ep.ring.sq[tail % e->ep.ring.sq_entries];
}

static void
submit(struct stepped_ep *e)
{
	atomic_fetch_add(&e->ep.ring.hdr->sq_tail, 1);
}

/* A posting that could be right. */
static void
post(struct bytes *b, struct stepped_ep *e)
{
	struct kvf_sqe *s = next_entry(e);
	uint8_t what = take8(b);
	uint32_t l, i, n;

	memset(s, 0, sizeof(*s));
	s->op = what % 8 < 5   ? (e->ep.role == KVF_DECODE ? KVF_OP_RECV : KVF_OP_SEND)
		: what % 8 < 6 ? KVF_OP_ABORT
		: what % 8 < 7 ? KVF_OP_RELEASE
			       : take8(b);
	s->room = what / 8 % 3;
	s->seq = what / 32 % 4 == 0 ? e->ep.last_seq
		 : what / 32 < 7    ? e->ep.last_seq + 1
				    : take_wild(b, 255);
	s->flags = take8(b) % 4;
	s->total = take_range(b, 0, 12);
	s->start = take8(b) % 4 == 0 ? take_wild(b, 12) : 0;
	s->tokens = take8(b) % 3 != 0 ? s->total - s->start : take_wild(b, 12);
	if (take8(b) % 16 == 0)
		s->total = take_wild(b, 24);
	s->bootstrap_timeout_ms = take8(b) % 4 == 0 ? take8(b) : 0;
	if (take8(b) % 8 == 0)
		memcpy(s->group, eng.groups[take8(b) % STEPPED_GROUPS].name, sizeof(s->group));
	s->num_lists = (uint8_t)take_range(b, 0, 4);
	for (l = 0; l < s->num_lists && l < 4; l++) {
		s->lists[l].list = take8(b) % 16 == 0 ? (uint32_t)take_wild(b, 9) : l;
		n = l == 0 ? take_range(b, 0, STEPPED_PAGES) : take_range(b, 0, 3);
		s->lists[l].count = take8(b) % 16 == 0 ? (uint32_t)take_wild(b, 200) : n;
		s->lists[l].arena_off =
			take8(b) % 16 == 0 ? take_wild(b, 255) * 4 : (uint64_t)l * 64;
		for (i = 0; i < n; i++) {
			uint32_t id = take8(b) % (STEPPED_PAGES + 1);

			memcpy(e->ep.ring.arena + l * 64 + i * 4, &id, sizeof(id));
			if (s->lists[l].count <= KVF_SQ_IDS && i < KVF_SQ_IDS)
				s->lists[l].ids[i] = id;
		}
	}
	submit(e);
}

static void
scribble(struct bytes *b, struct stepped_ep *e)
{
	uint8_t *mem = e->ring_mem;
	uint64_t at = take(b, 2) % e->ep.ring.total_bytes, i;
	uint8_t n = take8(b) % 32;

	for (i = at; i < at + n && i < e->ep.ring.total_bytes; i++)
		mem[i] = take8(b);
}

static void
operate(struct bytes *b)
{
	struct stepped_ep *e = hostile(b);
	uint8_t op = take8(b), which;
	uint32_t n;

	switch (op % 16) {
	case 0:
	case 1:
	case 2:
	case 3:
	case 4:
		if (e != NULL)
			post(b, e);
		break;
	case 5: /* any posting */
		for (n = 0; e != NULL && n < sizeof(struct kvf_sqe); n++)
			((uint8_t *)next_entry(e))[n] = take8(b);
		if (e != NULL)
			submit(e);
		break;
	case 6:
		if (e != NULL)
			scribble(b, e);
		break;
	case 7: /* takes its completions, or claims anything */
		if (e != NULL)
			atomic_store(&e->ep.ring.hdr->cq_head,
				op < 224 ? e->ep.cq_tail : (uint32_t)take_wild(b, 32));
		break;
	case 8:
		if (e != NULL && op >= 224)
			atomic_store(&e->ep.ring.hdr->sq_tail, (uint32_t)take_wild(b, 32));
		break;
	case 9:
		if (e != NULL && op >= 128)
			stepped_kill(&eng, e);
		break;
	case 10: /* comes back, perhaps as something else */
		which = take8(b);
		if (eng.eps[which % 2][which / 2 % STEPPED_RANKS] != NULL ||
			which / 2 % STEPPED_RANKS >= eng.groups[which % 2].size || eng.num_eps > 40)
			break;
		if (which >= 192)
			shapes[which % 2].row_bytes ^= 8;
		stepped_add(&eng, which % 2, which / 2 % STEPPED_RANKS, &shapes[which % 2]);
		break;
	case 11:
		eng.hold = op >= 128;
		break;
	case 12:
		eng.fail = op >= 192 ? 1 : 0;
		break;
	case 13:
		stepped_control(&eng);
		break;
	case 14:
		stepped_step(&eng, take8(b) * (op >= 224 ? 10 * MS : 10000));
		break;
	default:
		for (n = op / 16; n > 0; n--) {
			stepped_step(&eng, 20000);
			stepped_control(&eng);
		}
		break;
	}
}

/* The honest ones. */

static uint8_t
good_byte(uint32_t layer, uint32_t pos, uint32_t i)
{
	return (uint8_t)(layer * 101 + pos * 13 + i * 7 + 3);
}

static void
good_post(struct stepped_ep *e, uint8_t op, uint32_t start, uint32_t tokens, uint32_t first_page)
{
	uint32_t pages = (tokens + 1) / 2, i, aux = 5,
		 *arena = (uint32_t *)(void *)e->ep.ring.arena;
	struct kvf_sqe *s = next_entry(e);

	memset(s, 0, sizeof(*s));
	s->op = op;
	s->room = 1; /* the hostile ones use it too */
	s->seq = 1;
	s->key = key;
	s->start = start;
	s->tokens = tokens;
	s->total = GOOD_TOKENS;
	s->bootstrap_timeout_ms = s->waiting_timeout_ms = 100000000;
	s->num_lists = 2;
	s->lists[0] = (struct kvf_sq_list){.list = 0, .count = pages};
	s->lists[1] = (struct kvf_sq_list){.list = 2, .count = 1, .ids = {aux}};
	if (op == KVF_OP_SEND && start + tokens < GOOD_TOKENS)
		s->lists[1].count = 0;
	if (pages <= KVF_SQ_IDS)
		arena = s->lists[0].ids;
	for (i = 0; i < pages; i++)
		arena[i] = first_page - i;
	submit(e);
}

static struct kvf_entry
good_entry(const struct stepped_ep *e, uint32_t layer)
{
	return e->ep.reg->components[0].entries[layer];
}

static void
good_start(struct stepped_ep *p, struct stepped_ep *d)
{
	uint32_t layer, pos, i;

	/* Position p of the sender lies in page 7 - p / 2, as the lists say. */
	for (layer = 0; layer < good.layers; layer++)
		for (pos = 0; pos < GOOD_TOKENS; pos++)
			for (i = 0; i < good.row_bytes; i++)
				((uint8_t *)p->pool)[good_entry(p, layer).offset +
						     (7 - pos / 2) * 32 + pos % 2 * 16 + i] =
					good_byte(layer, pos, i);
	good_post(d, KVF_OP_RECV, 0, GOOD_TOKENS, 4);
	good_post(p, KVF_OP_SEND, 0, 4, 7);
}

static void
good_check(struct stepped_ep *d)
{
	uint32_t layer, pos, i;

	for (layer = 0; layer < good.layers; layer++)
		for (pos = 0; pos < GOOD_TOKENS; pos++)
			for (i = 0; i < good.row_bytes; i++)
				MUST(((uint8_t *)d->pool)[good_entry(d, layer).offset +
							  (4 - pos / 2) * 32 + pos % 2 * 16 + i] ==
					good_byte(layer, pos, i));
}

static bool
good_done(const struct stepped_ep *e)
{
	return e->num_seen == 1 && (e->seen[0].flags & KVF_CQE_DRAINED) != 0;
}

static void
settle(uint32_t steps, uint64_t ns)
{
	for (; steps > 0; steps--) {
		stepped_step(&eng, ns);
		stepped_control(&eng);
	}
}

static void
take_shape(struct bytes *b, struct stepped_shape *s)
{
	uint8_t what = take8(b);

	*s = (struct stepped_shape){
		.page_tokens = 1 + what % 4,
		.layers = 1 + what / 4 % 2,
		.row_bytes = 16,
		.sharded = what & 8,
		.band = what & 16,
		.state = what & 32,
		.aux = what & 64,
	};
	what = take8(b);
	s->state_rule = what % 4;
	s->state_tokens = s->state_rule == KVF_STATE_ONE ? 1 : 1 + what / 4 % 3;
}

static void
finish(void)
{
	struct stepped_ep *p = eng.eps[G_GOOD_PREFILL][0], *d = eng.eps[G_GOOD_DECODE][0];
	uint32_t g, k;

	/* Neighbours that misbehave may not slow it down without end, let alone stop it. */
	eng.hold = false;
	good_post(p, KVF_OP_SEND, 4, GOOD_TOKENS - 4, 5);
	for (k = 0; k < 2000 && !(good_done(p) && good_done(d)); k++)
		settle(1, 1000);
	MUST(good_done(p) && p->seen[0].status == KVF_SUCCESS);
	MUST(good_done(d) && d->seen[0].status == KVF_SUCCESS);
	good_check(d);
	for (g = 0; g < STEPPED_GROUPS; g++)
		for (k = 0; k < STEPPED_RANKS; k++)
			if (eng.eps[g][k] != NULL)
				stepped_kill(&eng, eng.eps[g][k]);
	for (k = 0; k < 200 && eng.num_eps != 0; k++)
		settle(1, 2 * MS);
	settle(1, 2 * MS);
	stepped_fini(&eng);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes b = {data, size};
	uint8_t sizes = take8(&b);
	uint32_t i;

	key = key * 0x9e3779b97f4a7c15ull + 0x632be59bd9b4e019ull;
	stepped_init(&eng);
	eng.spared = 1u << G_GOOD_DECODE;
	stepped_group(&eng, G_PREFILL, KVF_PREFILL, 1 + sizes % 2, "bad-p");
	stepped_group(&eng, G_DECODE, KVF_DECODE, 1 + sizes / 2 % 2, "bad-d");
	stepped_group(&eng, G_GOOD_PREFILL, KVF_PREFILL, 1, "good-p");
	stepped_group(&eng, G_GOOD_DECODE, KVF_DECODE, 1, "good-d");
	take_shape(&b, &shapes[0]);
	if (sizes & 4)
		take_shape(&b, &shapes[1]);
	else
		shapes[1] = shapes[0];
	for (i = 0; i < eng.groups[G_PREFILL].size; i++)
		stepped_add(&eng, G_PREFILL, i, &shapes[0]);
	for (i = 0; i < eng.groups[G_DECODE].size; i++)
		stepped_add(&eng, G_DECODE, i, &shapes[1]);
	good_start(stepped_add(&eng, G_GOOD_PREFILL, 0, &good),
		stepped_add(&eng, G_GOOD_DECODE, 0, &good));
	settle(3, 1000);
	for (i = 0; i < MAX_OPS && b.left > 0; i++)
		operate(&b);
	finish();
	return 0;
}
