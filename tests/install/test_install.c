/* SPDX-License-Identifier: BSD-3-Clause */
/* What `meson install` gives a user: files, a library without DPDK, headers for C and C++. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/suite.h"
#include "e2e/harness.h"

#define LIMIT_MS 120000

/* Relative to the installation's root; the library's folder differs between systems. */
static char root[E2E_PATH];
static char libdir[E2E_PATH];

static const char program[] =
	"#include <stdio.h>\n"
	"#include <kvferry/kvferry.h>\n"
	"int main(void)\n"
	"{\n"
	"	uint32_t src[] = {5, 2, 11, 4}, dst[] = {7};\n"
	"	struct kvf_plan_spec spec = {.src = {1, 0, 1, 0}, .dst = {4, 1, 1, 0},\n"
	"		.src_page_tokens = 2, .dst_page_tokens = 2, .src_pages = src, .dst_pages = "
	"dst,\n"
	"		.num_src_pages = 4, .num_dst_pages = 1, .tokens = 8};\n"
	"	struct kvf_plan *plan = NULL;\n"
	"	struct kvf_err err;\n"
	"	if (kvf_plan_create(&spec, 0, 0, &plan, &err) != 0)\n"
	"		return 1;\n"
	"	printf(\"rows=%d first=%d,%d\\n\", (int)plan->rows, (int)plan->runs[0].src_row, "
	"(int)plan->runs[0].dst_row);\n"
	"	kvf_plan_free(plan);\n"
	"	return 0;\n"
	"}\n";

/* A shell command with the installation's paths in $ROOT, $LIB and $TMP. The exit status is
 * checked; the output is the caller's. */
