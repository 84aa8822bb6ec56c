/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVF_TESTS_UNIT_APPS_H
#define KVF_TESTS_UNIT_APPS_H

void positions_worked(void);
void positions_random(void);

#endif
