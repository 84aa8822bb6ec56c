/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the program that KVFERRY_BIN names. */
#ifndef KVF_TESTS_PLAN_CLI_H
#define KVF_TESTS_PLAN_CLI_H

#define CLI_OUT_MAX (1u << 20)

struct cli_result {
	int status; /* exit status, or -1 */
	char out[CLI_OUT_MAX];
	char err[CLI_OUT_MAX];
};

/* Arguments are split at spaces; '' stands for an empty one. */
void cli_run(struct cli_result *res, const char *line);

/* Exit status 1, nothing on stdout, one line "kvferry: <text>..." on stderr. */
void cli_expect_refusal(const char *line, const char *text, const char *file, int lineno);
#define REFUSED(line, text) cli_expect_refusal((line), (text), __FILE__, __LINE__)

/* Exit status 0, exactly this on stdout, nothing on stderr. */
void cli_expect_output(const char *line, const char *text, const char *file, int lineno);
#define OUTPUT(line, text) cli_expect_output((line), (text), __FILE__, __LINE__)

/* test_cli_link.c */
void test_link_text(void);
void test_link_dcp(void);
void test_link_heads(void);
void test_link_stages(void);
void test_link_bands(void);
void test_link_sums(void);
void test_link_files(void);
void test_link_refusals(void);

#endif