static struct e2e_result shell(int want, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static struct e2e_result
shell(int want, const char *fmt, ...)
{
	struct e2e_result r;
	char command[2000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	e2e_run(&r, LIMIT_MS, E2E_ARGS("/bin/sh", "-c", command));
	if (!suite_check_eq(r.status, want, command, __FILE__, __LINE__))
		printf("        %s%s\n", r.out, r.err);
	return r;
}

static bool
have(const char *tool)
{
	char command[100];
	struct e2e_result r;
	bool ok;

	snprintf(command, sizeof(command), "command -v %s", tool);
	e2e_run(&r, LIMIT_MS, E2E_ARGS("/bin/sh", "-c", command));
	ok = r.status == 0;
	e2e_result_free(&r);
	return ok;
}

/* Installs once; false: not possible, and said why. */
static bool
installed(void)
{
	struct e2e_result r;
	static int state; /* 0: not tried, 1: done, -1: failed */

	if (state != 0)
		return state > 0;
	state = -1;
	snprintf(root, sizeof(root), "%s", e2e_path("root"));
	setenv("ROOT", root, 1);
	setenv("TMP", e2e_dir(), 1);
	r = shell(0, "meson install -C '%s' --no-rebuild --quiet --destdir \"$ROOT\"",
		E2E_BUILD_ROOT);
	state = r.status == 0 ? 1 : -1;
	e2e_result_free(&r);
	if (state < 0)
		return false;
	r = shell(0, "dirname \"$(find \"$ROOT\" -name 'libkvferry.so')\" | tr -d '\\n'");
	snprintf(libdir, sizeof(libdir), "%s", r.out);
	setenv("LIB", libdir, 1);
	setenv("LD_LIBRARY_PATH", libdir, 1);
	setenv("PKG_CONFIG_SYSROOT_DIR", root, 1);
	snprintf(libdir, sizeof(libdir), "%.180s/pkgconfig", r.out);
	setenv("PKG_CONFIG_PATH", libdir, 1);
	e2e_result_free(&r);
	return true;
}

static void
test_files(void)
{
	static const char *const files[] = {"lib/*/libkvferry.so.0", "include/kvferry/kvferry.h",
		"include/kvferry/client.h", "include/kvferry/error.h", "include/kvferry/geometry.h",
		"include/kvferry/plan.h", "include/kvferry/pool.h", "lib/*/pkgconfig/kvferry.pc",
		"sbin/kvferryd", "bin/kvferry", "bin/pd-demo", "share/kvferry/models.json"};
	struct e2e_result r;
	size_t i;

	if (!CHECK(installed()))
		return;
	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		const char *at = files[i];

		/* lib or lib/TRIPLET */
		if (strncmp(at, "lib/*/", 6) == 0)
			r = shell(0, "test -s \"$LIB/%s\"", at + 6);
		else
			r = shell(0, "test -s \"$ROOT" E2E_PREFIX "/%s\"", at);
		e2e_result_free(&r);
	}
	/* And nothing of the tests, nor any header that is not public. */
	r = shell(0, "find \"$ROOT\" -name '*test*' -o -name 'example*' -o -name '*.a' -o "
		     "-name '*.h' -not -path '*/include/kvferry/*'");
	if (!CHECK(r.out[0] == '\0'))
		printf("        installed too: %s\n", r.out);
	e2e_result_free(&r);
}

static void
test_library(void)
{
	struct e2e_result r;

	if (!CHECK(installed()))
		return;
	r = shell(0, "readelf -d \"$LIB/libkvferry.so\"");
	CHECK_STR_HAS(r.out, "Library soname: [libkvferry.so.0]");
	CHECK(strstr(r.out, "librte_") == NULL);
	CHECK(strstr(r.out, "libjansson") == NULL);
	CHECK(strstr(r.out, "RUNPATH") == NULL);
	e2e_result_free(&r);
	r = shell(0, "ldd \"$LIB/libkvferry.so\"");
	CHECK(strstr(r.out, "librte_") == NULL);
	CHECK(strstr(r.out, "not found") == NULL);
	e2e_result_free(&r);
	r = shell(0, "cat \"$PKG_CONFIG_PATH/kvferry.pc\"");
	CHECK(strstr(r.out, "dpdk") == NULL);
	e2e_result_free(&r);
	/* Names are kvf_*, and there are some; the version itself is a symbol too. */
	r = shell(0, "nm -D --defined-only \"$LIB/libkvferry.so\" | grep -c ' T kvf_'");
	CHECK(atoi(r.out) >= 30);
	e2e_result_free(&r);
	r = shell(1, "nm -D --defined-only \"$LIB/libkvferry.so\" | grep -v -e ' T kvf_' -e ' A "
		     "KVFERRY_'");
	CHECK(r.out[0] == '\0');
	e2e_result_free(&r);
}

static void
test_program(void)
{
	struct e2e_result r;
	FILE *f;

	if (!have("pkg-config")) {
		suite_skip("no pkg-config");
		return;
	}
	if (!CHECK(installed()))
		return;
	f = fopen(e2e_path("user.c"), "w");
	CHECK(f != NULL);
	if (f == NULL)
		return;
	CHECK(fputs(program, f) >= 0);
	CHECK_EQ(fclose(f), 0);
	r = shell(0, "cd \"$TMP\" && " E2E_CC " -std=c11 -Wall -Wextra -Werror user.c -o user "
		     "$(pkg-config --cflags --libs kvferry) && ./user");
	/* Position 1 of rank 1 of 4: row 11 goes to row 14. */
	CHECK_STR_HAS(r.out, "rows=2 first=11,14\n");
	e2e_result_free(&r);
	r = shell(0, "cd \"$TMP\" && for f in example_prefill example_decode; do " E2E_CC
		     " -std=c11 -Wall -Wextra -Werror '" E2E_SOURCE_ROOT "'/tests/e2e/$f.c -o $f "
		     "$(pkg-config --cflags --libs kvferry) || exit 1; done");
	e2e_result_free(&r);
	r = shell(0, "pkg-config --modversion kvferry");
	CHECK_STR_HAS(r.out, E2E_VERSION "\n");
	e2e_result_free(&r);
}

static void
headers(const char *compiler, const char *std, const char *ext)
{
	struct e2e_result r;

	/* Each alone, as the only one. */
	r = shell(0,
		"cd \"$TMP\" && for h in \"$ROOT" E2E_PREFIX "\"/include/kvferry/*.h; do "
		"echo \"#include <kvferry/${h##*/}>\" >one.%s && "
		"%s -std=%s -pedantic -Wall -Wextra -Werror -fsyntax-only "
		"-I\"$ROOT" E2E_PREFIX "/include\" one.%s || exit 1; done",
		ext, compiler, std, ext);
	e2e_result_free(&r);
}

static void
test_headers_c(void)
{
	if (CHECK(installed()))
		headers(E2E_CC, "c11", "c");
}

static void
test_headers_cxx(void)
{
	struct e2e_result r;

	if (!have(E2E_CXX)) {
		suite_skip("no " E2E_CXX);
		return;
	}
	if (!CHECK(installed()))
		return;
	headers(E2E_CXX, "c++17", "cc");
	/* And a C++ program links. */
	r = shell(0, "cd \"$TMP\" && printf '#include <kvferry/kvferry.h>\\nint main() { return "
		     "kvf_error_name(KVF_E_INVAL)[0] != 73; }\\n' >cxx.cc && " E2E_CXX
		     " -std=c++17 " E2E_SANITIZE " cxx.cc -o cxx -I\"$ROOT" E2E_PREFIX
		     "/include\" -L\"$LIB\" -lkvferry && ./cxx");
	e2e_result_free(&r);
}

static void
test_programs(void)
{
	struct e2e_result r;

	if (!CHECK(installed()))
		return;
	r = shell(0, "\"$ROOT" E2E_PREFIX "/sbin/kvferryd\" --version");
	CHECK_STR_HAS(r.out, "kvferryd " E2E_VERSION "\n");
	e2e_result_free(&r);
	r = shell(0,
		"\"$ROOT" E2E_PREFIX "/bin/kvferry\" plan --page-size 2 --dst-dcp 4 --dst-rank 1 "
		"--src-pages 5,2,11,4 --dst-pages 7 --tokens 8 --json");
	CHECK_STR_HAS(r.out, "\"rows\":2");
	e2e_result_free(&r);
	r = shell(0, "\"$ROOT" E2E_PREFIX "/bin/pd-demo\" --list-models");
	CHECK_STR_HAS(r.out, "deepseek-r1");
	e2e_result_free(&r);
}

static const struct suite_case cases[] = {
	{"files", test_files},
	{"the library: dependencies and names", test_library},
	{"a program of a user's, by pkg-config", test_program},
	{"headers as C11", test_headers_c},
	{"headers as C++17", test_headers_cxx},
	{"programs run from there", test_programs},
};

SUITE_MAIN("install", cases)
