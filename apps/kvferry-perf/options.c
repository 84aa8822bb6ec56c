/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"
#include "kvferry-perf/options.h"

const char perf_usage[] =
	"usage: kvferry-perf CASE [options]\n"
	"\n"
	"Measures kvferry with a real kvferryd and real workers.\n"
	"\n"
	"cases:\n"
	"  bulk     throughput of whole prompts, from the first post to the last Success\n"
	"  latency  one small room at a time, from kvf_send() until decode sees Success\n"
	"  rooms    rate of small rooms, many in flight\n"
	"  plan     the planner alone\n"
	"  copy     the copy kernels alone (cpu), or the engine with pieces of one size (dmadev)\n"
	"  idle     CPU time of an engine with nothing to do, and its first request after that\n"
	"  abort    from kvf_abort() until both sides are drained, while the engine copies other "
	"rooms\n"
	"\n"
	"work:\n"
	"  --model NAME         preset of apps/models.json, or row:BYTES (deepseek-r1)\n"
	"  --layers N           only the model's first N layers (bulk, abort: all, else 1)\n"
	"  --tokens N           length of a prompt (bulk 8192, plan 131072, abort 2048, else 1)\n"
	"  --page-size N        tokens in a page; also --src-page-size, --dst-page-size (bulk, "
	"plan, "
	"abort 64, else 1)\n"
	"  --prefill-tp N, --prefill-dcp N, --decode-tp N, --decode-dcp N   (1)\n"
	"  --interleave N       adjacent positions on one DCP rank (1)\n"
	"  --ranks N            decode ranks that take part (all)\n"
	"  --pages KIND         random or contiguous (random)\n"
	"  --rooms N            rooms of one iteration (bulk 1, rooms 20000)\n"
	"  --window N           rooms in flight, of each pair of endpoints (rooms 64, abort 4)\n"
	"  --endpoints N        rooms: pairs of endpoints (1)\n"
	"  --pieces A,B,..      copy: bytes of a piece (64 to 1 MiB, and 1152)\n"
	"  --step N             copy: 0 scattered pieces, N rows of which every Nth is taken (0)\n"
	"  --footprint BYTES    memory that iterations rotate over, K, M or G may follow (bulk, "
	"copy "
	"1G; latency, rooms 0: warm)\n"
	"\n"
	"how:\n"
	"  --num-iter N, --warmup-iter N\n"
	"  --check              verify every byte\n"
	"  --baseline LIST      of memcpy (one contiguous block: the limit), rows (memcpy of each "
	"piece), cma\n"
	"                       (process_vm_writev of the pieces), none (bulk, copy: memcpy)\n"
	"  --driver NAME        cpu[:KERNEL], dmadev[:DEVICES] or mixed[:from=BYTES] (cpu)\n"
	"  --lcores N           that copy (1)\n"
	"  --cpus LIST          CPUs of the lcores, none: not pinned (the last ones, if some are "
	"left "
	"for the workers)\n"
	"  --busy               the engine never sleeps\n"
	"  --wait KIND          poll or sleep: workers of bulk (sleep)\n"
	"  --processes N        latency, rooms: 2 a process for each side, 1 one for both (2 if "
	"there "
	"are CPUs for it)\n"
	"  --memory KIND        auto, huge or small pages (auto)\n"
	"  --socket PATH        use the engine that listens there\n"
	"  --engine PATH        kvferryd to start (the one of this build)\n"
	"  --engine-args WORDS  for it, as in --engine-args \"--vdev=dma_skeleton0\"\n"
	"  --timeout S          that one iteration may take (60)\n"
	"  --seed N             of page orders and contents (1)\n"
	"  --json               one JSON object a line\n"
	"  --need-hugepages     print how many 2 MiB pages this run wants, run nothing\n";

static const char *const case_names[PERF_CASES] = {
	"bulk", "latency", "rooms", "plan", "copy", "idle", "abort"};

const char *
perf_case_name(enum perf_case cas)
{
	return case_names[cas];
}

enum kind {
	U32,
	U64,
	BYTES,
	TEXT,
	FLAG,
};

