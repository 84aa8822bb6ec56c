/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Model presets: what one token (and one request) of a public model keeps in its KV cache.
 * The numbers lie in apps/models.json; loading refuses a preset that does not add up to the
 * published bytes.
 */
#ifndef KVFERRY_APPS_MODELS_H
#define KVFERRY_APPS_MODELS_H

#include <stdint.h>

#include <kvferry/error.h>
#include <kvferry/geometry.h>

#define MODEL_MAX_GROUPS 6u
#define MODEL_MAX_PLANES 4u
#define MODEL_MAX_LAYERS 512u
#define MODEL_MAX_NAMES  64u

/* One row plane of a page; the planes of a group lie one behind the other in each page. */
struct model_plane {
	uint16_t kind;       /* enum kvf_kind */
	uint16_t dtype;      /* tag, equal on both sides */
	uint32_t head_bytes; /* of one head of one token (or of one state) */
};

/* Kinds of per-request state; the number is also the component's tag. */
enum model_state {
	MODEL_MAMBA = 1, /* one slot (KVF_STATE_ONE) */
	MODEL_SWA = 2,   /* pages of the last `rows` tokens (KVF_STATE_CLIP) */
	MODEL_DSA = 3,   /* pages of all tokens (KVF_STATE_CLIP) */
	MODEL_RING = 4,  /* position p in row p % `rows` (KVF_STATE_RING) */
	MODEL_ROWS = 5,  /* `rows` rows (KVF_STATE_EXACT) */
};
#define MODEL_STATE_TYPES 5u

/* One buffer per layer. */
struct model_group {
	uint32_t heads;         /* of the un-sharded model; MLA: 1 */
	uint32_t page_multiple; /* pages are padded to a multiple of this; 0: not at all */
	uint32_t type;          /* state: enum model_state, otherwise 0 */
	uint32_t rows;          /* state: rows of one request; DSA: 0, one per token */
	uint32_t num_planes;
	struct model_plane planes[MODEL_MAX_PLANES];
	uint32_t num_layers;
	uint16_t layers[MODEL_MAX_LAYERS];
};

struct model_groups {
	uint32_t num;
	struct model_group group[MODEL_MAX_GROUPS];
};

struct model {
	char name[64];
	char title[128];
	uint32_t layers;      /* layer ids of the target are 0..layers-1 */
	uint32_t kept_layers; /* ids below this are there (model_cut_layers()) */
	uint64_t bytes_per_token;
	uint64_t state_bytes; /* per request */
	uint32_t prefill_tp;  /* the layout that the preset suggests */
	uint32_t decode_tp;
	uint32_t decode_dcp;
	struct model_groups tokens;
	struct model_groups draft; /* replicated on every DCP rank */
	struct model_groups state;
};

/*
 * The preset file: $KVFERRY_MODELS, else the source tree's, else the installed one. Never NULL; the
 * file need not exist.
 */
const char *models_path(void);

/* KVF_E_NOENT (names what there is), KVF_E_INVAL (names the field or the two sums), KVF_E_SYS. */
int model_load(const char *path, const char *name, struct model *m, struct kvf_err *err);

/* Numbers of names ("latent", "bf16"), and back; -1 or NULL for what is not known. */
int model_kind(const char *name);
int model_dtype(const char *name);
const char *model_kind_name(uint32_t kind);

struct model_names {
	uint32_t num;
	char name[MODEL_MAX_NAMES][64];
};

int model_list(const char *path, struct model_names *names, struct kvf_err *err);

/* Bytes of one token in all groups, or of one request's state (each row of it; DSA: one row). */
uint64_t model_groups_bytes(const struct model_groups *groups);

/* Bytes of a page of one layer of an un-sharded group, padding included. */
uint64_t model_page_bytes(const struct model_group *g, uint32_t page_tokens);

/* Keeps target and state layers with ids below `layers`; KVF_E_INVAL when no token group would be
 * left. */
int model_cut_layers(struct model *m, uint32_t layers, struct kvf_err *err);

/* Adds one draft layer shaped like the target's, if the preset has none. */
void model_add_draft(struct model *m);

/* Adds a small convolution + SSM state in two layers, if the preset has none. */
void model_add_state(struct model *m);

#endif
