/* SPDX-License-Identifier: BSD-3-Clause */
/* The fault driver over a driver made for the test, and over DMA devices. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/fault/fault.h"
#include "unit/drivers/eal.h"

/* The wrapped driver: copies at submit, reports at poll. */
#define PLAIN_DEPTH 8u

struct kvf_copy_drv {
	int unused;
};

struct kvf_copy_channel {
	struct kvf_copy_done done[PLAIN_DEPTH];
	uint32_t num;
	uint64_t bytes;
	uint64_t copies;
};

static struct {
	int open_error;   /* open refuses with it */
	int submit_error; /* so does submit */
	int done_error;   /* what batches end with */
	uint32_t accepts; /* batches at a time */
	uint32_t last_flags;
	int opens, closes, maps, unmaps, channel_opens, channel_closes;
} plain;

static struct kvf_copy_drv plain_drv;

static int
plain_open(const char *args, struct kvf_copy_drv **drv, struct kvf_copy_caps *caps,
	struct kvf_err *err)
{
	CHECK(args == NULL);
	if (plain.open_error != 0) {
		err->code = plain.open_error;
		strcpy(err->text, "plain is not there");
		return plain.open_error;
	}
	plain.opens++;
	*caps = (struct kvf_copy_caps){.max_channels = 3, .channel_depth = PLAIN_DEPTH};
	strcpy(caps->detail, "memcpy");
	*drv = &plain_drv;
	return 0;
}

static void
plain_close(struct kvf_copy_drv *drv)
{
	CHECK(drv == &plain_drv);
	plain.closes++;
}

static int
plain_map(struct kvf_copy_drv *drv, void *base, uint64_t length, uint64_t page_size, void **handle,
	struct kvf_err *err)
{
	(void)err;
	CHECK(drv == &plain_drv);
	CHECK_EQ(length, 8192);
	CHECK_EQ(page_size, 4096);
	*handle = base;
	plain.maps++;
	return 0;
}

static int
plain_unmap(struct kvf_copy_drv *drv, void *handle, struct kvf_err *err)
{
	(void)err;
	CHECK(drv == &plain_drv && handle == (void *)&plain);
	plain.unmaps++;
	return 0;
}

static int
plain_channel_open(struct kvf_copy_drv *drv, struct kvf_copy_channel **ch, struct kvf_err *err)
{
	(void)drv;
	(void)err;
	*ch = calloc(1, sizeof(**ch));
	if (*ch == NULL)
		abort();
	plain.channel_opens++;
	return 0;
}

static void
plain_channel_close(struct kvf_copy_channel *ch)
{
	free(ch);
	plain.channel_closes++;
}

static int
plain_submit(struct kvf_copy_channel *ch, const struct kvf_copy *copies, uint32_t n, uint32_t flags,
	uint64_t tag)
{
	uint64_t r;
	uint32_t i;

	if (plain.submit_error != 0)
		return plain.submit_error;
	if (ch->num >= plain.accepts)
		return KVF_E_AGAIN;
	for (i = 0; i < n; i++) {
		const struct kvf_copy *c = &copies[i];

		for (r = 0; r < c->rows; r++)
			memcpy(c->dst + r * c->dst_stride, c->src + r * c->src_stride,
				c->row_bytes);
		ch->bytes += c->rows * c->row_bytes;
	}
	ch->copies += n;
	ch->done[ch->num++] = (struct kvf_copy_done){.tag = tag, .error = plain.done_error};
	if (flags != 0)
		plain.last_flags = flags;
	return 0;
}

static uint32_t
plain_poll(struct kvf_copy_channel *ch, struct kvf_copy_done *done, uint32_t max)
{
	uint32_t n = 0;

	while (n < max && ch->num > 0)
		done[n++] = ch->done[--ch->num]; /* newest first: any order is allowed */
	return n;
}

static void
plain_counters(const struct kvf_copy_channel *ch, uint64_t *bytes, uint64_t *copies)
{
	*bytes = ch->bytes;
	*copies = ch->copies;
}