struct option_def {
	const char *name;
	enum kind kind;
	size_t offset;
	uint64_t min, max;
};

#define AT(field) offsetof(struct perf_options, field)

static const struct option_def defs[] = {
	{"model", TEXT, AT(model), 0, 0},
	{"layers", U32, AT(layers), 1, 1024},
	{"tokens", U64, AT(tokens), 1, 1u << 24},
	{"src-page-size", U32, AT(src_page_size), 1, 65536},
	{"dst-page-size", U32, AT(dst_page_size), 1, 65536},
	{"prefill-dcp", U32, AT(prefill_dcp), 1, 128},
	{"prefill-tp", U32, AT(prefill_tp), 1, 128},
	{"decode-dcp", U32, AT(decode_dcp), 1, 128},
	{"decode-tp", U32, AT(decode_tp), 1, 128},
	{"interleave", U32, AT(interleave), 1, 65536},
	{"ranks", U32, AT(ranks), 1, 128},
	{"rooms", U32, AT(rooms), 1, 100000000},
	{"window", U32, AT(window), 1, PERF_MAX_WINDOW},
	{"endpoints", U32, AT(endpoints), 1, PERF_MAX_ENDPOINTS},
	{"step", U32, AT(step), 0, 1024},
	{"driver", TEXT, AT(driver), 0, 0},
	{"engine-args", TEXT, AT(engine_args), 0, 0},
	{"lcores", U32, AT(lcores), 1, 64},
	{"cpus", TEXT, AT(cpus), 0, 0},
	{"num-iter", U32, AT(num_iter), 1, 10000000},
	{"warmup-iter", U32, AT(warmup_iter), 0, 10000000},
	{"check", FLAG, AT(check), 0, 0},
	{"busy", FLAG, AT(busy), 0, 0},
	{"footprint", BYTES, AT(footprint), 0, 1ull << 40},
	{"socket", TEXT, AT(socket), 0, 0},
	{"engine", TEXT, AT(engine), 0, 0},
	{"timeout", U32, AT(timeout_s), 1, 86400},
	{"seed", U64, AT(seed), 0, UINT64_MAX},
	{"json", FLAG, AT(json), 0, 0},
	{"need-hugepages", FLAG, AT(need_hugepages), 0, 0},
	{"help", FLAG, AT(help), 0, 0},
};

#define NOT_GIVEN UINT64_MAX

static int
number(const char *name, const char *text, bool suffix, uint64_t min, uint64_t max, uint64_t *value,
	struct kvf_err *err)
{
	unsigned long long v;
	uint64_t unit = 1;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (suffix && *end != '\0' && end[1] == '\0') {
		switch (*end) {
		case 'K':
			unit = 1ull << 10;
			break;
		case 'M':
			unit = 1ull << 20;
			break;
		case 'G':
			unit = 1ull << 30;
			break;
		default:
			unit = 0;
		}
		if (unit != 0)
			end++;
	}
	if (errno != 0 || end == text || *end != '\0' || text[0] < '0' || text[0] > '9' ||
		v > max / (unit == 0 ? 1 : unit) || v * unit < min)
		return app_fail(err, KVF_E_INVAL, "%s=%.60s must be a number from %llu to %llu",
			name, text, (unsigned long long)min, (unsigned long long)max);
	*value = v * unit;
	return 0;
}

static int
choice(const char *name, const char *text, const char *const *words, int n, struct kvf_err *err)
{
	char all[96] = "";
	int i;

	for (i = 0; i < n; i++) {
		if (strcmp(text, words[i]) == 0)
			return i;
		strncat(all, i == 0 ? "" : ", ", sizeof(all) - strlen(all) - 1);
		strncat(all, words[i], sizeof(all) - strlen(all) - 1);
	}
	return app_fail(err, KVF_E_INVAL, "%s=%.60s: known are %s", name, text, all);
}

