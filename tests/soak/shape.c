/* SPDX-License-Identifier: BSD-3-Clause */
/* Who the endpoints are and what rooms are drawn. */
#include <string.h>
#include <time.h>

#include "common/suite.h"
#include "soak/soak.h"

#define LONGEST 400u

const struct soak_family soak_families[SOAK_FAMILIES] = {
	/* N->M, N->N, replicas, drafts, unequal pages and interleaves */
	{1, 7, 1, 1, 1, 16, 4, 64, 2, 0, 64, 0},
	{2, 6, 1, 1, 1, 4, 4, 128, 1, 0, 64, 192},
	{4, 4, 4, 1, 1, 8, 8, 128, 2, 0, 0, 0},
	{3, 5, 3, 1, 1, 2, 4, 256, 1, 0, 64, 0},
	{4, 4, 1, 1, 1, 4, 4, 64, 1, 1, 128, 128},
	{6, 2, 6, 4, 1, 4, 8, 192, 1, 0, 64, 0},
	{7, 1, 7, 1, 1, 1, 16, 64, 2, 0, 0, 64},
	{4, 4, 2, 2, 1, 16, 1, 128, 1, 0, 64, 0},
};

bool
soak_is_prefill(uint32_t family, uint32_t member)
{
	return member < soak_families[family].prefill;
}

uint32_t
soak_proc_of(uint32_t family, uint32_t member)
{
	if (soak_is_prefill(family, member))
		return family % SOAK_PROCS;
	/* Of odd families the decode group is torn as well. */
	return (family + 1 + (family % 2 != 0 ? member % 2 : 0)) % SOAK_PROCS;
}

void
soak_declare(struct peer *p, uint32_t family, uint32_t member, uint32_t places)
{
	const struct soak_family *f = &soak_families[family];
	bool prefill = soak_is_prefill(family, member);
	uint32_t rank = prefill ? member : member - f->prefill, page, pages;
	struct kvf_sharding sh = {f->decode, rank, f->decode_interleave, 0};
	struct peer_shape shape;

	if (prefill)
		sh = (struct kvf_sharding){
			f->prefill_shards, rank % f->prefill_shards, f->prefill_interleave, 0};
	page = prefill ? f->prefill_page : f->decode_page;
	/* A room has 32 tokens on average, and half a page more at each end. */
	pages = places * 32 / sh.size / page + places + LONGEST;
	pages += pages / 4;
	shape = (struct peer_shape){.layers = f->layers,
		.first_layer = 3,
		.row_bytes = f->row_bytes,
		.page_tokens = page,
		.num_pages = pages,
		.sharding = sh,
		.aux_bytes = f->aux,
		.state_bytes = f->state,
		.draft_layers = f->draft,
		.slots = places + 16};
	peer_mla(p, &shape);
	p->role = prefill ? KVF_PREFILL : KVF_DECODE;
	p->group[0] = prefill ? 'p' : 'd';
	p->group[1] = (char)('0' + family);
	p->group[2] = '\0';
	p->group_size = prefill ? f->prefill : f->decode;
	p->rank = rank;
}

static uint8_t
draw_kind(uint64_t *rand)
{
	static const uint8_t weight[SOAK_KINDS] = {60, 24, 8, 2, 2, 2, 2};
	uint64_t x = suite_range(rand, 0, 99);
	uint8_t k;

	for (k = 0; x >= weight[k]; k++)
		x -= weight[k];
	return k;
}

void
soak_draw(struct soak_room *r, uint32_t family, bool plain, uint64_t *rand)
{
	const struct soak_family *f = &soak_families[family];
	uint64_t virtual_page = (uint64_t)f->decode_page * f->decode;
	uint64_t size = suite_range(rand, 0, 99);

	r->nonce = suite_rand(rand);
	r->key = suite_range(rand, 0, 1) != 0 ? suite_rand(rand) : 0;
	r->total = (uint32_t)(size < 80   ? suite_range(rand, 0, 24)
			      : size < 95 ? suite_range(rand, 25, 96)
					  : suite_range(rand, 97, LONGEST));
	r->prefix = 0;
	if (suite_range(rand, 0, 3) == 0)
		r->prefix =
			(uint32_t)(suite_range(rand, 0, r->total / virtual_page) * virtual_page);
	r->kind = plain ? SOAK_NORMAL : draw_kind(rand);
	r->actor = (uint8_t)suite_range(rand, 0, SOAK_MEMBERS - 1);
	if (r->kind == SOAK_DUP)
		r->actor = (uint8_t)suite_range(rand, f->prefill, SOAK_MEMBERS - 1);
	r->second = suite_range(rand, 0, 3) == 0 ? (uint8_t)suite_range(rand, 0, SOAK_MEMBERS - 1)
						 : r->actor;
	r->named = suite_range(rand, 0, 1) != 0;
	r->verify = suite_range(rand, 0, 7) == 0;
	r->swift = suite_range(rand, 0, 1) != 0;
	r->timeout_ms = 0;
	r->prefill_only = r->decode_only = false;
	if (r->kind == SOAK_ALONE) {
		if (r->actor < f->prefill)
			r->prefill_only = true;
		else
			r->decode_only = true;
		if (suite_range(rand, 0, 1) != 0)
			r->timeout_ms = (uint32_t)suite_range(rand, 100, 1500);
		r->second = r->actor;
	}
	/* Whoever shows another key is by itself, and so are the others. */
	if (r->kind == SOAK_KEY)
		r->timeout_ms = (uint32_t)suite_range(rand, 500, 1500);
}

uint64_t
soak_mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x7fb5d329728ea185ull;
	x ^= x >> 27;
	x *= 0x81dadef4bc2dd44dull;
	x ^= x >> 33;
	return x;
}

uint64_t
soak_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void
soak_count(struct soak_table *t, enum soak_counter c, uint64_t n)
{
	atomic_fetch_add_explicit(&t->counters[c], n, memory_order_relaxed);
}

static uint32_t
bucket_of(uint64_t ns)
{
	uint32_t e;

	if (ns < 8)
		return (uint32_t)ns;
	e = 63u - (uint32_t)__builtin_clzll(ns);
	return e * 8 + (uint32_t)(ns >> (e - 3) & 7);
}

void
soak_time(struct soak_table *t, enum soak_time which, uint64_t ns)
{
	struct soak_hist *h = &t->times[which];
	uint64_t max = atomic_load_explicit(&h->max, memory_order_relaxed);

	atomic_fetch_add_explicit(&h->n, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->bucket[bucket_of(ns)], 1, memory_order_relaxed);
	while (ns > max && !atomic_compare_exchange_weak(&h->max, &max, ns))
		;
}

uint64_t
soak_percentile(const struct soak_hist *h, double share)
{
	uint64_t n = atomic_load(&h->n), sum = 0;
	uint32_t i;

	for (i = 0; i < 64 * 8; i++) {
		sum += atomic_load(&h->bucket[i]);
		if (sum > 0 && (double)sum >= share * (double)n)
			break;
	}
	/* The bucket's upper end. */
	if (i < 24)
		return i;
	return (8ull + i % 8 + 1) << (i / 8 - 3);
}