static const struct kvf_copy_ops plain_ops = {
	.name = "plain",
	.open = plain_open,
	.close = plain_close,
	.map = plain_map,
	.unmap = plain_unmap,
	.channel_open = plain_channel_open,
	.channel_close = plain_channel_close,
	.submit = plain_submit,
	.poll = plain_poll,
	.counters = plain_counters,
};

static const struct kvf_copy_ops *const ops = &kvf_copy_fault;

struct rig {
	struct kvf_copy_drv *drv;
	struct kvf_copy_caps caps;
	struct kvf_copy_channel *ch[2];
};

static int
rig_up(struct rig *r, const char *args)
{
	struct kvf_err err = {0};

	memset(&plain, 0, sizeof(plain));
	plain.accepts = PLAIN_DEPTH;
	if (!CHECK_EQ(ops->open(args, &r->drv, &r->caps, &err), 0) ||
		!CHECK_EQ(ops->channel_open(r->drv, &r->ch[0], &err), 0) ||
		!CHECK_EQ(ops->channel_open(r->drv, &r->ch[1], &err), 0)) {
		printf("        %s: %s\n", args, err.text);
		return -1;
	}
	return 0;
}

static void
rig_down(struct rig *r)
{
	ops->channel_close(r->ch[0]);
	ops->channel_close(r->ch[1]);
	ops->close(r->drv);
}

static void
refused(const char *args, const char *part)
{
	struct kvf_err err = {0};
	struct kvf_copy_caps caps;
	struct kvf_copy_drv *drv;

	CHECK_EQ(ops->open(args, &drv, &caps, &err), KVF_E_DRIVER);
	CHECK_EQ(err.code, KVF_E_DRIVER);
	CHECK_STR_HAS(err.text, part);
}

static void
test_bad_args(void)
{
	memset(&plain, 0, sizeof(plain));
	refused(NULL, "inner=;");
	refused("", "there are: dmadev, plain");
	refused("plai", "inner=plai;");
	refused("plain2,fail=1", "inner=plain2;");
	refused("fault", "inner=fault;");
	refused("plain,", "unknown option=;");
	refused("plain,boom=3", "unknown option=boom=3;");
	refused("plain,fail", "unknown option=fail;");
	refused("plain,fai=1", "unknown option=fai=1;");
	refused("plain,fail=", "bad value in fail=:");
	refused("plain,fail=0", "bad value in fail=0: a number from 1 to 18446744073709551615");
	refused("plain,fail=-1", "bad value in fail=-1:");
	refused("plain,fail=1x", "bad value in fail=1x:");
	refused("plain,drop=18446744073709551616", "bad value in drop=18446744073709551616:");
	refused("plain,delay_us=60000001", "from 1 to 60000000");
	refused("plain,fail=1,fail=2", "given twice: fail=2");
	refused("plain,every=2", "every=2 needs");
	refused("plain,every=2,delay_us=5", "every=2 needs");
	CHECK_EQ(plain.opens, 0);
	plain.open_error = KVF_E_DRIVER;
	refused("plain", "plain is not there");
	CHECK_EQ(plain.closes, 0);
}

static uint8_t src[64][256];
static uint8_t dst[64][256];

/* Submits one batch that copies two rows of buffer i (of one copy), tag 100 + i. */
static int
post(struct kvf_copy_channel *ch, uint32_t i)
{
	struct kvf_copy c = {src[i], dst[i], 2, 100, 128, 120};
	int ret;

	memset(src[i], (int)(i + 1), sizeof(src[i]));
	memset(dst[i], 0, sizeof(dst[i]));
	ret = ops->submit(ch, &c, 1, KVF_COPY_STREAM, 100 + i);
	memset(&c, 0xff, sizeof(c)); /* the driver must have its own by now */
	return ret;
}

static int
untouched(uint32_t i)
{
	static const uint8_t zero[256];

	return memcmp(dst[i], zero, sizeof(zero)) == 0;
}

static int
right(uint32_t i)
{
	uint8_t want[256] = {0};

	memset(want, (int)(i + 1), 100);
	memset(want + 120, (int)(i + 1), 100);
	return memcmp(dst[i], want, sizeof(want)) == 0;
}

