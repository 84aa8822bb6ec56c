/* SPDX-License-Identifier: BSD-3-Clause */
/* The prefill side: fills its pages and sends a prompt of 100 tokens in two chunks. */
#include <stdio.h>
#include <string.h>

#include <kvferry/kvferry.h>

#define LAYERS 4
#define ROW    1152 /* bytes that one token has in one layer */
#define PAGE   16   /* tokens in a page */
#define PAGES  64   /* pages in the pool */
#define TOKENS 100
#define CHUNK  64
#define ROOM   42 /* both sides know the request by this number */

static int
fail(const char *what, const struct kvf_err *err)
{
	fprintf(stderr, "prefill: %s: %s: %s\n", what, kvf_error_name(err->code), err->text);
	return 1;
}

int
main(int argc, char **argv)
{
	/* Where the rows lie: layer after layer, each with all its pages. */
	struct kvf_entry entries[LAYERS];
	struct kvf_component tokens = {.cls = KVF_TOKENS,
		.list = 0,
		.page_tokens = PAGE,
		.num_pages = PAGES,
		.num_entries = LAYERS,
		.sharding = {1, 0, 1, 0}, /* this rank holds every position */
		.entries = entries};
	struct kvf_geometry geometry = {.num_components = 1, .components = &tokens};
	struct kvf_pool_config pool_config = {.length = (uint64_t)LAYERS * PAGES * PAGE * ROW,
		.numa_node = -1,
		.flags = KVF_POOL_ALLOW_4K};
	struct kvf_endpoint_config config = {.socket = argc > 1 ? argv[1] : NULL,
		.role = KVF_PREFILL,
		.group = "example-prefill",
		.group_size = 1,
		.rank = 0,
		.geometry = &geometry};
	/* The pages of the prompt, as an allocator might have chosen them. */
	const uint32_t pages[] = {7, 3, 12, 40, 9, 63, 1};
	struct kvf_endpoint *ep = NULL;
	struct kvf_pool *pool = NULL;
	struct kvf_event event = {0};
	struct kvf_err err = {0};
	uint64_t start;

	for (uint32_t l = 0; l < LAYERS; l++)
		entries[l] = (struct kvf_entry){.offset = (uint64_t)l * PAGES * PAGE * ROW,
			.page_stride = PAGE * ROW,
			.row_stride = ROW,
			.row_bytes = ROW,
			.layer = l,
			.kind = KVF_KIND_LATENT,
			.head_count = 1,
			.head_total = 1};
	if (kvf_pool_create(&pool_config, &pool, &err) != 0)
		return fail("pool", &err);
	config.pool = pool;
	if (kvf_endpoint_open(&config, &ep, &err) != 0)
		return fail("open", &err);

	for (start = 0; start < TOKENS; start += CHUNK) {
		uint64_t n = TOKENS - start < CHUNK ? TOKENS - start : CHUNK;
		struct kvf_pages list = {.list = 0,
			.count = (uint32_t)(n + PAGE - 1) / PAGE,
			.ids = pages + start / PAGE};
		struct kvf_send_args send = {.room = ROOM,
			.start_token = start,
			.num_tokens = n,
			.total_tokens = TOKENS,
			.lists = &list,
			.num_lists = 1};

		/* "Compute": every byte of a row is token + layer. */
		for (uint64_t t = start; t < start + n; t++)
			for (uint32_t l = 0; l < LAYERS; l++)
				memset((char *)kvf_pool_addr(pool) + entries[l].offset +
						pages[t / PAGE] * entries[l].page_stride +
						t % PAGE * ROW,
					(int)(t + l), ROW);
		if (kvf_send(ep, &send, &err) != 0)
			return fail("send", &err);
	}

	/* Drained: the engine reads these pages no more. */
	while (!event.drained) {
		if (kvf_wait(ep, 10000) != 1) {
			fprintf(stderr, "prefill: no news from kvferryd\n");
			return 1;
		}
		kvf_poll(ep, &event, 1);
	}
	if (event.status != KVF_SUCCESS) {
		kvf_room_error(ep, ROOM, &err);
		return fail("transfer", &err);
	}
	printf("prefill: %llu tokens sent\n", (unsigned long long)event.tokens);
	kvf_room_release(ep, ROOM, NULL);
	kvf_endpoint_close(ep);
	kvf_pool_destroy(pool);
	return 0;
}
