/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include <rte_ring.h>
#include <rte_ring_elem.h>

#include "base/err.h"
#include "fuzz/bytes.h"
#include "common/stepped.h"

#define NOTES 1024u
#define DEPTH 4u

struct batch {
	struct kvf_copy copies[KVF_COPY_BATCH_MAX];
	uint32_t n;
	uint64_t tag;
};

struct kvf_copy_channel {
	struct stepped *eng;
	struct batch batches[DEPTH];
	uint32_t depth;
};

static struct kvf_copy_channel channel;
static struct kvf_slab slab; /* between two rigs */

/* Which endpoint's pool holds [at, at + n)? */
static struct kvf_ep *
owner(struct kvf_dispatcher *d, const uint8_t *at, uint64_t n)
{
	uint32_t i;

	for (i = 0; i < d->num_eps; i++) {
		const uint8_t *base = d->eps[i]->pool.base;

		if (at >= base && at + n <= base + d->eps[i]->pool.length)
			return d->eps[i];
	}
	return NULL;
}

/* The entries here are dense, one after the other. */
static void
check_granted(const struct kvf_ep *ep, uint64_t off, uint64_t n)
{
	uint32_t c, i;

	for (c = 0; c < ep->reg->geometry.num_components; c++) {
		const struct kvf_component *comp = &ep->reg->geometry.components[c];

		for (i = 0; i < comp->num_entries; i++) {
			const struct kvf_entry *e = &comp->entries[i];
			uint64_t page;

			if (off < e->offset || off >= e->offset + e->page_stride * comp->num_pages)
				continue;
			page = (off - e->offset) / e->page_stride;
			/* A run of adjacent rows may go on in the next page. */
			for (; e->offset + page * e->page_stride < off + n; page++) {
				MUST(page < comp->num_pages);
				MUST(ep->grants[comp->list][page] != 0);
			}
			return;
		}
	}
	MUST(!"inside an entry");
}

static bool
receives(const struct kvf_slot *slot, const struct kvf_ep *ep)
{
	uint32_t k;

	for (k = 0; k < slot->num_subs; k++)
		if (slot->subs[k].leg->dst->ep == ep)
			return true;
	return false;
}

static void
execute(struct stepped *r, const struct batch *b)
{
	const struct kvf_slot *slot = &r->copy->slots[(uint32_t)b->tag];
	uint32_t i;
	uint64_t row;

	for (i = 0; i < slot->num_subs; i++)
		MUST(!slot->subs[i].leg->src->drained && !slot->subs[i].leg->dst->drained);
	for (i = 0; i < b->n; i++) {
		const struct kvf_copy *c = &b->copies[i];

		MUST(c->rows > 0 && c->row_bytes > 0);
		for (row = 0; row < c->rows; row++) {
			const uint8_t *src = c->src + row * c->src_stride;
			uint8_t *dst = c->dst + row * c->dst_stride;
			struct kvf_ep *from = owner(r->disp, src, c->row_bytes);
			struct kvf_ep *to = owner(r->disp, dst, c->row_bytes);

			MUST(from != NULL && from == slot->subs[0].leg->src->ep);
			MUST(to != NULL && receives(slot, to));
			check_granted(to, (uint64_t)(dst - (uint8_t *)to->pool.base), c->row_bytes);
			memmove(dst, src, c->row_bytes);
			r->executed++;
		}
	}
}

static int
stepped_submit(struct kvf_copy_channel *ch, const struct kvf_copy *copies, uint32_t n,
	uint32_t flags, uint64_t tag)
{
	struct batch *b = &ch->batches[ch->depth];
	uint64_t bytes = 0;
	uint32_t i;

	(void)flags;
	MUST(n > 0 && n <= KVF_COPY_BATCH_MAX);
	if (ch->depth == DEPTH)
		return KVF_E_AGAIN;
	memcpy(b->copies, copies, n * sizeof(*copies));
	b->n = n;
	b->tag = tag;
	for (i = 0; i < n; i++)
		bytes += copies[i].rows * copies[i].row_bytes;
	if (bytes > ch->eng->longest)
		ch->eng->longest = bytes;
	ch->depth++;
	return 0;
}