/* Wrong in one byte, in the first row. */
static int
corrupted(uint32_t i)
{
	uint32_t k, wrong = 0, where = 0;

	for (k = 0; k < 256; k++) {
		uint8_t want = k < 100 || (k >= 120 && k < 220) ? (uint8_t)(i + 1) : 0;

		if (dst[i][k] != want) {
			wrong++;
			where = k;
		}
	}
	return wrong == 1 && where < 100;
}

/* Posts n batches on alternating channels one by one; what[i] is what must become of batch i:
 * '.' right, 'f' failed, 'd' dropped, 'c' corrupted. */
static void
check_pattern(const char *args, const char *what)
{
	struct kvf_copy_done done = {0};
	uint64_t bytes, copies, sum = 0, good = 0;
	struct rig r;
	uint32_t i;

	if (rig_up(&r, args) != 0)
		return;
	for (i = 0; what[i] != '\0'; i++) {
		struct kvf_copy_channel *ch = r.ch[i % 2];

		CHECK_EQ(post(ch, i), 0);
		if (!CHECK_EQ(poll_until(ops, ch, &done, 1), 1))
			break;
		CHECK_EQ(done.tag, 100 + i);
		CHECK_EQ(done.error, what[i] == 'f' ? KVF_E_DEVICE : 0);
		if (what[i] == 'f' || what[i] == 'd')
			CHECK(untouched(i));
		else if (what[i] == 'c')
			CHECK(corrupted(i));
		else
			CHECK(right(i));
		good += what[i] == '.' || what[i] == 'c';
	}
	/* the counters are the wrapped driver's: what was not executed is not counted */
	for (i = 0; i < 2; i++) {
		ops->counters(r.ch[i], &bytes, &copies);
		sum += bytes;
	}
	CHECK_EQ(sum, good * 200);
	rig_down(&r);
}

static void
check_all_patterns(const char *inner)
{
	static const struct {
		const char *options, *what;
	} patterns[] = {
		{"", "......"},
		{",fail=1", "f....."},
		{",fail=4", "...f...."},
		{",corrupt=3", "..c....."},
		{",drop=2", ".d......"},
		{",fail=2,every=3", ".f..f..f..f."},
		{",corrupt=3,every=2", "..c.c.c.c"},
		{",drop=1,every=1", "dddddddd"},
		{",fail=2,corrupt=3,drop=5", ".fc.d..."},
		{",fail=2,drop=1,corrupt=1,every=2", "dfdfdfdf"},
		{",every=2,fail=3,delay_us=300", "..f.f.f"},
		{",delay_us=300,corrupt=2,drop=3", ".cd..."},
	};
	char args[100];
	size_t i;

	for (i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		snprintf(args, sizeof(args), "%s%s", inner, patterns[i].options);
		check_pattern(args, patterns[i].what);
	}
}

static void
test_patterns(void)
{
	check_all_patterns("plain");
}

static void
test_patterns_dmadev(void)
{
	check_all_patterns("dmadev");
}

