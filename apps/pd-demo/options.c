/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fail.h"
#include "pd-demo/options.h"

#define USUAL_TOKENS 8192u
#define USUAL_BYTES  (UINT64_C(8192) * 70272) /* ... of DeepSeek-R1 */

const char demo_usage[] =
	"usage: pd-demo [options]\n"
	"Real prefill and decode processes move the KV cache of a few requests through kvferryd;\n"
	"every byte is recomputed on its own at the decode side, and every other byte is checked "
	"to be "
	"untouched.\n"
	"\n"
	"  --model NAME       preset of apps/models.json (deepseek-r1); --list-models names them\n"
	"  --tokens N         prompt length that the mixed lengths derive from (8192, fewer "
	"where a token is large\n"
	"                     or memory is short)\n"
	"  --rooms N          requests (8)\n"
	"  --chunk N          tokens of a prefill chunk (2048)\n"
	"  --page-size N      tokens in a page (64)\n"
	"  --layout NAME      nhd, hnd, kv-blocks (vLLM's [2, blocks, ...]) or blocks-kv (nhd)\n"
	"  --interleave N     decode DCP interleave (1)\n"
	"Of one side, --prefill-... and --decode-...:\n"
	"  -tp N              slices of heads (the preset's; 1 where cp or pp, at prefill also "
	"dcp, "
	"is given)\n"
	"  -dcp N             context parallel size (prefill 1, decode the preset's)\n"
	"  -interleave N      positions in a row on one DCP rank (1)\n"
	"  -cp N              ranks that hold bands of pages instead (1)\n"
	"  -pp N or A+B+..    pipeline stages, or their layers (1)\n"
	"  -page-size N, -layout NAME\n"
	"  -pad N             bytes between the rows of a page (0)\n"
	"  -ring N            rows of a ring of state (the preset's)\n"
	"What moves:\n"
	"  --layers N         only the layers below N\n"
	"  --draft            add a draft layer, replicated on every DCP rank\n"
	"  --state            add a Mamba-like state, sent once per request\n"
	"  --hugepages        hugepages or nothing;  --no-hugepages: 4 KiB pages outright\n"
	"  --seed N           room ids, page ids and bytes follow from it (1)\n"
	"  --socket PATH      kvferryd's socket (" KVF_DEFAULT_SOCKET ")\n"
	"  --engine PATH      start this kvferryd, stop it at the end\n"
	"  --driver NAME      copy driver for --engine (cpu), and for the report\n"
	"  --lcores N         lcores for --engine (2, or 1 on one core)\n"
	"  --engine-args TEXT EAL arguments for --engine, or: its own -- EAL's\n"
	"  --timeout S        limit of every wait (120)\n"
	"  --json             one JSON object instead of the report\n"
	"  --need-hugepages   only print how many 2 MiB pages this run would take, within what is "
	"sensible here\n"
	"\n"
	"The last line is: verified rooms=<n> bytes=<n> mismatches=<n>\n"
	"Exit status 0 only if every room arrived and nothing mismatched.\n";

enum {
	OPT_MODEL = 256,
	OPT_TOKENS,
	OPT_ROOMS,
	OPT_PAGE_SIZE,
	OPT_LAYOUT,
	OPT_CHUNK,
	OPT_INTERLEAVE,
	OPT_LAYERS,
	OPT_DRAFT,
	OPT_STATE,
	OPT_HUGE,
	OPT_NO_HUGE,
	OPT_SEED,
	OPT_SOCKET,
	OPT_ENGINE,
	OPT_DRIVER,
	OPT_LCORES,
	OPT_ENGINE_ARGS,
	OPT_TIMEOUT,
	OPT_JSON,
	OPT_LIST,
	OPT_NEED_HUGE,
	OPT_HELP,
	OPT_WORKER,
	OPT_WORKER_FD,
	OPT_TAG,
	OPT_PREFILL, /* + enum side_key */
	OPT_DECODE = OPT_PREFILL + 32,
};

enum side_key {
	SIDE_TP,
	SIDE_DCP,
	SIDE_INTERLEAVE,
	SIDE_CP,
	SIDE_PP,
	SIDE_PAGE_SIZE,
	SIDE_LAYOUT,
	SIDE_PAD,
	SIDE_RING,
};

