/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Abort against completion: a room with one leg from a sender to a receiver, SEGMENTS segments that
 * a copier works on, and at any time an abort, the death of an end, a time-out or a failed copy.
 *
 * Must hold: each part ends exactly once, as Success or Failed, and both the same way unless it was
 * over for one before; Success only when every byte is there; drained only when nothing of the room
 * is in flight any more; after that no byte is read or written; everybody ends.
 *
 * lib/engine/room.c kvf_room_fail(), fail_part(), kvf_part_try_drain(); transfer.c kvf_leg_stop(),
 * kvf_transfer_plan(), segment_done(), share_done(), phase_done().
 *
 * Must fail: DRAIN_AT_ONCE (does not wait for what is in flight), NO_STOP (a failed leg goes on
 * planning), END_TWICE (a part that ended may end again), LOST_DRAIN (the last segment of a stopped
 * leg does not look whether that was the last), EARLY_SUCCESS (Success when all is planned).
 */
#define SEGMENTS 2
#define SLOTS    2

#define RUNNING 0
#define SUCCESS 1
#define FAILED  2

#define SRC 0
#define DST 1

/* Slots, as the other model has proved that they behave: one slice each here. */
mtype = { FREE, OUT, TAKEN, DONE };
mtype slot[SLOTS] = FREE;
bool slot_error[SLOTS];
bool writing; /* a copy is in flight */

/* The dispatcher's. */
byte status[2];
bool drained[2];
byte ended[2]; /* how often */
byte outstanding, planned, copied;
bool stopped, failed;

/* What may happen. */
bool abort_posted, copy_fails;

proctype copier()
{
	byte i;

	do
	:: atomic { slot[0] == OUT -> slot[0] = TAKEN; i = 0 } goto copy
	:: atomic { slot[1] == OUT -> slot[1] = TAKEN; i = 1 } goto copy
	:: drained[SRC] && drained[DST] && slot[0] == FREE && slot[1] == FREE -> break
	:: false ->
copy:
		atomic { writing = true; assert(!drained[SRC] && !drained[DST]) }
		atomic {
			assert(!drained[SRC] && !drained[DST]);
			writing = false;
			slot_error[i] = copy_fails;
			copy_fails = false;
			if
			:: slot_error[i]
			:: else -> copied++
			fi;
			slot[i] = DONE
		}
	od
}

inline end_part(p, how)
{
#ifndef END_TWICE
	if
	:: status[p] == RUNNING ->
#endif
		status[p] = how;
		assert(how != SUCCESS || copied == SEGMENTS);
		ended[p]++;
		assert(ended[p] == 1);
		try_drain(p)
#ifndef END_TWICE
	:: else
	fi
#endif
}

/* kvf_part_try_drain() */
inline try_drain(p)
{
	if
#ifdef DRAIN_AT_ONCE
	:: status[p] != RUNNING && !drained[p] ->
#else
	:: status[p] != RUNNING && !drained[p] && outstanding == 0 ->
#endif
		assert(!writing);
		drained[p] = true
	:: else
	fi
}

/* kvf_slot_cancel(): what nobody took comes back at once. */
inline cancel(i)
{
	if
	:: slot[i] == OUT -> slot[i] = DONE; slot_error[i] = false
	:: else
	fi
}

/* kvf_room_fail(): the first one counts. */
inline room_fail()
{
	if
	:: !failed ->
		failed = true;
#ifndef NO_STOP
		stopped = true;
#endif
		cancel(0);
		cancel(1);
		end_part(SRC, FAILED);
		end_part(DST, FAILED)
	:: else
	fi
}

inline segment_done(i)
{
	slot[i] = FREE;
	outstanding--;
	if
	:: slot_error[i] -> room_fail()
	:: else
	fi;
	if
	:: stopped ->
#ifndef LOST_DRAIN
		if
		:: outstanding == 0 -> try_drain(SRC); try_drain(DST)
		:: else
		fi
#else
		skip
#endif
	:: !stopped && planned == SEGMENTS && outstanding == 0 -> all_done()
	:: else
	fi
}

/* phase_done() of the last phase */
inline all_done()
{
	end_part(DST, SUCCESS);
	end_part(SRC, SUCCESS)
}

/* One thread: each of its rounds' steps is atomic towards the parts, not towards the copier. */
active proctype dispatcher()
{
	run copier();
	do
	/* intake: abort of either end; timers; a death: all of them fail the room */
	:: abort_posted -> atomic { abort_posted = false; room_fail() }
	/* plan */
	:: !stopped && planned < SEGMENTS && slot[0] == FREE ->
		atomic { planned++; outstanding++; slot[0] = OUT }
#ifdef EARLY_SUCCESS
		if
		:: planned == SEGMENTS -> atomic { end_part(DST, SUCCESS); end_part(SRC, SUCCESS) }
		:: else
		fi
#endif
	:: !stopped && planned < SEGMENTS && slot[1] == FREE ->
		atomic { planned++; outstanding++; slot[1] = OUT }
	/* finish */
	:: slot[0] == DONE -> atomic { segment_done(0) }
	:: slot[1] == DONE -> atomic { segment_done(1) }
	:: drained[SRC] && drained[DST] && slot[0] == FREE && slot[1] == FREE && !abort_posted ->
		break
	od;
	assert(ended[SRC] == 1 && ended[DST] == 1);
	assert(status[SRC] == status[DST]);
	assert(outstanding == 0)
}

/* Somebody who may do each of these once, at any time, or never. */
active proctype world()
{
	if
	:: abort_posted = true
	:: copy_fails = true
	:: copy_fails = true; abort_posted = true
	:: skip
	fi
}
