/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pd-demo/options.h"
#include "pd-demo/proto.h"
#include "pd-demo/run.h"
#include "pd-demo/size.h"

static int
list_models(struct kvf_err *err)
{
	static struct model_names names;
	static struct model m;
	uint32_t i;
	int rc;

	rc = model_list(models_path(), &names, err);
	for (i = 0; rc == 0 && i < names.num; i++) {
		rc = model_load(models_path(), names.name[i], &m, err);
		if (rc == 0)
			printf("%-18s %s\n", m.name, m.title);
	}
	return rc;
}

int
main(int argc, char **argv)
{
	struct demo_options o;
	static struct model m;
	struct demo_machine machine;
	struct kvf_err err;
	uint64_t pages;
	int rc;

	demo_options_default(&o);
	rc = demo_options_parse(&o, argc, argv, &err);
	if (rc == 0 && o.help) {
		fputs(demo_usage, stdout);
		return 0;
	}
	if (rc == 0 && o.list_models) {
		rc = list_models(&err);
		if (rc == 0)
			return 0;
	} else if (rc == 0) {
		rc = demo_options_model(&o, &m, &err);
	}
	if (rc != 0) {
		fprintf(stderr, "pd-demo: %s: %s\n", kvf_error_name(rc), err.text);
		return 1;
	}
	if (o.need_hugepages) {
		demo_machine_read(&machine);
		rc = demo_hugepages_wanted(&o, &m, &machine, &pages, &err);
		if (rc == 0)
			printf("%" PRIu64 "\n", pages);
		else
			fprintf(stderr, "pd-demo: %s: %s\n", kvf_error_name(rc), err.text);
		return rc != 0;
	}
	if (o.worker_role != 0)
		return demo_worker_main(&o, &m);
	return demo_parent_main(&o, &m);
}