static void
test_transparent(void)
{
	struct kvf_copy_channel *third;
	struct kvf_copy_done done[3];
	struct kvf_err err = {0};
	uint64_t bytes, copies;
	struct rig r;
	void *handle;
	uint32_t i;

	if (rig_up(&r, "plain,fail=9") != 0)
		return;
	CHECK_EQ(r.caps.max_channels, 3);
	CHECK_EQ(r.caps.channel_depth, PLAIN_DEPTH);
	CHECK_STR_HAS(r.caps.detail, "fault:plain,fail=9 over memcpy");
	CHECK_EQ(ops->map(r.drv, &plain, 8192, 4096, &handle, &err), 0);
	CHECK(handle == (void *)&plain);
	CHECK_EQ(ops->unmap(r.drv, handle, &err), 0);
	CHECK_EQ(ops->channel_open(r.drv, &third, &err), 0);
	ops->channel_close(third);
	for (i = 0; i < 3; i++)
		CHECK_EQ(post(r.ch[0], i), 0);
	CHECK_EQ(plain.last_flags, KVF_COPY_STREAM);
	CHECK_EQ(ops->poll(r.ch[1], done, 3), 0); /* channels do not mix */
	CHECK_EQ(ops->poll(r.ch[0], done, 2), 2);
	CHECK_EQ(ops->poll(r.ch[0], done + 2, 2), 1);
	CHECK_EQ(done[0].tag + done[1].tag + done[2].tag, 303);
	ops->counters(r.ch[0], &bytes, &copies);
	CHECK_EQ(bytes, 600);
	CHECK_EQ(copies, 3);
	/* an error of the wrapped driver's own goes through, at the end and at once */
	plain.done_error = KVF_E_DEVICE;
	CHECK_EQ(post(r.ch[0], 0), 0);
	CHECK_EQ(ops->poll(r.ch[0], done, 2), 1);
	CHECK_EQ(done[0].error, KVF_E_DEVICE);
	plain.done_error = 0;
	plain.submit_error = KVF_E_INVAL;
	CHECK_EQ(post(r.ch[0], 1), 0);
	CHECK_EQ(ops->poll(r.ch[0], done, 2), 1);
	CHECK_EQ(done[0].error, KVF_E_INVAL);
	CHECK_EQ(done[0].tag, 101);
	plain.submit_error = 0;
	CHECK_EQ(ops->submit(r.ch[0], NULL, 0, 0, 1), KVF_E_INVAL);
	CHECK_EQ(ops->submit(r.ch[0], NULL, KVF_COPY_BATCH_MAX + 1, 0, 1), KVF_E_INVAL);
	rig_down(&r);
	CHECK_EQ(plain.opens, 1);
	CHECK_EQ(plain.closes, 1);
	CHECK_EQ(plain.maps, 1);
	CHECK_EQ(plain.unmaps, 1);
	CHECK_EQ(plain.channel_opens, 3);
	CHECK_EQ(plain.channel_closes, 3);
}

/* Takes what the wrapped driver says it takes, even when that takes less; a refused submit is not
 * counted. */
static void
test_depth(void)
{
	struct kvf_copy_done done[PLAIN_DEPTH];
	uint32_t i, k, seen[2 * PLAIN_DEPTH] = {0};
	struct rig r;

	for (k = 1; k <= PLAIN_DEPTH; k++) {
		if (rig_up(&r, "plain,fail=10,drop=2") != 0)
			return;
		plain.accepts = k;
		memset(seen, 0, sizeof(seen));
		for (i = 0; i < PLAIN_DEPTH; i++)
			CHECK_EQ(post(r.ch[0], i), 0);
		CHECK_EQ(post(r.ch[0], 20), KVF_E_AGAIN);
		CHECK_EQ(post(r.ch[0], 20), KVF_E_AGAIN);
		CHECK(untouched(20));
		CHECK_EQ(poll_until(ops, r.ch[0], done, PLAIN_DEPTH), PLAIN_DEPTH);
		for (i = 0; i < PLAIN_DEPTH; i++) {
			CHECK_EQ(done[i].error, 0);
			if (CHECK(done[i].tag >= 100 && done[i].tag < 100 + PLAIN_DEPTH))
				seen[done[i].tag - 100]++;
		}
		for (i = 0; i < PLAIN_DEPTH; i++) {
			CHECK_EQ(seen[i], 1);
			CHECK(i == 1 ? untouched(i) : right(i));
		}
		/* the ninth accepted is good, the tenth fails */
		CHECK_EQ(post(r.ch[0], 30), 0);
		CHECK_EQ(poll_until(ops, r.ch[0], done, 1), 1);
		CHECK_EQ(done[0].error, 0);
		CHECK_EQ(post(r.ch[0], 31), 0);
		CHECK_EQ(poll_until(ops, r.ch[0], done, 1), 1);
		CHECK_EQ(done[0].error, KVF_E_DEVICE);
		rig_down(&r);
	}
}

