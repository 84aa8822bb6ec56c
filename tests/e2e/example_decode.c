/* SPDX-License-Identifier: BSD-3-Clause */
/* The decode side, one rank of a DCP group: gets the tokens that it owns, wherever they were. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvferry/kvferry.h>

#define LAYERS 4
#define ROW    1152
#define PAGE   16
#define PAGES  64
#define TOKENS 100
#define ROOM   42

static int
fail(const char *what, const struct kvf_err *err)
{
	fprintf(stderr, "decode: %s: %s: %s\n", what, kvf_error_name(err->code), err->text);
	return 1;
}

/* usage: example_decode [SOCKET [DCP_SIZE DCP_RANK]] */
int
main(int argc, char **argv)
{
	uint32_t size = argc > 3 ? (uint32_t)atoi(argv[2]) : 1;
	uint32_t rank = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
	struct kvf_entry entries[LAYERS];
	struct kvf_component tokens = {.cls = KVF_TOKENS,
		.list = 0,
		.page_tokens = PAGE,
		.num_pages = PAGES,
		.num_entries = LAYERS,
		.sharding = {size, rank, 1, 0}, /* every size-th position, from rank on */
		.entries = entries};
	struct kvf_geometry geometry = {.num_components = 1, .components = &tokens};
	struct kvf_pool_config pool_config = {.length = (uint64_t)LAYERS * PAGES * PAGE * ROW,
		.numa_node = -1,
		.flags = KVF_POOL_ALLOW_4K};
	struct kvf_endpoint_config config = {.socket = argc > 1 ? argv[1] : NULL,
		.role = KVF_DECODE,
		.group = "example-decode",
		.group_size = size,
		.rank = rank,
		.geometry = &geometry};
	/* Enough for the whole prompt; of these, as many are granted as this rank's rows need. */
	const uint32_t pages[] = {60, 2, 31, 30, 8, 17, 55};
	struct kvf_pages list = {.list = 0, .ids = pages};
	struct kvf_recv_args recv = {
		.room = ROOM, .total_tokens = TOKENS, .lists = &list, .num_lists = 1};
	struct kvf_endpoint *ep = NULL;
	struct kvf_pool *pool = NULL;
	struct kvf_event event = {0};
	struct kvf_err err = {0};
	uint64_t rows;

	for (uint32_t l = 0; l < LAYERS; l++)
		entries[l] = (struct kvf_entry){.offset = (uint64_t)l * PAGES * PAGE * ROW,
			.page_stride = PAGE * ROW,
			.row_stride = ROW,
			.row_bytes = ROW,
			.layer = l,
			.kind = KVF_KIND_LATENT,
			.head_count = 1,
			.head_total = 1};
	if (kvf_sharding_check(&tokens.sharding, "decode", &err) != 0)
		return fail("arguments", &err);
	rows = kvf_shard_rows(&tokens.sharding, TOKENS);
	list.count = (uint32_t)(rows + PAGE - 1) / PAGE;

	if (kvf_pool_create(&pool_config, &pool, &err) != 0)
		return fail("pool", &err);
	config.pool = pool;
	if (kvf_endpoint_open(&config, &ep, &err) != 0)
		return fail("open", &err);
	if (kvf_recv(ep, &recv, &err) != 0)
		return fail("recv", &err);

	while (!event.drained) {
		if (kvf_wait(ep, 10000) != 1) {
			fprintf(stderr, "decode: no news from kvferryd\n");
			return 1;
		}
		kvf_poll(ep, &event, 1);
	}
	if (event.status != KVF_SUCCESS) {
		kvf_room_error(ep, ROOM, &err);
		return fail("transfer", &err);
	}

	/* Row i of this rank is token i * size + rank; prefill wrote token + layer into it. */
	for (uint64_t i = 0; i < rows; i++)
		for (uint32_t l = 0; l < LAYERS; l++) {
			const unsigned char *row =
				(unsigned char *)kvf_pool_addr(pool) + entries[l].offset +
				pages[i / PAGE] * entries[l].page_stride + i % PAGE * ROW;

			if (row[0] != i * size + rank + l || memcmp(row, row + 1, ROW - 1) != 0) {
				fprintf(stderr, "decode: row %llu of layer %u is wrong\n",
					(unsigned long long)i, l);
				return 1;
			}
		}
	printf("decode: rank %u of %u has its %llu rows\n", rank, size, (unsigned long long)rows);
	kvf_room_release(ep, ROOM, NULL);
	kvf_endpoint_close(ep);
	kvf_pool_destroy(pool);
	return 0;
}
