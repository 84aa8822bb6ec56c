/* SPDX-License-Identifier: BSD-3-Clause */
/* Any command line of `kvferry plan` and `kvferry group`: an answer, or a refusal that says why. */
#include "apps/kvferry/args.h"
#include "bytes.h"

#define MAX_ARGS 48

/* Named by one byte, so that inputs need not spell them. */
static const char *const words[] = {"--page-size", "--src-page-size", "--dst-page-size",
	"--src-dcp", "--src-rank", "--src-interleave", "--dst-dcp", "--dst-rank",
	"--dst-interleave", "--src-pages", "--dst-pages", "--src-num-pages", "--dst-num-pages",
	"--prefix", "--page-offset", "--start", "--tokens", "--json", "--src", "--dst", "--help",
	"0", "1", "2", "4", "8", "64", "0,1,2,3", "3,1", "-1", "18446744073709551615",
	"4294967296"};

#define NUM_WORDS (sizeof(words) / sizeof(words[0]))

static FILE *out;

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	/* What it prints does not matter here. */
	out = fopen("/dev/null", "w");
	MUST(out != NULL);
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes b = {data, size};
	uint8_t group = take8(&b) % 2;
	char *argv[MAX_ARGS + 1], *own = malloc(b.left + 1), *at = own;
	FILE *screen = stdout;
	struct kvf_err err = {0};
	int argc = 1, digits, rc;

	MUST(own != NULL);
	argv[0] = group ? "group" : "plan";
	/* High bytes are whole words; others spell an argument up to the next 0. */
	while (b.left > 0 && argc < MAX_ARGS) {
		if (*b.p >= 0x80) {
			argv[argc++] = (char *)(uintptr_t)words[take8(&b) % NUM_WORDS];
			continue;
		}
		argv[argc++] = at;
		for (digits = 0; b.left > 0 && *b.p != 0 && *b.p < 0x80; at++) {
			*at = (char)take8(&b);
			digits = *at >= '0' && *at <= '9' ? digits + 1 : 0;
			/* The answer may be as long as the numbers say. */
			if (digits > 4)
				at--;
		}
		if (b.left > 0 && *b.p == 0)
			take8(&b);
		*at++ = '\0';
	}
	argv[argc] = NULL;
	stdout = out;
	rc = group ? cmd_group(argc, argv, &err) : cmd_plan(argc, argv, &err);
	stdout = screen;
	MUST(rc == 0 || (rc == 1 && err.code < 0 && err.text[0] != '\0'));
	free(own);
	return 0;
}