static int
parse_baselines(struct perf_options *o, const char *text, struct kvf_err *err)
{
	static const char *const words[] = {"memcpy", "rows", "cma", "none"};
	char copy[64], *word, *save = NULL;
	int i;

	if (strlen(text) >= sizeof(copy))
		return app_fail(err, KVF_E_INVAL, "baseline=%.60s is too long", text);
	strcpy(copy, text);
	o->baselines = 0;
	for (word = strtok_r(copy, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save)) {
		i = choice("baseline", word, words, 4, err);
		if (i < 0)
			return i;
		o->baselines |= i == 3 ? 0 : 1u << i;
	}
	return 0;
}

static int
parse_pieces(struct perf_options *o, const char *text, struct kvf_err *err)
{
	char copy[256], *word, *save = NULL;
	int rc;

	if (strlen(text) >= sizeof(copy))
		return app_fail(err, KVF_E_INVAL, "pieces=%.60s... is too long", text);
	strcpy(copy, text);
	o->num_pieces = 0;
	for (word = strtok_r(copy, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save)) {
		if (o->num_pieces == PERF_MAX_PIECES)
			return app_fail(
				err, KVF_E_INVAL, "pieces: more than %u sizes", PERF_MAX_PIECES);
		rc = number("pieces", word, true, 1, 16u << 20, &o->pieces[o->num_pieces++], err);
		if (rc != 0)
			return rc;
	}
	if (o->num_pieces == 0)
		return app_fail(err, KVF_E_INVAL, "pieces=%s names no size", text);
	return 0;
}

static int
parse_special(struct perf_options *o, const char *name, const char *value, bool *known,
	struct kvf_err *err)
{
	static const char *const pages[] = {"random", "contiguous"};
	static const char *const waits[] = {"sleep", "poll"};
	static const char *const memory[] = {"auto", "huge", "small"};
	uint64_t v = 0;
	int rc = 0;

	*known = true;
	if (strcmp(name, "baseline") == 0)
		return parse_baselines(o, value, err);
	if (strcmp(name, "pieces") == 0)
		return parse_pieces(o, value, err);
	if (strcmp(name, "page-size") == 0) {
		rc = number(name, value, false, 1, 65536, &v, err);
		o->src_page_size = o->dst_page_size = (uint32_t)v;
		return rc;
	}
	if (strcmp(name, "processes") == 0) {
		rc = number(name, value, false, 1, 2, &v, err);
		o->processes = (int)v;
		return rc;
	}
	if (strcmp(name, "pages") == 0) {
		rc = choice(name, value, pages, 2, err);
		o->contiguous = rc == 1;
	} else if (strcmp(name, "wait") == 0) {
		rc = choice(name, value, waits, 2, err);
		o->poll = rc == 1;
	} else if (strcmp(name, "memory") == 0) {
		rc = choice(name, value, memory, 3, err);
		if (rc >= 0)
			o->memory = (enum perf_memory)rc;
	} else {
		*known = false;
	}
	return rc < 0 ? rc : 0;
}

static int
store(struct perf_options *o, const struct option_def *d, const char *value, struct kvf_err *err)
{
	void *at = (char *)o + d->offset;
	uint64_t v = 0;
	int rc;

	if (d->kind == FLAG) {
		*(bool *)at = true;
		return 0;
	}
	if (d->kind == TEXT) {
		*(const char **)at = value;
		return 0;
	}
	rc = number(d->name, value, d->kind == BYTES, d->min, d->max, &v, err);
	if (rc != 0)
		return rc;
	if (d->kind == U32)
		*(uint32_t *)at = (uint32_t)v;
	else
		*(uint64_t *)at = v;
	return 0;
}

