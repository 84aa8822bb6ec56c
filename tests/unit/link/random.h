/* SPDX-License-Identifier: BSD-3-Clause */
/* Property tests of the link suite. */
#ifndef KVF_TESTS_LINK_RANDOM_H
#define KVF_TESTS_LINK_RANDOM_H

void test_random_intersections(void);
void test_random_groups(void);
void test_random_holes(void);

#endif
