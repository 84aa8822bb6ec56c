/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "common/fail.h"
#include "pd-demo/pages.h"
#include "common/pattern.h"

int
demo_pages_init(struct demo_pages *pages, uint32_t num_pages, uint64_t seed, struct kvf_err *err)
{
	uint32_t i, k, t;

	if (num_pages == 0)
		return app_fail(err, KVF_E_INVAL, "num_pages=0: page 0 is reserved");
	pages->capacity = num_pages;
	pages->num_free = num_pages - 1;
	pages->free = calloc(num_pages, sizeof(*pages->free));
	pages->taken = calloc(num_pages, sizeof(*pages->taken));
	if (pages->free == NULL || pages->taken == NULL) {
		demo_pages_fini(pages);
		return app_fail(err, KVF_E_NOMEM, "no memory for num_pages=%u", num_pages);
	}
	for (i = 0; i < pages->num_free; i++)
		pages->free[i] = i + 1;
	for (i = pages->num_free; i > 1; i--) {
		seed = pattern_mix(seed + 0x9e3779b97f4a7c15ull);
		k = (uint32_t)(seed % i);
		t = pages->free[i - 1];
		pages->free[i - 1] = pages->free[k];
		pages->free[k] = t;
	}
	return 0;
}

void
demo_pages_fini(struct demo_pages *pages)
{
	free(pages->free);
	free(pages->taken);
	pages->free = NULL;
	pages->taken = NULL;
}

int
demo_pages_take(struct demo_pages *pages, uint32_t *ids, uint32_t n, struct kvf_err *err)
{
	uint32_t i;

	if (n > pages->num_free)
		return app_fail(err, KVF_E_QUOTA, "pages wanted=%u free=%u", n, pages->num_free);
	for (i = 0; i < n; i++) {
		ids[i] = pages->free[--pages->num_free];
		pages->taken[ids[i]] = 1;
	}
	return 0;
}

int
demo_pages_give(struct demo_pages *pages, const uint32_t *ids, uint32_t n, struct kvf_err *err)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (ids[i] >= pages->capacity || !pages->taken[ids[i]])
			return app_fail(err, KVF_E_PAGE, "page=%u was not handed out, num_pages=%u",
				ids[i], pages->capacity);
		pages->taken[ids[i]] = 0;
		pages->free[pages->num_free++] = ids[i];
	}
	return 0;
}