static int
parse_one(struct perf_options *o, int argc, char **argv, int *i, struct kvf_err *err)
{
	const char *text = argv[*i] + 2, *eq = strchr(text, '=');
	size_t len = eq != NULL ? (size_t)(eq - text) : strlen(text), k;
	const struct option_def *d = NULL;
	const char *value = eq != NULL ? eq + 1 : NULL;
	char name[32];
	bool known;
	int rc;

	if (strncmp(argv[*i], "--", 2) != 0 || len == 0 || len >= sizeof(name))
		return app_fail(
			err, KVF_E_INVAL, "unexpected argument %.60s (see --help)", argv[*i]);
	memcpy(name, text, len);
	name[len] = '\0';
	for (k = 0; k < sizeof(defs) / sizeof(defs[0]); k++)
		if (strcmp(name, defs[k].name) == 0)
			d = &defs[k];
	if (d != NULL && d->kind == FLAG) {
		if (value != NULL)
			return app_fail(err, KVF_E_INVAL, "--%s takes no value", name);
		return store(o, d, NULL, err);
	}
	if (value == NULL && *i + 1 < argc)
		value = argv[++*i];
	if (d == NULL) {
		rc = parse_special(o, name, value != NULL ? value : "", &known, err);
		if (!known)
			return app_fail(err, KVF_E_INVAL, "unknown option --%s (see --help)", name);
		if (value == NULL)
			return app_fail(err, KVF_E_INVAL, "--%s needs a value", name);
		return rc;
	}
	if (value == NULL)
		return app_fail(err, KVF_E_INVAL, "--%s needs a value", name);
	return store(o, d, value, err);
}

static void
set32(uint32_t *field, uint32_t value)
{
	if (*field == 0)
		*field = value;
}

/* What was not given depends on the case. */
static void
fill_in(struct perf_options *o)
{
	static const uint64_t pieces[] = {
		64, 128, 256, 512, 1152, 4096, 16384, 65536, 262144, 1048576};
	static const uint32_t iters[PERF_CASES] = {20, 10000, 10, 1000, 20, 10, 500};
	static const uint32_t warmups[PERF_CASES] = {3, 1000, 1, 10, 2, 1, 10};
	bool big = o->cas == PERF_BULK || o->cas == PERF_PLAN || o->cas == PERF_ABORT;
	uint32_t i;

	if (o->tokens == 0)
		o->tokens = o->cas == PERF_PLAN    ? 131072
			    : o->cas == PERF_BULK  ? 8192
			    : o->cas == PERF_ABORT ? 2048
						   : 1;
	set32(&o->src_page_size, big ? 64 : 1);
	set32(&o->dst_page_size, big ? 64 : 1);
	if (!big)
		set32(&o->layers, 1);
	set32(&o->window, o->cas == PERF_ABORT ? 4 : 64);
	set32(&o->rooms, o->cas == PERF_ROOMS ? 20000 : 1);
	set32(&o->num_iter, iters[o->cas]);
	if (o->warmup_iter == UINT32_MAX)
		o->warmup_iter = warmups[o->cas];
	if (o->baselines == UINT32_MAX)
		o->baselines = o->cas == PERF_BULK || o->cas == PERF_COPY ? PERF_BASE_MEMCPY : 0;
	if (o->footprint == NOT_GIVEN)
		o->footprint = o->cas == PERF_BULK || o->cas == PERF_COPY ? 1ull << 30 : 0;
	if (o->cas == PERF_COPY && o->num_pieces == 0) {
		o->num_pieces = sizeof(pieces) / sizeof(pieces[0]);
		for (i = 0; i < o->num_pieces; i++)
			o->pieces[i] = pieces[i];
	}
}

int
perf_options_parse(struct perf_options *o, int argc, char **argv, struct kvf_err *err)
{
	int i, rc;

	*o = (struct perf_options){
		.model = "deepseek-r1",
		.prefill_dcp = 1,
		.prefill_tp = 1,
		.decode_dcp = 1,
		.decode_tp = 1,
		.interleave = 1,
		.endpoints = 1,
		.driver = "cpu",
		.lcores = 1,
		.warmup_iter = UINT32_MAX,
		.baselines = UINT32_MAX,
		.footprint = NOT_GIVEN,
		.timeout_s = 60,
		.seed = 1,
	};
	if (argc < 2)
		return app_fail(err, KVF_E_INVAL, "which case? (see --help)");
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		o->help = true;
		return 0;
	}
	i = choice("case", argv[1], case_names, PERF_CASES, err);
	if (i < 0)
		return i;
	o->cas = (enum perf_case)i;
	for (i = 2; i < argc; i++) {
		rc = parse_one(o, argc, argv, &i, err);
		if (rc != 0)
			return rc;
	}
	fill_in(o);
	return 0;
}
