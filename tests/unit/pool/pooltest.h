/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of the pool suite share. */
#ifndef KVF_TESTS_POOLTEST_H
#define KVF_TESTS_POOLTEST_H

#include <stddef.h>
#include <stdint.h>

#include <kvferry/pool.h>

/* A config that asks for 4 KiB pages of any node, named "pooltest". */
struct kvf_pool_config small_config(uint64_t length);

/* The same in 2 MiB pages. */
struct kvf_pool_config huge_config(uint64_t length);

int count_fds(void);
/* Lines of /proc/self/maps that show a pool of a test. */
int count_maps(void);
/* st_blocks in bytes. */
uint64_t allocated(int fd);
/* All pages of [base, base + length) are in memory. */
int all_resident(const void *base, uint64_t length);
/* The number that follows `name` in text, e.g. "needed="; UINT64_MAX if it is not there. */
uint64_t number_after(const char *text, const char *name);

/* Creating must fail with this code, leave nothing open or mapped and say these words. */
void create_refused(const struct kvf_pool_config *cfg, int code, const char *a, const char *b);

void test_path_refused(void);
void test_path(void);
void test_path_limit(void);

void test_supply_huge(void);
void test_supply_huge_node(void);
void test_supply_huge_absent(void);
void test_supply_memory(void);
void test_supply_cgroup_v2(void);
void test_supply_cgroup_v1(void);
void test_supply_memory_node(void);
void test_populate_small(void);
void test_populate_huge(void);
void test_populate_shortage(void);

void test_import_small(void);
void test_import_huge(void);
void test_import_mount(void);
void test_import_two_processes(void);
void test_import_kinds(void);
void test_import_seals(void);
void test_import_access(void);
void test_import_lengths(void);
void test_import_sparse(void);
void test_import_sparse_front(void);
void test_import_sparse_huge(void);
void test_import_bad_fd(void);
void test_unimport(void);

#endif
