/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which positions two shardings share, as strips: regular sequences of equally long
 * blocks. Solved arithmetically, so the cost of a strip does not depend on its length, nor on
 * how many positions or interleave blocks lie between two strips.
 */
#ifndef KVF_PLAN_JOINT_H
#define KVF_PLAN_JOINT_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/plan.h>

/* A spec with its bands worked out: what the two sides share lies in [lo, hi), and within it both
 * shardings are cyclic. The lists start with the pages of the first rows at or after the two bases.
 */
struct kvf_resolved {
	struct kvf_sharding src;
	struct kvf_sharding dst;
	uint64_t src_base;
	uint64_t dst_base;
	uint64_t lo;
	uint64_t hi;
};

/* The spec has passed the checks of its own fields. */
void kvf_plan_resolve(const struct kvf_plan_spec *spec, struct kvf_resolved *r);

/* `count` blocks of `rows` local rows each; the next block is src_step / dst_step rows on. */
struct kvf_strip {
	uint64_t src;
	uint64_t dst;
	uint64_t rows;
	uint64_t count;
	uint64_t src_step;
	uint64_t dst_step;
};

/* From one shared block to the next. */
struct kvf_joint_move {
	uint64_t pos;   /* positions on; UINT64_MAX: past any end */
	uint64_t outer; /* local rows on, side with the smaller interleave */
	uint64_t inner; /* the same for the other side */
	int64_t dx;     /* how x changes */
};

/*
 * The side with the smaller interleave is called outer; each of its blocks meets at most one block
 * of the other (inner) side. `x` says where: outer block [b, b + outer_len) starts x - (outer_len -
 * 1) positions after the inner block does, so the two meet iff x < meet.
 */
struct kvf_joint {
	uint64_t lo; /* positions wanted: [lo, hi) */
	uint64_t hi;
	uint64_t b;
	uint64_t x;
	uint64_t outer_row; /* local row of position b */
	uint64_t inner_row; /* the same, continued below the inner block's start where b lies before
			       it */
	uint64_t outer_len;
	uint64_t inner_len;
	uint64_t meet;
	uint64_t up_below;  /* x < up_below: moves[0] leads on */
	uint64_t down_from; /* x >= down_from: moves[1]; else moves[2] */
	struct kvf_joint_move moves[3];
	bool outer_is_dst;
};

/* Both shardings have passed kvf_sharding_check(). */
void kvf_joint_init(struct kvf_joint *j, const struct kvf_sharding *src,
	const struct kvf_sharding *dst, uint64_t lo, uint64_t hi);

/* The next strip in order of position; false at the end. */
bool kvf_joint_next(struct kvf_joint *j, struct kvf_strip *strip);

/* The first position in [lo, hi) that both hold; false if there is none. */
bool kvf_joint_first(const struct kvf_sharding *src, const struct kvf_sharding *dst, uint64_t lo,
	uint64_t hi, uint64_t *pos);

/* The last position in [lo, hi) that both hold; false if there is none. */
bool kvf_joint_last(const struct kvf_sharding *src, const struct kvf_sharding *dst, uint64_t lo,
	uint64_t hi, uint64_t *pos);

#endif