/* Memory is written no earlier than the delay says, and polling does not wait for it. */
static void
check_delay(const char *args, const char *what)
{
	const uint64_t delay = 30000;
	struct kvf_copy_done done[4];
	uint64_t start, before, bytes, copies;
	uint32_t i, n, early = 0;
	struct rig r;

	if (rig_up(&r, args) != 0)
		return;
	start = mono_us();
	for (i = 0; i < 4; i++)
		CHECK_EQ(post(r.ch[0], i), 0);
	ops->counters(r.ch[0], &bytes, &copies);
	before = mono_us();
	if (before < start + delay) {
		CHECK_EQ(copies, 0);
		for (i = 0; i < 4; i++)
			CHECK(untouched(i));
	}
	for (n = 0; n < 4 && mono_us() < start + 20000000u;) {
		uint32_t k = ops->poll(r.ch[0], done + n, 4 - n);

		early += k > 0 && mono_us() < start + delay;
		n += k;
	}
	CHECK_EQ(n, 4);
	CHECK_EQ(early, 0);
	for (i = 0; i < 4; i++) {
		CHECK(what[i] == '.' ? right(i) : untouched(i));
		CHECK_EQ(done[i].error, what[done[i].tag - 100] == 'f' ? KVF_E_DEVICE : 0);
	}
	rig_down(&r);
}

static void
test_delay(void)
{
	check_delay("plain,delay_us=30000", "....");
	check_delay("plain,delay_us=30000,fail=2,drop=4", ".f.d");
	check_delay("dmadev,delay_us=30000,fail=3", "..f.");
}

static int
nothing_open(const char *args, struct kvf_copy_drv **drv, struct kvf_copy_caps *caps,
	struct kvf_err *err)
{
	(void)args;
	(void)drv;
	(void)caps;
	(void)err;
	return KVF_E_NOENT;
}

static void
test_register_again(void)
{
	static const struct kvf_copy_ops nothing = {.name = "plain", .open = nothing_open};
	struct kvf_err err = {0};
	struct rig r;

	memset(&plain, 0, sizeof(plain));
	kvf_copy_fault_register(&nothing);
	CHECK_EQ(ops->open("plain", &r.drv, &r.caps, &err), KVF_E_NOENT);
	CHECK_EQ(plain.opens, 0);
	kvf_copy_fault_register(&plain_ops);
	if (rig_up(&r, "plain") == 0)
		rig_down(&r);
	CHECK_EQ(plain.opens, 1);
}

#define THREAD_BATCHES 3000u

struct runner {
	struct kvf_copy_channel *ch;
	uint32_t at;
	uint32_t posted;
	uint32_t failed;
	uint32_t ended;
};

static void *
runner_thread(void *arg)
{
	uint64_t end = mono_us() + 20000000u;
	struct kvf_copy_done done[4];
	struct runner *t = arg;
	uint32_t i, n;

	while (t->ended < THREAD_BATCHES && mono_us() < end) {
		struct kvf_copy c = {src[t->at], dst[t->at + t->posted % 8], 2, 100, 128, 120};

		if (t->posted < THREAD_BATCHES && ops->submit(t->ch, &c, 1, 0, 0) == 0)
			t->posted++;
		n = ops->poll(t->ch, done, 4);
		for (i = 0; i < n; i++)
			t->failed += done[i].error == KVF_E_DEVICE;
		t->ended += n;
	}
	return NULL;
}

/* Two channels on two threads share one count. */
static void
test_two_threads(void)
{
	struct runner t[2] = {{.at = 0}, {.at = 32}};
	pthread_t thread[2];
	struct rig r;
	int i;

	if (rig_up(&r, "dmadev,fail=10,every=7") != 0)
		return;
	for (i = 0; i < 2; i++) {
		t[i].ch = r.ch[i];
		CHECK_EQ(pthread_create(&thread[i], NULL, runner_thread, &t[i]), 0);
	}
	for (i = 0; i < 2; i++) {
		pthread_join(thread[i], NULL);
		CHECK_EQ(t[i].ended, THREAD_BATCHES);
	}
	CHECK_EQ(t[0].failed + t[1].failed, (2 * THREAD_BATCHES - 10) / 7 + 1);
	rig_down(&r);
}

static const struct suite_case cases[] = {
	{"bad arguments", test_bad_args},
	{"register again", test_register_again},
	{"transparent", test_transparent},
	{"patterns", test_patterns},
	{"patterns on dmadev", test_patterns_dmadev},
	{"depth", test_depth},
	{"delay", test_delay},
	{"two threads", test_two_threads},
};

int
main(int argc, char **argv)
{
	kvf_copy_fault_register(&kvf_copy_dmadev);
	kvf_copy_fault_register(&plain_ops);
	return eal_suite_run("fault", cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
