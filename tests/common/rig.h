/* SPDX-License-Identifier: BSD-3-Clause */
/* An engine inside the test process: EAL once, then engines one after the other. */
#ifndef KVF_TESTS_RIG_H
#define KVF_TESTS_RIG_H

#include "engine/engine.h"

#define RIG_LCORES 3u

struct rig;

/* cfg->socket is chosen here; NULL cfg: defaults. Aborts the test program when EAL does not start.
 */
struct rig *rig_start(const struct kvf_engine_config *cfg);
/* The same, but the engine may refuse to start: NULL, with *err set. */
struct rig *rig_try_start(const struct kvf_engine_config *cfg, struct kvf_err *err);
const char *rig_socket(const struct rig *rig);
/* Orderly stop; returns what kvf_engine_run() did. */
int rig_stop(struct rig *rig);

#endif
