/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver that wraps another and spoils chosen batches, so that tests can see a copy fail, lie
 * or linger.
 *
 *	--driver fault:INNER[,fail=N][,corrupt=N][,drop=N][,delay_us=N][,every=K]
 *
 * Batches (accepted submits) are counted over the whole driver, from 1.
 *
 *	fail=N      batch N is not executed and ends with KVF_E_DEVICE
 *	corrupt=N   batch N is executed, then one byte of its first destination row is flipped
 *	drop=N      batch N is not executed and reported as a success
 *	delay_us=N  a batch reaches INNER only N microseconds after it was submitted: its
 *	            memory really is read and written that late
 *	every=K     fail, corrupt and drop strike batch N and each K-th after it
 *
 * A batch that several strike is failed, else dropped, else corrupted. INNER gets no
 * arguments of its own.
 */
#ifndef KVF_DRIVERS_FAULT_H
#define KVF_DRIVERS_FAULT_H

#include "drivers/copy.h"

#define KVF_FAULT_MAX_INNER 16u

/* Makes a driver known as INNER by its name; a later one of the same name takes its place. At
 * start-up, before any open, from one thread; at most KVF_FAULT_MAX_INNER names. */
void kvf_copy_fault_register(const struct kvf_copy_ops *inner);

#endif
