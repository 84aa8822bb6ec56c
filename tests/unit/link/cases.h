/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of the link suite that stand in files of their own. */
#ifndef KVF_TESTS_LINK_CASES_H
#define KVF_TESTS_LINK_CASES_H

/* refusals.c */
void test_missing_occurrence(void);
void test_mismatches(void);
void test_coverage(void);
void test_source_shardings_differ(void);
void test_bad_groups(void);
void test_too_many_lanes(void);

/* random.c: properties */
void test_random_intersections(void);
void test_random_groups(void);
void test_random_holes(void);

#endif