/* The last one first: devices finish in any order. */
static uint32_t
stepped_poll(struct kvf_copy_channel *ch, struct kvf_copy_done *done, uint32_t max)
{
	struct stepped *r = ch->eng;
	uint32_t n = 0;

	while (!r->hold && n < max && ch->depth > 0) {
		struct batch *b = &ch->batches[--ch->depth];
		const struct kvf_slot *slot = &r->copy->slots[(uint32_t)b->tag];
		bool spared = (r->spared & 1u << slot->subs[0].leg->dst->ep->group->id) != 0;

		done[n] = (struct kvf_copy_done){.tag = b->tag};
		if (r->fail > 0 && !spared) {
			r->fail--;
			done[n].error = KVF_E_DEVICE;
		} else {
			execute(r, b);
		}
		n++;
	}
	return n;
}

static const struct kvf_copy_ops ops = {
	.name = "eng", .submit = stepped_submit, .poll = stepped_poll};

/* The large pieces are kept from one engine to the next: fresh memory costs more than all the rest.
 */
static void *
kept(void **mem, size_t bytes)
{
	if (*mem == NULL)
		*mem = aligned_alloc(64, (bytes + 63) / 64 * 64);
	MUST(*mem != NULL);
	return *mem;
}

static struct rte_ring *
notes_create(void **mem)
{
	ssize_t bytes = rte_ring_get_memsize_elem(sizeof(struct kvf_note), NOTES);
	struct rte_ring *ring;

	MUST(bytes > 0);
	ring = kept(mem, (size_t)bytes);
	MUST(rte_ring_init(ring, "eng", NOTES, RING_F_SP_ENQ | RING_F_SC_DEQ) == 0);
	return ring;
}

void
stepped_init(struct stepped *r)
{
	static void *mem[4];
	struct kvf_dispatcher *d = kept(&mem[0], sizeof(*d));
	struct kvf_copy_shared *sh = kept(&mem[1], sizeof(*sh));

	memset(r, 0, sizeof(*r));
	memset(d, 0, sizeof(*d));
	memset(sh, 0, sizeof(*sh));
	r->disp = r->engine.disp = d;
	r->copy = r->engine.copy = sh;
	r->engine.ops = &ops;
	r->engine.cfg.quiet = true;
	r->engine.cfg.max_request_bytes = 64u << 10;
	r->engine.cfg.max_endpoints = STEPPED_GROUPS * STEPPED_RANKS;
	r->engine.cfg.drain_ms = 50;
	r->engine.notes_fd = r->engine.control_fd = r->engine.bells_fd = -1;
	r->engine.to_dispatcher = notes_create(&mem[2]);
	r->engine.to_control = notes_create(&mem[3]);
	channel = (struct kvf_copy_channel){.eng = r};
	sh->ops = &ops;
	sh->channel_depth = DEPTH;
	sh->copiers = aligned_alloc(64, (sizeof(struct kvf_copier) + 63) / 64 * 64);
	MUST(sh->copiers != NULL);
	memset(sh->copiers, 0, sizeof(struct kvf_copier));
	sh->copiers[0].shared = sh;
	sh->copiers[0].num_channels = 1;
	sh->copiers[0].channels[0] = &channel;
	sh->copiers[0].wake_fd = -1;
	d->engine = &r->engine;
	d->copier = &sh->copiers[0];
	d->copy = sh;
	d->hz = 1000000000;
	kvf_timers_init(d);
	d->hash_seed = 42;
	d->free_slots = KVF_SLOTS_ALL;
	d->eps = calloc(64, sizeof(struct kvf_ep *));
	MUST(d->eps != NULL);
	d->slab = slab;
	r->now = 1000000000;
	r->max_rooms = 6;
	r->sq_entries = 8;
	r->cq_entries = 16;
	r->arena_bytes = 1024;
}