#define SIDE_OPTIONS(side, base)                                                                   \
	{side "tp", required_argument, NULL, (base) + SIDE_TP},                                    \
		{side "dcp", required_argument, NULL, (base) + SIDE_DCP},                          \
		{side "interleave", required_argument, NULL, (base) + SIDE_INTERLEAVE},            \
		{side "cp", required_argument, NULL, (base) + SIDE_CP},                            \
		{side "pp", required_argument, NULL, (base) + SIDE_PP},                            \
		{side "page-size", required_argument, NULL, (base) + SIDE_PAGE_SIZE},              \
		{side "layout", required_argument, NULL, (base) + SIDE_LAYOUT},                    \
		{side "pad", required_argument, NULL, (base) + SIDE_PAD},                          \
	{                                                                                          \
		side "ring", required_argument, NULL, (base) + SIDE_RING                           \
	}

static const struct option long_options[] = {
	{"model", required_argument, NULL, OPT_MODEL},
	{"tokens", required_argument, NULL, OPT_TOKENS},
	{"rooms", required_argument, NULL, OPT_ROOMS},
	{"page-size", required_argument, NULL, OPT_PAGE_SIZE},
	{"layout", required_argument, NULL, OPT_LAYOUT},
	{"chunk", required_argument, NULL, OPT_CHUNK},
	SIDE_OPTIONS("prefill-", OPT_PREFILL),
	SIDE_OPTIONS("decode-", OPT_DECODE),
	{"interleave", required_argument, NULL, OPT_INTERLEAVE},
	{"layers", required_argument, NULL, OPT_LAYERS},
	{"draft", no_argument, NULL, OPT_DRAFT},
	{"state", no_argument, NULL, OPT_STATE},
	{"hugepages", no_argument, NULL, OPT_HUGE},
	{"no-hugepages", no_argument, NULL, OPT_NO_HUGE},
	{"seed", required_argument, NULL, OPT_SEED},
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"engine", required_argument, NULL, OPT_ENGINE},
	{"driver", required_argument, NULL, OPT_DRIVER},
	{"lcores", required_argument, NULL, OPT_LCORES},
	{"engine-args", required_argument, NULL, OPT_ENGINE_ARGS},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{"json", no_argument, NULL, OPT_JSON},
	{"list-models", no_argument, NULL, OPT_LIST},
	{"need-hugepages", no_argument, NULL, OPT_NEED_HUGE},
	{"help", no_argument, NULL, OPT_HELP},
	{"worker", required_argument, NULL, OPT_WORKER},
	{"worker-fd", required_argument, NULL, OPT_WORKER_FD},
	{"tag", required_argument, NULL, OPT_TAG},
	{NULL, 0, NULL, 0},
};

static void
shape_unset(struct shape *s)
{
	shape_default(s);
	s->tp = 0;
	s->dcp = 0;
	s->page_tokens = 0;
	s->layout = DEMO_UNSET;
}

void
demo_options_default(struct demo_options *o)
{
	memset(o, 0, sizeof(*o));
	o->model = "deepseek-r1";
	o->tokens = USUAL_TOKENS;
	o->page_size = 64;
	o->layout = SHAPE_NHD;
	shape_unset(&o->prefill);
	shape_unset(&o->decode);
	o->rooms = 8;
	o->chunk = 2048;
	o->seed = 1;
	o->lcores = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 2 : 1;
	o->timeout_s = 120;
	o->worker_fd = -1;
}

static int
parse_u64(const char *name, const char *text, uint64_t lo, uint64_t hi, uint64_t *value,
	struct kvf_err *err)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 0);
	if (end == text || *end != '\0' || errno != 0 || text[0] == '-' || *value < lo ||
		*value > hi)
		return app_fail(err, KVF_E_INVAL,
			"%s=%.60s must be a whole number in [%" PRIu64 ", %" PRIu64 "]", name, text,
			lo, hi);
	return 0;
}

static int
parse_u32(const char *name, const char *text, uint32_t lo, uint32_t hi, uint32_t *value,
	struct kvf_err *err)
{
	uint64_t v;

	if (parse_u64(name, text, lo, hi, &v, err) != 0)
		return KVF_E_INVAL;
	*value = (uint32_t)v;
	return 0;
}

