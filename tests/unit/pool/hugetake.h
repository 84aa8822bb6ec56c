/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hugepages for tests. A guardian process raises nr_hugepages by what is asked for, and takes the
 * same number off again when this process is gone, however it went (it sees the end of its socket).
 */
#ifndef KVF_TESTS_HUGETAKE_H
#define KVF_TESTS_HUGETAKE_H

#include <stdbool.h>
#include <stdint.h>

#define HUGE_2M (2ull << 20)

/* Is there room for `pages` more free 2 MiB pages? Takes them if root; false: *why for
 * suite_skip(). */
bool huge_take(uint64_t pages, const char **why);

/* Gives back `pages` of what was taken. What is left goes back at exit. */
void huge_give_back(uint64_t pages);

/* Keeps everybody else who does the same from changing the total, until the fd is closed. */
int huge_lock(void);

/* Runs a command line that changes nr_hugepages, under huge_lock() of the caller; the change is
 * given back at exit too. Returns its status. */
int huge_run(const char *command);

/* Free 2 MiB pages that are promised to nobody, all nodes; and the host's total. */
uint64_t huge_free(void);
uint64_t huge_total(void);

/* A hugetlbfs of 2 MiB pages in a mount namespace of our own, so it cannot outlive us; opts: more
 * mount options, e.g. "size=4M". Returns the directory, or NULL with *why. */
const char *huge_mount(const char *opts, const char **why);

#endif