void
stepped_group(struct stepped *r, uint32_t index, uint32_t role, uint32_t size, const char *name)
{
	struct kvf_ep_group *g = &r->groups[index];

	g->id = index;
	g->role = role;
	g->size = size;
	snprintf(g->name, sizeof(g->name), "%s", name);
}

static struct kvf_component *
component(struct kvf_registration *reg, uint32_t cls, uint32_t list, uint32_t page_tokens)
{
	struct kvf_component *c = &reg->components[reg->geometry.num_components++];

	*c = (struct kvf_component){
		.cls = cls, .list = list, .page_tokens = page_tokens, .num_pages = STEPPED_PAGES};
	c->sharding = (struct kvf_sharding){1, 0, 1, 0};
	c->entries = &reg->entries[reg->msg.num_entries];
	return c;
}

static void
entry(struct kvf_registration *reg, struct kvf_component *c, uint32_t layer, uint32_t row_bytes)
{
	struct kvf_entry *e = &reg->entries[reg->msg.num_entries++];

	*e = (struct kvf_entry){.offset = reg->msg.pool_length,
		.page_stride = (uint64_t)row_bytes * c->page_tokens,
		.row_stride = row_bytes,
		.row_bytes = row_bytes,
		.layer = layer,
		.kind = KVF_KIND_LATENT,
		.head_count = 1,
		.head_total = 1};
	c->num_entries++;
	reg->msg.pool_length += e->page_stride * c->num_pages;
}

static struct kvf_registration *
declare(const struct stepped_shape *s, const struct kvf_ep_group *g, uint32_t rank)
{
	struct kvf_registration *reg =
		calloc(1, sizeof(*reg) + STEPPED_ENTRIES * sizeof(struct kvf_entry));
	struct kvf_component *c;
	struct kvf_err err;
	uint32_t i;

	MUST(reg != NULL);
	reg->geometry.components = reg->components;
	c = component(reg, KVF_TOKENS, 0, s->page_tokens);
	if (s->sharded)
		c->sharding =
			(struct kvf_sharding){g->size, rank, s->band ? s->page_tokens : 1, s->band};
	for (i = 0; i < s->layers; i++)
		entry(reg, c, i, i == 1 && s->row_bytes1 != 0 ? s->row_bytes1 : s->row_bytes);
	if (s->state) {
		c = component(reg, KVF_STATE, 1, s->state_tokens);
		c->rule = s->state_rule;
		entry(reg, c, 0, 24);
	}
	if (s->aux)
		entry(reg, component(reg, KVF_AUX, 2, 1), 0, 40);
	reg->msg.bootstrap_timeout_ms = 300;
	reg->msg.waiting_timeout_ms = 300;
	reg->msg.num_components = reg->geometry.num_components;
	MUST(kvf_geometry_check(&reg->geometry, reg->msg.pool_length, &err) == 0);
	return reg;
}