/* "prefill/0" */
static int
parse_worker(struct demo_options *o, const char *text, struct kvf_err *err)
{
	const char *slash = strchr(text, '/');

	if (slash != NULL && strncmp(text, "prefill/", 8) == 0)
		o->worker_role = KVF_PREFILL;
	else if (slash != NULL && strncmp(text, "decode/", 7) == 0)
		o->worker_role = KVF_DECODE;
	else
		return app_fail(
			err, KVF_E_INVAL, "worker=%.60s must be prefill/RANK or decode/RANK", text);
	return parse_u32("worker", slash + 1, 0, DEMO_MAX_RANKS - 1, &o->worker_rank, err);
}

static int
parse_side(struct shape *s, int key, const char *name, const char *arg, struct kvf_err *err)
{
	switch (key) {
	case SIDE_TP:
		return parse_u32(name, arg, 1, DEMO_MAX_RANKS, &s->tp, err);
	case SIDE_DCP:
		return parse_u32(name, arg, 1, DEMO_MAX_RANKS, &s->dcp, err);
	case SIDE_INTERLEAVE:
		return parse_u32(name, arg, 1, SHAPE_MAX_SIZE, &s->interleave, err);
	case SIDE_CP:
		return parse_u32(name, arg, 1, DEMO_MAX_RANKS, &s->cp, err);
	case SIDE_PP:
		return shape_parse_stages(name, arg, s, err);
	case SIDE_PAGE_SIZE:
		return parse_u32(name, arg, 1, SHAPE_MAX_SIZE, &s->page_tokens, err);
	case SIDE_LAYOUT:
		return shape_parse_layout(name, arg, s, err);
	case SIDE_PAD:
		return parse_u32(name, arg, 0, SHAPE_MAX_SIZE, &s->row_pad, err);
	case SIDE_RING:
		return parse_u32(name, arg, 1, 1u << 20, &s->ring_rows, err);
	default:
		return app_fail(err, KVF_E_INVAL, "option --%s is not handled", name);
	}
}

static int
parse_one(struct demo_options *o, int opt, const char *name, char *arg, struct kvf_err *err)
{
	struct shape one = {0};
	uint32_t v;
	int rc;

	if (opt >= OPT_DECODE)
		return parse_side(&o->decode, opt - OPT_DECODE, name, arg, err);
	if (opt >= OPT_PREFILL)
		return parse_side(&o->prefill, opt - OPT_PREFILL, name, arg, err);
	switch (opt) {
	case OPT_MODEL:
		o->model = arg;
		return 0;
	case OPT_TOKENS:
		o->tokens_given = true;
		return parse_u32(name, arg, 1, DEMO_MAX_TOKENS, &o->tokens, err);
	case OPT_ROOMS:
		return parse_u32(name, arg, 1, DEMO_MAX_ROOMS, &o->rooms, err);
	case OPT_PAGE_SIZE:
		return parse_u32(name, arg, 1, 65536, &o->page_size, err);
	case OPT_CHUNK:
		return parse_u32(name, arg, 1, DEMO_MAX_TOKENS, &o->chunk, err);
	case OPT_LAYOUT:
		rc = shape_parse_layout(name, arg, &one, err);
		o->layout = one.layout;
		return rc;
	case OPT_INTERLEAVE:
		return parse_u32(name, arg, 1, SHAPE_MAX_SIZE, &o->decode.interleave, err);
	case OPT_LAYERS:
		return parse_u32(name, arg, 1, MODEL_MAX_LAYERS, &o->layers, err);
	case OPT_DRAFT:
		o->draft = true;
		return 0;
	case OPT_STATE:
		o->state = true;
		return 0;
	case OPT_HUGE:
		o->memory = DEMO_MEMORY_HUGE;
		return 0;
	case OPT_NO_HUGE:
		o->memory = DEMO_MEMORY_SMALL;
		return 0;
	case OPT_SEED:
		return parse_u64(name, arg, 0, UINT64_MAX, &o->seed, err);
	case OPT_SOCKET:
		o->socket = arg;
		return 0;
	case OPT_ENGINE:
		o->engine = arg;
		return 0;
	case OPT_DRIVER:
		o->driver = arg;
		return 0;
	case OPT_LCORES:
		return parse_u32(name, arg, 1, 128, &o->lcores, err);
	case OPT_ENGINE_ARGS:
		o->engine_args = arg;
		return 0;
	case OPT_TIMEOUT:
		return parse_u32(name, arg, 1, 86400, &o->timeout_s, err);
	case OPT_JSON:
		o->json = true;
		return 0;
	case OPT_LIST:
		o->list_models = true;
		return 0;
	case OPT_NEED_HUGE:
		o->need_hugepages = true;
		return 0;
	case OPT_HELP:
		o->help = true;
		return 0;
	case OPT_WORKER:
		return parse_worker(o, arg, err);
	case OPT_WORKER_FD:
		if (parse_u32(name, arg, 0, INT32_MAX, &v, err) != 0)
			return KVF_E_INVAL;
		o->worker_fd = (int)v;
		return 0;
	case OPT_TAG:
		if (strlen(arg) >= sizeof(o->tag))
			return app_fail(err, KVF_E_INVAL, "tag=%.60s is longer than %zu bytes", arg,
				sizeof(o->tag) - 1);
		snprintf(o->tag, sizeof(o->tag), "%s", arg);
		return 0;
	default:
		return app_fail(err, KVF_E_INVAL, "option --%s is not handled", name);
	}
}

