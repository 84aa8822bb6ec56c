/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Everything that libkvferry offers. */
#ifndef KVFERRY_H
#define KVFERRY_H

#include <kvferry/client.h>
#include <kvferry/error.h>
#include <kvferry/geometry.h>
#include <kvferry/link.h>
#include <kvferry/plan.h>
#include <kvferry/pool.h>

#endif