struct stepped_ep *
stepped_add(struct stepped *r, uint32_t index, uint32_t rank, const struct stepped_shape *shape)
{
	struct stepped_ep *e = aligned_alloc(64, (sizeof(*e) + 63) / 64 * 64);
	struct kvf_ep_group *g = &r->groups[index];
	struct kvf_note note = {.type = NOTE_EP_ADD};
	uint64_t ring = kvf_ring_bytes(r->sq_entries, r->cq_entries, r->arena_bytes);
	struct kvf_ep *ep;
	uint32_t i, l;

	MUST(e != NULL && r->eps[index][rank] == NULL && ring != 0);
	memset(e, 0, sizeof(*e));
	ep = &e->ep;
	e->group = index;
	ep->role = g->role;
	ep->rank = rank;
	ep->max_rooms = r->max_rooms;
	ep->group = g;
	ep->reg = declare(shape, g, rank);
	ep->wake_fd = ep->doorbell_fd = -1;
	snprintf(ep->name, sizeof(ep->name), "%s[%u]", g->name, rank);
	e->pool = malloc(ep->reg->msg.pool_length);
	e->ring_mem = aligned_alloc(4096, ring);
	MUST(e->pool != NULL && e->ring_mem != NULL);
	memset(e->pool, (int)(index * 16 + rank + 1), ep->reg->msg.pool_length);
	memset(e->ring_mem, 0, ring);
	ep->pool.base = e->pool;
	ep->pool.length = ep->reg->msg.pool_length;
	kvf_ring_format(e->ring_mem, r->sq_entries, r->cq_entries, r->arena_bytes, &ep->ring);
	for (i = 0; i < ep->reg->geometry.num_components; i++)
		ep->list_limit[ep->reg->components[i].list] = ep->reg->components[i].num_pages;
	for (l = 0; ep->role == KVF_DECODE && l < KVF_MAX_LISTS; l++) {
		if (ep->list_limit[l] == 0)
			continue;
		ep->grants[l] = calloc(ep->list_limit[l], sizeof(uint32_t));
		MUST(ep->grants[l] != NULL);
	}
	g->members[rank] = ep;
	g->joined++;
	g->endpoints++;
	r->num_eps++;
	r->eps[index][rank] = e;
	note.ep = ep;
	kvf_tell_dispatcher(&r->engine, &note);
	return e;
}

void
stepped_kill(struct stepped *r, struct stepped_ep *e)
{
	struct kvf_note note = {.type = NOTE_EP_DEAD, .ep = &e->ep};

	if (e->dead_sent)
		return;
	e->dead_sent = true;
	e->ep.group->members[e->ep.rank] = NULL;
	e->ep.group->joined--;
	r->eps[e->group][e->ep.rank] = NULL;
	kvf_tell_dispatcher(&r->engine, &note);
}

static void
drop_wants(struct stepped *r, const struct kvf_ep_group *g)
{
	uint32_t i = 0;

	while (i < r->num_wants) {
		struct kvf_note note = {
			.type = NOTE_LINK, .prefill = r->wants[i][0], .decode = r->wants[i][1]};

		if (r->wants[i][0] != g && r->wants[i][1] != g) {
			i++;
			continue;
		}
		r->num_wants--;
		memcpy(r->wants[i], r->wants[r->num_wants], sizeof(r->wants[i]));
		kvf_tell_dispatcher(&r->engine, &note);
	}
}

static void
gone(struct stepped *r, struct stepped_ep *e)
{
	struct kvf_ep_group *g = e->ep.group;
	uint32_t l;

	MUST(e->ep.parts == NULL && e->ep.request_bytes == 0 && e->ep.num_chunks == 0);
	for (l = 0; l < KVF_MAX_LISTS; l++)
		free(e->ep.grants[l]);
	free(e->ep.reg);
	free(e->pool);
	free(e->ring_mem);
	free(e);
	r->num_eps--;
	if (--g->endpoints == 0)
		drop_wants(r, g);
}

static void
serve_wants(struct stepped *r)
{
	uint32_t i = 0, k;

	while (i < r->num_wants) {
		struct kvf_ep_group *p = r->wants[i][0], *d = r->wants[i][1];
		const struct kvf_geometry *pg[STEPPED_RANKS], *dg[STEPPED_RANKS];
		struct kvf_note note = {.type = NOTE_LINK, .prefill = p, .decode = d};

		if (p->joined != p->size || d->joined != d->size) {
			i++;
			continue;
		}
		for (k = 0; k < p->size; k++)
			pg[k] = &p->members[k]->reg->geometry;
		for (k = 0; k < d->size; k++)
			dg[k] = &d->members[k]->reg->geometry;
		if (kvf_link_build(pg, p->size, dg, d->size, &note.link, &note.err) != 0)
			note.link = NULL;
		r->num_wants--;
		memcpy(r->wants[i], r->wants[r->num_wants], sizeof(r->wants[i]));
		kvf_tell_dispatcher(&r->engine, &note);
	}
}