int
demo_options_parse(struct demo_options *o, int argc, char **argv, struct kvf_err *err)
{
	int opt, index = 0;

	opterr = 0;
	optind = 1;
	while ((opt = getopt_long(argc, argv, "+:", long_options, &index)) != -1) {
		if (opt == ':')
			return app_fail(
				err, KVF_E_INVAL, "option %.80s needs a value", argv[optind - 1]);
		if (opt == '?')
			return app_fail(err, KVF_E_INVAL,
				"option %.80s is not known; --help lists them", argv[optind - 1]);
		if (parse_one(o, opt, long_options[index].name, optarg, err) != 0)
			return err != NULL ? err->code : KVF_E_INVAL;
	}
	if (optind < argc)
		return app_fail(err, KVF_E_INVAL, "argument %.80s is not an option", argv[optind]);
	if (o->worker_role != 0 && o->worker_fd < 0)
		return app_fail(err, KVF_E_INVAL, "worker needs worker-fd");
	return 0;
}

/* What was not said follows from the preset and from what was. */
static void
fill_in(const struct demo_options *o, struct shape *s, uint32_t tp, uint32_t dcp)
{
	if (s->page_tokens == 0)
		s->page_tokens = o->page_size;
	if (s->layout == DEMO_UNSET)
		s->layout = o->layout;
	if (s->dcp == 0)
		s->dcp = s->cp > 1 ? 1 : dcp;
	/* The preset's number of ranks is meant for TP alone. */
	if (s->tp == 0)
		s->tp = s->cp > 1 || s->pp > 1 || (dcp == 1 && s->dcp > 1) ? 1 : tp;
}

static int
check_side(const struct demo_options *o, const struct model *m, enum kvf_role role,
	struct kvf_err *err)
{
	const struct shape *s = demo_side(o, role);
	char side[16];
	int rc;

	snprintf(side, sizeof(side), "%s-", demo_role_name(role));
	rc = shape_check(s, m, side, err);
	if (rc == 0 && shape_ranks(s) > DEMO_MAX_RANKS)
		return app_fail(err, KVF_E_INVAL,
			"%stp=%u times %sdcp=%u times cp=%u times pp=%u is more than %u ranks",
			side, s->tp, side, s->dcp, s->cp, s->pp, DEMO_MAX_RANKS);
	return rc;
}

/* About as many bytes as the default model's default prompt, whatever a token of this one takes. */
static uint32_t
usual_tokens(const struct demo_options *o, const struct model *m)
{
	uint64_t bytes = m->bytes_per_token + model_groups_bytes(&m->draft) * o->decode.dcp;
	uint64_t tokens = USUAL_BYTES / bytes / 256 * 256;

	if (tokens > USUAL_TOKENS)
		tokens = USUAL_TOKENS;
	return tokens < 256 ? 256 : (uint32_t)tokens;
}

