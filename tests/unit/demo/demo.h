/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVF_TESTS_UNIT_DEMO_H
#define KVF_TESTS_UNIT_DEMO_H

#include "pd-demo/layout.h"
#include "pd-demo/options.h"
#include "pd-demo/rooms.h"
#include "pd-demo/store.h"

/* One rank with its memory, as a worker has it. */
struct rank {
	struct demo_layout layout;
	struct demo_store store;
	uint8_t *pool;
};

/* A run small enough for plain memory. `args` are pd-demo's, blanks between them. */
struct scene {
	char text[512];
	struct demo_options o;
	struct model m;
	struct demo_plan plan;
};

int scene_init(struct scene *s, const char *args);
void scene_fini(struct scene *s);
/* Pool guarded; rows not filled in. */
int rank_init(struct rank *r, const struct scene *s, enum kvf_role role, uint32_t rank);
void rank_fini(struct rank *r);

/* test_models.c */
void models_add_up(void);
void models_refuse_wrong_sums(void);
void models_name_what_there_is(void);
void models_cut(void);
void options_refuse(void);
void options_reach_workers(void);

/* test_store.c */
void store_fills_and_checks(void);
void store_finds_one_byte(void);
void store_finds_missing_row(void);
void store_finds_stray_byte(void);
void store_finds_wrong_aux(void);
void store_forgets(void);
void store_late_write(void);
void store_rows_of_other_places(void);
void store_moves_between_layouts(void);

#endif