void
stepped_control(struct stepped *r)
{
	struct kvf_note note;

	while (kvf_note_take(r->engine.to_control, &note)) {
		switch (note.type) {
		case NOTE_EP_FAULT:
			MUST(note.ep->fault.code < 0 && note.ep->fault.text[0] != '\0');
			stepped_kill(r, (struct stepped_ep *)(void *)note.ep);
			break;
		case NOTE_EP_GONE:
			gone(r, (struct stepped_ep *)(void *)note.ep);
			break;
		case NOTE_LINK_WANT:
			MUST(r->num_wants < 64);
			r->wants[r->num_wants][0] = note.prefill;
			r->wants[r->num_wants++][1] = note.decode;
			break;
		case NOTE_LINK_FREE:
			kvf_link_free(note.link);
			break;
		default:
			MUST(note.type == NOTE_WARN || note.type == NOTE_STOPPED);
			break;
		}
	}
	serve_wants(r);
}

static void
check_completion(struct stepped_ep *e, const struct kvf_cqe *cqe)
{
	struct stepped_seen *s = NULL;
	uint32_t i;

	if (cqe->flags & KVF_CQE_ENDPOINT)
		return;
	for (i = 0; i < e->num_seen && s == NULL; i++)
		if (e->seen[i].seq == cqe->seq)
			s = &e->seen[i];
	MUST(cqe->status <= KVF_SUCCESS && (cqe->error != 0) == (cqe->status == KVF_FAILED));
	if ((cqe->flags & KVF_CQE_DRAINED) != 0)
		MUST(cqe->status == KVF_FAILED || cqe->status == KVF_SUCCESS);
	if (s == NULL) {
		if (e->num_seen == STEPPED_SEEN)
			return;
		s = &e->seen[e->num_seen++];
	} else {
		if (s->status == KVF_FAILED || s->status == KVF_SUCCESS)
			MUST(cqe->status == s->status);
		MUST(cqe->status == KVF_FAILED || cqe->status >= s->status);
		MUST((s->flags & KVF_CQE_DRAINED) == 0 || (cqe->flags & KVF_CQE_DRAINED) != 0);
	}
	*s = (struct stepped_seen){cqe->seq, cqe->status, cqe->flags};
}

void
stepped_step(struct stepped *r, uint64_t ns)
{
	const struct kvf_leg *leg;
	uint32_t g, k;
	bool at_rest;

	r->now += ns;
	kvf_dispatcher_step(r->disp, r->now, &at_rest);
	r->at_rest |= at_rest;
	for (leg = r->disp->run_head; leg != NULL; leg = leg->queue_next)
		MUST(leg->queued && leg->phase != KVF_PHASE_DONE);
	for (g = 0; g < STEPPED_GROUPS; g++)
		for (k = 0; k < STEPPED_RANKS; k++) {
			struct stepped_ep *e = r->eps[g][k];

			for (; e != NULL && e->seen_tail != e->ep.cq_tail; e->seen_tail++)
				check_completion(
					e, &e->ep.ring.cq[e->seen_tail % e->ep.ring.cq_entries]);
		}
}

void
stepped_fini(struct stepped *r)
{
	uint32_t g;

	MUST(r->num_eps == 0);
	MUST(r->disp->num_eps == 0 && r->disp->num_rooms == 0);
	MUST(r->disp->links == NULL && r->num_wants == 0);
	MUST(r->disp->run_head == NULL && r->disp->sweep_head == NULL);
	MUST(r->disp->free_slots == KVF_SLOTS_ALL);
	MUST(r->disp->slab.bytes_used == 0);
	for (g = 0; g < STEPPED_GROUPS; g++)
		MUST(r->groups[g].room_refs == 0);
	slab = r->disp->slab;
	free(r->disp->eps);
	free(r->copy->copiers);
}
