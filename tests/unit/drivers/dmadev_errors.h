/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of the dmadev suite that need a device which fails, halts or fills up on demand. */
#ifndef KVF_TESTS_DMADEV_ERRORS_H
#define KVF_TESTS_DMADEV_ERRORS_H

void test_doorbell_and_ring(void);
void test_burst(void);
void test_long_rows_split(void);
void test_index_wrap(void);
void test_failed_descriptor(void);
void test_failed_batch_stops(void);
void test_every_descriptor_fails(void);
void test_refused_descriptor(void);
void test_doorbell_retried(void);
void test_halted(void);
void test_halted_and_recovered(void);

#endif
