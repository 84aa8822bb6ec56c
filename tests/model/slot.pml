/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A slot that copy lcores take slices from: published, claimed, cancelled, finished, filled again.
 *
 * Two copiers that sleep when there is nothing, and a dispatcher that fills the slot GENERATIONS
 * times and may cancel each at any time. In between a copier may have read anything of an earlier
 * generation (a stale claim). Each step between two accesses of shared memory is a step of its own;
 * the accesses are atomic as in the code (all read-modify-writes are locked on x86).
 *
 * Must hold: a slice is copied at most once and only while its slot is handed out; every generation
 * finishes exactly once, when all its slices are copied or cancelled; nobody sleeps over work.
 *
 * lib/engine/copier.c kvf_slot_publish(), slices_done(), kvf_slot_cancel(), claim(),
 * kvf_copier_loop().
 *
 * Must fail: FINISH_AT_CLAIM (the slot is given back when its last slice is claimed), LATE_BIT (the
 * claimer takes the bit away after its slice was finished), CANCEL_FORGETS (cancelled slices are not
 * subtracted), CURSOR_FIRST (slices can be claimed before `remaining` is set), NO_RECHECK (sleeps
 * without looking again), SLEEPING_FIRST (the publisher looks for sleepers before it sets the bit).
 */
#define COPIERS     2
#define SLICES      2
#define GENERATIONS 2

/* Shared, as in struct kvf_slot and struct kvf_copy_shared. */
short cursor, remaining;
bit ready, finished; /* `active`, a word of the language */
bit sleeping[COPIERS];
byte wake[COPIERS]; /* eventfd counter */
bool stop;

/* What the model knows. */
byte generation; /* of what is in the slot; plain memory in the code */
bool handed_out;
byte copying;             /* copies in flight */
byte copied[SLICES];      /* in this generation */
byte ends;                /* times that this generation finished */

inline slices_done(n)
{
	atomic {
		was = remaining;
		remaining = remaining - n;
	}
	assert(was - n >= 0);
	if
	:: was == n ->
		atomic {
			ends++;
			assert(ends == 1);
			finished = 1
		}
	:: else
	fi
}

proctype copier(byte me)
{
	short left, was;
	byte slice, mine;
	bit seen;

	do
	:: seen = ready;
		if
		:: seen == 0 ->
			if
			:: stop -> break
			:: !stop ->
				sleeping[me] = 1;
#ifndef NO_RECHECK
				if
				:: ready == 0 && !stop ->
#endif
					atomic { wake[me] > 0 -> wake[me] = 0 }
#ifndef NO_RECHECK
				:: ready != 0 || stop
				fi
#endif
				;
				sleeping[me] = 0
			fi
		:: else ->
			/* claim(): a relaxed look, then the subtraction */
			if
			:: cursor <= 0 -> goto next
			:: cursor > 0
			fi;
			atomic { left = cursor; cursor = cursor - 1 }
			if
			:: left <= 0 -> goto next
			:: left > 0
			fi;
#ifndef LATE_BIT
			if
			:: left == 1 -> ready = 0
			:: else
			fi;
#endif
			/* the copy */
			atomic {
				slice = SLICES - left;
				assert(handed_out);
				mine = generation;
				copied[slice]++;
				assert(copied[slice] == 1);
				copying++
			}
			atomic {
				assert(handed_out && mine == generation);
				copying--
			}
#ifdef FINISH_AT_CLAIM
			if
			:: left == 1 -> atomic { ends++; finished = 1 }
			:: else
			fi
#else
			slices_done(1);
#endif
#ifdef LATE_BIT
			if
			:: left == 1 -> ready = 0
			:: else
			fi
#endif
		fi;
next:
		skip
	od
}

inline wake_sleepers()
{
	i = 0;
	do
	:: i < COPIERS ->
		if
		:: sleeping[i] == 1 -> wake[i] = 1
		:: sleeping[i] == 0
		fi;
		i++
	:: i == COPIERS -> break
	od
}

active proctype dispatcher()
{
	short left, was;
	byte g = 0, i, s;
	bool may_cancel, cancelled;

	run copier(0);
	run copier(1);
	do
	:: g < GENERATIONS ->
		/* the slot is ours: fill it */
		atomic {
			assert(!handed_out && copying == 0);
			g++;
			generation = g;
			copied[0] = 0;
			copied[1] = 0;
			ends = 0;
			cancelled = false;
			handed_out = true
		}
		/* One that may be cancelled never waits for ever. */
		if
		:: may_cancel = false
		:: may_cancel = true
		fi;
#ifdef CURSOR_FIRST
		cursor = SLICES;
		remaining = SLICES;
#else
		remaining = SLICES;
		cursor = SLICES;
#endif
#ifdef SLEEPING_FIRST
		wake_sleepers();
		ready = 1;
#else
		ready = 1;
		wake_sleepers();
#endif
		do
		:: finished == 1 ->
			/* kvf_copy_take_finished(): exchange */
			atomic {
				finished = 0;
				assert(copying == 0);
				assert(cancelled || (copied[0] == 1 && copied[1] == 1));
				handed_out = false
			}
			break
		:: may_cancel && !cancelled ->
			/* kvf_slot_cancel() */
			atomic { left = cursor; cursor = 0; cancelled = true }
			ready = 0;
			if
			:: left > 0 ->
#ifndef CANCEL_FORGETS
				slices_done(left)
#else
				skip
#endif
			:: else
			fi
		od
	:: g == GENERATIONS -> break
	od;
	stop = true;
	i = 0;
	do
	:: i < COPIERS -> wake[i] = 1; i++
	:: i == COPIERS -> break
	od
}
