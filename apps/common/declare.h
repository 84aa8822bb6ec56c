/* SPDX-License-Identifier: BSD-3-Clause */
/* Explicit declarations in a file: what a group of endpoints holds, entry by entry. */
#ifndef KVFERRY_APPS_DECLARE_H
#define KVFERRY_APPS_DECLARE_H

#include <stdint.h>

#include <kvferry/geometry.h>

struct declare_rank {
	uint64_t pool_bytes;
	struct kvf_geometry geo;
	struct kvf_component *components;
};

struct declare_group {
	uint32_t num;
	struct declare_rank *ranks;
	const struct kvf_geometry **geos; /* as kvf_link_build() takes them */
};

/*
 * Reads {"ranks": [{"pool_bytes": N, "components": [{"class": "tokens", "tag": 0, "list": 0,
 * "page_tokens": 64, "num_pages": 100, "rule": "exact", "sharding": {"size": 1, "rank": 0,
 * "interleave": 1, "mode": "cyclic"}, "entries": [{"offset": 0, "page_stride": 73728, "row_stride":
 * 1152, "head_stride": 0, "row_bytes": 1152, "layer": 0, "kind": "latent", "dtype": "bf16",
 * "head_first": 0, "head_count": 1, "head_total": 1}]}]}]}: the fields of geometry.h. What is not
 * given is as here, except pool_bytes (2^63 - 1) and what has no usual value: class, num_pages,
 * entries, page_stride, row_stride, row_bytes, layer, kind. Names may be numbers. Unknown keys are
 * refused. Each declaration passes kvf_geometry_check() against its pool_bytes.
 *
 * Free it with declare_free(). KVF_E_SYS, KVF_E_INVAL, KVF_E_NOMEM, or what the check refuses.
 */
int declare_load(const char *path, struct declare_group *g, struct kvf_err *err);
void declare_free(struct declare_group *g);

#endif