int
demo_options_model(struct demo_options *o, struct model *m, struct kvf_err *err)
{
	int rc;

	rc = model_load(models_path(), o->model, m, err);
	if (rc != 0)
		return rc;
	if (o->draft)
		model_add_draft(m);
	if (o->state)
		model_add_state(m);
	if (o->layers != 0) {
		rc = model_cut_layers(m, o->layers, err);
		if (rc != 0)
			return rc;
	}
	fill_in(o, &o->prefill, m->prefill_tp, 1);
	fill_in(o, &o->decode, m->decode_tp, m->decode_dcp);
	if (!o->tokens_given)
		o->tokens = usual_tokens(o, m);
	rc = check_side(o, m, KVF_PREFILL, err);
	return rc != 0 ? rc : check_side(o, m, KVF_DECODE, err);
}

struct arg_writer {
	struct demo_worker_args *args;
	uint32_t n;
	size_t used;
	bool full;
};

static void __attribute__((format(printf, 2, 3))) add(struct arg_writer *w, const char *fmt, ...)
{
	size_t room = sizeof(w->args->text) - w->used;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(w->args->text + w->used, room, fmt, ap);
	va_end(ap);
	if (len < 0 || (size_t)len >= room || w->n + 1 >= DEMO_WORKER_ARGS) {
		w->full = true;
		return;
	}
	w->args->argv[w->n++] = w->args->text + w->used;
	w->args->argv[w->n] = NULL;
	w->used += (size_t)len + 1;
}

static void
add_side(struct arg_writer *w, const char *side, const struct shape *s)
{
	char stages[SHAPE_MAX_STAGES * 8] = "";
	uint32_t i;
	size_t n = 0;

	for (i = 0; s->stage_layers[0] != 0 && i < s->pp; i++)
		n += (size_t)snprintf(stages + n, sizeof(stages) - n, "%s%u", i > 0 ? "+" : "",
			s->stage_layers[i]);
	add(w, "--%s-tp=%u", side, s->tp);
	add(w, "--%s-dcp=%u", side, s->dcp);
	add(w, "--%s-interleave=%u", side, s->interleave);
	add(w, "--%s-cp=%u", side, s->cp);
	/* One stage of given length needs its length no more. */
	if (s->pp > 1 && n > 0)
		add(w, "--%s-pp=%s", side, stages);
	else
		add(w, "--%s-pp=%u", side, s->pp);
	add(w, "--%s-page-size=%u", side, s->page_tokens);
	add(w, "--%s-layout=%s", side, shape_layout_name(s->layout));
	add(w, "--%s-pad=%u", side, s->row_pad);
	if (s->ring_rows != 0)
		add(w, "--%s-ring=%u", side, s->ring_rows);
}

int
demo_options_worker(const struct demo_options *o, enum kvf_role role, uint32_t rank, int fd,
	struct demo_worker_args *args, struct kvf_err *err)
{
	struct arg_writer w = {.args = args};

	add(&w, "pd-demo");
	add(&w, "--worker=%s/%u", demo_role_name(role), rank);
	add(&w, "--worker-fd=%d", fd);
	add(&w, "--tag=%s", o->tag);
	add(&w, "--model=%s", o->model);
	add(&w, "--tokens=%u", o->tokens);
	add(&w, "--rooms=%u", o->rooms);
	add(&w, "--page-size=%u", o->page_size);
	add(&w, "--chunk=%u", o->chunk);
	add_side(&w, "prefill", &o->prefill);
	add_side(&w, "decode", &o->decode);
	if (o->layers != 0)
		add(&w, "--layers=%u", o->layers);
	if (o->draft)
		add(&w, "--draft");
	if (o->state)
		add(&w, "--state");
	if (o->memory != DEMO_MEMORY_AUTO)
		add(&w, o->memory == DEMO_MEMORY_HUGE ? "--hugepages" : "--no-hugepages");
	add(&w, "--seed=%" PRIu64, o->seed);
	add(&w, "--socket=%s", o->socket != NULL ? o->socket : KVF_DEFAULT_SOCKET);
	add(&w, "--timeout=%u", o->timeout_s);
	if (w.full)
		return app_fail(err, KVF_E_OVERFLOW, "the arguments of a worker exceed %u bytes",
			DEMO_WORKER_BYTES);
	return 0;
}

void
demo_group_name(const struct demo_options *o, enum kvf_role role, char *buf)
{
	snprintf(buf, KVF_GROUP_NAME_MAX, "demo-%s-%s", demo_role_name(role), o->tag);
}
