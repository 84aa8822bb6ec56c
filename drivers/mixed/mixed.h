/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A core for small pieces, a DMA device for large ones.
 *
 *	mixed[:from=BYTES][,DEVICE...]
 *
 * A batch goes to the device when its pieces have at least `from` bytes on average. Without from=
 * the two are timed against each other when the driver opens, and what was found is printed.
 * Whichever way a batch goes, its completion comes through the same channel; nothing depends on the
 * order.
 */
#ifndef KVF_DRIVERS_MIXED_H
#define KVF_DRIVERS_MIXED_H

#include "drivers/copy.h"

/* For tests: other drivers in the place of cpu and dmadev. Before open(). */
void kvf_copy_mixed_over(const struct kvf_copy_ops *small, const struct kvf_copy_ops *large);

#endif
