/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fuzz target without its fuzzer: runs the inputs of a folder, their beginnings and simple
 * variations of them, so that what was once found stays found on any compiler.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "common/suite.h"

#define INPUT_MAX  65536
#define VARIATIONS 40

#pragma weak LLVMFuzzerInitialize

static const char *folder;
static uint8_t input[INPUT_MAX], varied[INPUT_MAX];

static void
run(const uint8_t *data, size_t n)
{
	/* Exactly as long as it is. */
	uint8_t *exact = malloc(n + 1);

	if (exact == NULL) {
		CHECK(exact != NULL);
		return;
	}
	memcpy(exact + 1, data, n);
	CHECK_EQ(LLVMFuzzerTestOneInput(exact + 1, n), 0);
	free(exact);
}

static void
vary(size_t n, uint64_t *rand)
{
	uint32_t v, k;

	for (v = 0; v < VARIATIONS; v++) {
		size_t len = v % 4 == 0 ? suite_range(rand, 0, n) : n;

		memcpy(varied, input, n);
		for (k = 0; len > 0 && k <= v % 8; k++)
			varied[suite_range(rand, 0, len - 1)] = (uint8_t)suite_rand(rand);
		run(varied, len);
	}
}

static void
corpus(void)
{
	uint64_t rand = suite_seed();
	struct dirent *de;
	uint32_t files = 0;
	DIR *dir = opendir(folder);

	CHECK(dir != NULL);
	while (dir != NULL && (de = readdir(dir)) != NULL) {
		char path[1024];
		size_t n;
		FILE *f;

		if (de->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, de->d_name);
		f = fopen(path, "rb");
		CHECK(f != NULL);
		if (f == NULL)
			continue;
		n = fread(input, 1, sizeof(input), f);
		fclose(f);
		files++;
		run(input, n);
		vary(n, &rand);
	}
	if (dir != NULL)
		closedir(dir);
	CHECK(files > 0);
}

static void
nothing(void)
{
	run(input, 0);
}

static void
noise(void)
{
	uint64_t rand = suite_seed();
	uint32_t i, k;

	for (i = 0; i < 300; i++) {
		size_t n = suite_range(&rand, 1, 400);

		for (k = 0; k < n; k++)
			input[k] = (uint8_t)suite_rand(&rand);
		run(input, n);
	}
}

int
main(int argc, char **argv)
{
	static const struct suite_case cases[] = {
		{"no input", nothing}, {"noise", noise}, {"corpus and variations", corpus}};
	char *none[] = {argv[0], NULL};

	if (argc != 3) {
		fprintf(stderr, "usage: %s NAME CORPUS\n", argv[0]);
		return 2;
	}
	folder = argv[2];
	if (LLVMFuzzerInitialize != NULL)
		LLVMFuzzerInitialize(&argc, &argv);
	return suite_run(argv[1], cases, sizeof(cases) / sizeof(cases[0]), 1, none);
}
