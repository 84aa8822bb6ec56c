/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleeping and waking over the rings of an endpoint: nobody sleeps while there is something for him.
 *
 * Every store of a process first goes into its store buffer and reaches memory some time later, in
 * order, as on x86; a fence waits until the buffer is empty. The client posts POSTS entries and waits
 * for as many completions; the completion ring holds one, so that the engine has some left over.
 * Sleeps have no limit here: a wake-up that is lost is a deadlock, which spin reports as an invalid
 * end state.
 *
 * lib/client/submit.c publish(), kvf_ep_ring(); lib/client/poll.c sleep_once(), and what moves
 * cq_head; lib/engine/dispatcher.c publish(), anything_waits(), sleep_for_work().
 *
 * Must fail: NO_FENCE_POST, NO_FENCE_CLIENT_SLEEP, NO_FENCE_PUBLISH, NO_FENCE_ENGINE_SLEEP (one of
 * the four fences is missing), NO_RECHECK_CLIENT, NO_RECHECK_ENGINE (sleeps without looking again),
 * NO_FULL_CHECK (the engine forgets its left-over completions), NO_FULL_RING (the client does not
 * ring for a full ring).
 */
#define POSTS 2
#define CQ    1

/* Memory */
#define SQ_TAIL      0
#define CQ_TAIL      1
#define CQ_HEAD      2
#define CLIENT_SLEEP 3
#define ENGINE_SLEEP 4
byte mem[5];

chan client_sb = [3] of { byte, byte };
chan engine_sb = [3] of { byte, byte };

bool doorbell; /* edge of the eventfd, not seen yet */
bool woken;    /* bytes in the socket pair */
byte done;     /* completions that the client took */

active proctype client_buffer()
{
	byte var, val;
end:
	do
	:: atomic { client_sb ? var, val -> mem[var] = val }
	od
}

active proctype engine_buffer()
{
	byte var, val;
end:
	do
	:: atomic { engine_sb ? var, val -> mem[var] = val }
	od
}

#define CLIENT_FENCE (empty(client_sb))
#define ENGINE_FENCE (empty(engine_sb))

inline ring_if_asleep()
{
	if
	:: mem[ENGINE_SLEEP] == 1 -> doorbell = true
	:: mem[ENGINE_SLEEP] == 0
	fi
}

/* kvf_poll(): takes all there is. */
inline take()
{
	tail = mem[CQ_TAIL];
	if
	:: tail != head ->
		d_step { was_full = (tail - head == CQ); done = done + (tail - head); head = tail; }
		client_sb ! CQ_HEAD, head;
#ifndef NO_FULL_RING
		if
		:: was_full -> CLIENT_FENCE; ring_if_asleep()
		:: else
		fi
#endif
	:: else
	fi
}

active proctype client()
{
	byte posted = 0, head = 0, tail;
	bool was_full;

	do
	:: posted < POSTS ->
		posted++;
		client_sb ! SQ_TAIL, posted;
#ifndef NO_FENCE_POST
		CLIENT_FENCE;
#endif
		ring_if_asleep()
	:: done < posted ->
		take();
		if
		:: done < posted ->
			client_sb ! CLIENT_SLEEP, 1;
#ifndef NO_FENCE_CLIENT_SLEEP
			CLIENT_FENCE;
#endif
			if
#ifndef NO_RECHECK_CLIENT
			:: mem[CQ_TAIL] != head
			:: mem[CQ_TAIL] == head -> atomic { woken -> woken = false }
#else
			:: atomic { woken -> woken = false }
#endif
			fi;
			client_sb ! CLIENT_SLEEP, 0
		:: else
		fi
	:: done == POSTS -> break
	od;
	assert(posted == POSTS)
}

active proctype engine()
{
	byte head = 0, tail = 0, waiting = 0;

	do
	:: mem[SQ_TAIL] != head ->
		head++;
		waiting++
	:: waiting != 0 && tail - mem[CQ_HEAD] < CQ ->
		waiting--;
		tail++;
		engine_sb ! CQ_TAIL, tail;
#ifndef NO_FENCE_PUBLISH
		ENGINE_FENCE;
#endif
		if
		:: mem[CLIENT_SLEEP] == 1 -> woken = true
		:: mem[CLIENT_SLEEP] == 0
		fi
	:: mem[SQ_TAIL] == head && (waiting == 0 || tail - mem[CQ_HEAD] >= CQ) ->
		engine_sb ! ENGINE_SLEEP, 1;
#ifndef NO_FENCE_ENGINE_SLEEP
		ENGINE_FENCE;
#endif
#ifndef NO_RECHECK_ENGINE
		if
		:: mem[SQ_TAIL] != head -> goto up
		:: mem[SQ_TAIL] == head
		fi;
#ifndef NO_FULL_CHECK
		if
		:: waiting != 0 && tail - mem[CQ_HEAD] < CQ -> goto up
		:: !(waiting != 0 && tail - mem[CQ_HEAD] < CQ)
		fi;
#endif
#endif
end_asleep:
		atomic { doorbell -> doorbell = false };
up:
		engine_sb ! ENGINE_SLEEP, 0
	od
}

/* The engine may sleep at the end, the client may not: it must have got everything. */
