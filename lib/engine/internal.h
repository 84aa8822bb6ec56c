/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the engine's files share. Two threads own everything:
 *
 *   control     sockets, registration, groups' membership, mapping and unmapping, links (builds and
 * frees) dispatcher  rings, rooms, parts, legs, chunks, grants; reads groups and links
 *
 * They talk through two rings of struct kvf_note. An endpoint is handed to the dispatcher with
 * NOTE_EP_ADD and is control's again with NOTE_EP_GONE; in between each touches only its half.
 */
#ifndef KVF_ENGINE_INTERNAL_H
#define KVF_ENGINE_INTERNAL_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <kvferry/client.h>
#include <kvferry/link.h>

#include "base/err.h"
#include "drivers/copy.h"
#include "engine/copier.h"
#include "engine/engine.h"
#include "engine/guard.h"
#include "engine/slab.h"
#include "plan/ring.h"
#include "pool/import.h"
#include "wire/message.h"
#include "wire/ring.h"

struct rte_ring;
struct kvf_room;
struct kvf_part;

/* A named group of one role. Control creates, completes and recycles it. */
struct kvf_ep_group {
	char name[KVF_GROUP_NAME_MAX];
	uint32_t role;
	uint32_t size;
	uint32_t id;
	uint32_t joined;            /* control: members registered */
	uint32_t endpoints;         /* control: registered ones and dead ones not buried yet */
	_Atomic uint32_t room_refs; /* dispatcher counts up and down; control recycles at 0 */
	struct kvf_ep *members[KVF_MAX_GROUP_SIZE]; /* control */
	struct kvf_ep *live[KVF_MAX_GROUP_SIZE];    /* dispatcher */
};

/* Index lists of one posting, in slab memory. */
struct kvf_lists {
	uint32_t *ids[KVF_MAX_LISTS];
	uint32_t count[KVF_MAX_LISTS]; /* filled so far while the posting is being read */
	uint32_t capacity[KVF_MAX_LISTS];
};

/* A posting being read out of a ring, bounded work at a time. */
struct kvf_intake {
	bool active;
	uint32_t list;      /* index into sqe.lists */
	struct kvf_sqe sqe; /* private copy */
	struct kvf_lists lists;
	struct kvf_err err; /* first refusal; code 0: none */
};

struct kvf_ep_counters {
	_Atomic uint64_t bytes_in;  /* decode: copied into its pool */
	_Atomic uint64_t bytes_out; /* prefill: copied out of its pool */
	_Atomic uint64_t rooms_open;
	_Atomic uint64_t rooms_success;
	_Atomic uint64_t rooms_failed;
};

struct kvf_ep {
	/* Fixed before NOTE_EP_ADD. */
	uint32_t id;
	uint32_t role;
	uint32_t rank;
	uint32_t max_rooms;
	uint64_t generation;
	struct kvf_ep_group *group;
	struct kvf_registration *reg;
	struct kvf_pool_view pool;
	struct kvf_ring_view ring;
	void *map_handle;
	struct kvf_guard_region *guard;
	/* The engine's end of a socket pair; the client sleeps on the other one. Not one eventfd
	 * for both: flags such as O_NONBLOCK belong to the open file, and a client could clear
	 * them. */
	int wake_fd;
	/* Eventfd that the client rings. Only watched here, never read or written, as the client
	 * shares it. One for each, or clients could swallow each other's rings. */
	int doorbell_fd;
	pid_t pid;
	uid_t uid;
	uint32_t list_limit[KVF_MAX_LISTS]; /* ids are below this; 0: no component uses the list */
	char name[KVF_GROUP_NAME_MAX + 24]; /* "prefill GROUP[RANK]" for messages */

	/* Control's. */
	int ring_fd;        /* until the client has it */
	int client_wake_fd; /* the same */
	bool dead_sent;     /* NOTE_EP_DEAD is on its way or done */
	bool bye;           /* the client waits for BYE_DONE */

	/* Dispatcher's. */
	bool dying;      /* its client is gone; what it posted until then is still read */
	uint32_t sq_end; /* dying: up to here */
	bool dead;
	bool faulted;
	struct kvf_err fault; /* written before NOTE_EP_FAULT, read by control after it */
	uint32_t sq_head;
	uint32_t cq_tail;
	uint64_t last_seq;
	struct kvf_intake intake;
	uint32_t num_parts;     /* not released */
	struct kvf_part *parts; /* all that still refer to this endpoint */
	struct kvf_part *timer; /* dead: whose room fails next */
	struct kvf_part *dirty_head, *dirty_tail;
	struct kvf_err event; /* about the endpoint itself, to be published */
	uint32_t
		*grants[KVF_MAX_LISTS]; /* per page: low 32 bits of the seq that holds it, 0 free */
	uint64_t request_bytes;         /* slab memory of its lists */
	uint32_t num_chunks;            /* not sent yet */
	struct kvf_ep_counters counters;
};

/* One chunk of a send, with what the final one carries. */
struct kvf_chunk {
	struct kvf_chunk *next;
	uint64_t start;
	uint64_t tokens;
	bool final;
	uint32_t passed;      /* legs that need nothing more from it */
	uint32_t outstanding; /* segments that read it */
	struct kvf_lists lists;
};

/* One endpoint's use of a room. */
struct kvf_part {
	struct kvf_room *room;
	struct kvf_ep *ep;
	struct kvf_part *ep_next, *ep_prev;
	struct kvf_part *dirty_next;
	struct kvf_part *sweep_next;
	struct kvf_part *timer_next,
		**timer_at; /* in its slot of the wheel; timer_at NULL: in none */
	struct kvf_leg *legs;
	uint64_t seq;
	uint8_t role;
	uint8_t status;
	bool released; /* by the client: only remembers that this endpoint took part */
	bool dirty;
	bool sweeping; /* in the queue that gives grants back */
	bool drained;
	bool verify;  /* KVF_ROOM_VERIFY */
	bool clipped; /* a state list was longer than the other side's */
	bool linked;  /* legs_expected is known */
	uint32_t rank;
	uint32_t bootstrap_ms;
	uint32_t waiting_ms;
	uint64_t posted; /* TSC */
	uint32_t legs_expected;
	uint32_t legs_done;
	uint64_t tokens_done; /* as reported */
	uint64_t total;

	/* decode */
	uint64_t prefix;
	struct kvf_lists lists;
	uint32_t sweep_list, sweep_pos;
	uint32_t tokens_left; /* legs that have not finished their tokens / state / aux */
	uint32_t state_left;
	uint32_t aux_left;

	/* prefill */
	uint64_t first_start;
	uint64_t next_start;
	bool final_posted;
	struct kvf_chunk *chunks, *chunks_tail;
};

enum kvf_phase {
	KVF_PHASE_TOKENS,
	KVF_PHASE_STATE,
	KVF_PHASE_AUX,
	KVF_PHASE_DONE,
};

static inline uint32_t
kvf_phase_class(uint8_t phase)
{
	return phase == KVF_PHASE_TOKENS  ? KVF_TOKENS
	       : phase == KVF_PHASE_STATE ? KVF_STATE
					  : KVF_AUX;
}

#define KVF_LEG_RUNS 16u

/* What one send part gives one receive part. */
struct kvf_leg {
	struct kvf_part *src, *dst;
	struct kvf_leg *src_next, *dst_next;
	struct kvf_leg *queue_next, *queue_prev;
	const struct kvf_pair *pair;
	struct kvf_chunk *chunk; /* being planned; NULL: waiting for the next one */
	struct kvf_chunk *final; /* set once the final chunk was planned */
	uint32_t map;            /* of the pair, being planned */
	uint32_t widest;         /* bytes of a row in its widest lane */
	uint8_t phase;           /* enum kvf_phase */
	uint8_t classes;         /* of its maps: bits 1 << enum kvf_class */
	bool iterating;
	bool planned; /* everything of the phase is in slots or done */
	bool queued;
	bool stopped;
	uint32_t outstanding; /* segments in slots */
	/* Runs of the plan that no segment has taken yet: buffered ones, the rest of the one being
	 * cut, and within it the rest of a single block. blocks 0: none. */
	uint32_t run_pos, num_runs;
	struct kvf_run outer, inner;
	uint64_t units_cut; /* of the current map: how far it is */
	/* From here on not cleared when the leg is made. */
	struct kvf_run runs[KVF_LEG_RUNS];
	union {
		struct kvf_plan_iter plan;
		struct kvf_ring_iter ring;
	} it;
};

struct kvf_link_slot {
	struct kvf_link_slot *next;
	struct kvf_ep_group *prefill, *decode;
	struct kvf_link *link; /* NULL: wanted or refused */
	struct kvf_err refusal;
	struct kvf_room *rooms;    /* that use it, by room->link_next */
	struct kvf_room *unlinked; /* from here on they have not heard of it yet */
	uint32_t refs;             /* how many rooms */
	bool stale;                /* a member left: freed with the last room */
};

struct kvf_room {
	struct kvf_room *hash_next;
	struct kvf_room *link_next, *link_prev;
	uint64_t id;
	uint64_t key;
	uint64_t total;
	uint64_t last_progress; /* TSC */
	struct kvf_ep_group *prefill, *decode;
	char prefill_name[KVF_GROUP_NAME_MAX]; /* named by a receiver; "": any */
	struct kvf_part **send_parts;          /* [prefill->size] */
	struct kvf_part **recv_parts;          /* [decode->size] */
	struct kvf_link_slot *link;
	uint32_t num_send, num_recv; /* parts that joined */
	uint32_t unreleased;
	bool lingering;        /* over and released, kept for members that are late */
	uint64_t linger_until; /* TSC */
	struct kvf_room *linger_next, *linger_prev;
	struct kvf_err err; /* first root cause; code 0: not failed */
};

#define KVF_ROOM_BUCKETS 65536u
#define KVF_TIMER_SLOTS  16384u

/* Notes between control and dispatcher, copied by value through the rings. */
enum kvf_note_type {
	/* control -> dispatcher */
	NOTE_EP_ADD = 1,
	NOTE_EP_DEAD,
	NOTE_LINK, /* built or refused */
	NOTE_STOP,
	/* dispatcher -> control */
	NOTE_EP_GONE,
	NOTE_EP_FAULT,
	NOTE_LINK_WANT,
	NOTE_LINK_FREE,
	NOTE_WARN, /* err.text: to be logged */
	NOTE_STOPPED,
};

struct kvf_note {
	uint32_t type;
	uint32_t reserved;
	struct kvf_ep *ep;
	struct kvf_ep_group *prefill, *decode;
	struct kvf_link *link;
	/* NOTE_LINK without a link: the refusal; code 0: a group left, ask again. NOTE_WARN: the
	 * text. */
	struct kvf_err err;
};

struct kvf_totals {
	_Atomic uint64_t rooms_open;
	_Atomic uint64_t rooms_success; /* parts that ended so */
	_Atomic uint64_t rooms_failed;
	_Atomic uint64_t segments;
	_Atomic uint64_t runs;
	_Atomic uint64_t bytes;
	_Atomic uint64_t postings;
	_Atomic uint64_t clipped; /* state lists */
	_Atomic uint64_t sleeps;
	_Atomic uint64_t slab_bytes;
	_Atomic uint64_t slab_used;
};

struct kvf_dispatcher {
	struct kvf_engine *engine;
	struct kvf_copier *copier;
	struct kvf_copy_shared *copy;
	struct kvf_slab slab;
	struct kvf_ep **eps;
	uint32_t num_eps;
	struct kvf_room *buckets[KVF_ROOM_BUCKETS];
	uint64_t hash_seed; /* nobody outside can choose ids that share a bucket */
	uint32_t num_rooms; /* without those that linger */
	struct kvf_room *linger_head, *linger_tail; /* by time */
	uint32_t num_lingering;
	struct kvf_leg *run_head, *run_tail; /* legs with something to plan, in turn */
	struct kvf_part *sweep_head, *sweep_tail;
	struct kvf_part *timers[KVF_TIMER_SLOTS]; /* by deadline; see timer.c */
	uint64_t timer_tick;                      /* of the slot that is looked at next */
	uint32_t timer_shift;                     /* TSC cycles to ticks */
	struct kvf_link_slot *links;
	bool untold;         /* some link has rooms that have not heard of it */
	bool unburied;       /* dead endpoints can be buried further at once */
	uint64_t free_slots; /* bits */
	uint64_t now;        /* TSC of this round */
	uint64_t hz;
	uint64_t next_tick;
	bool stopping;
	uint64_t stop_deadline;
	alignas(64) struct kvf_totals totals;
};

/* Notes that found their ring full; see notes.c. */
struct kvf_outbox {
	struct kvf_unsent *head, *tail;
};

struct kvf_engine {
	struct kvf_engine_config cfg;
	char socket_path[108];
	dev_t socket_dev; /* what we bound there */
	ino_t socket_ino;
	uint64_t generation;
	uint64_t started_ns;
	const struct kvf_copy_ops *ops;
	struct kvf_copy_drv *drv;
	struct kvf_copy_caps caps;
	struct rte_ring *to_dispatcher;
	struct rte_ring *to_control;
	struct kvf_outbox for_control; /* the dispatcher's */
	int notes_fd;                  /* eventfd: notes for the dispatcher */
	int bells_fd;   /* epoll: what wakes the dispatcher, notes_fd and all doorbells */
	int control_fd; /* eventfd: wakes control */
	int epoll_fd;
	int listen_fd;
	int spare_fd; /* given up for a moment when descriptors run out */
	_Atomic bool stop_requested;
	bool stopped;
	uint32_t num_lcores;
	unsigned int lcore_ids[KVF_ENGINE_MAX_LCORES];
	uint32_t launched;
	struct kvf_copy_shared *copy;
	struct kvf_dispatcher *disp;

	/* Control's. */
	struct kvf_conn *conns;
	uint32_t num_conns;
	uint32_t grumbles; /* lines about peers in this second, left out or not */
	uint64_t grumble_second;
	struct kvf_ep **eps;
	uint32_t num_eps;
	uint32_t next_ep_id;
	uint64_t next_generation;
	struct kvf_ep_group *groups;
	uint32_t num_groups;
	struct kvf_want *wants; /* links that wait for complete groups */
	struct kvf_outbox for_dispatcher;
};

/* notes.c */
#define KVF_NOTES 16384 /* in a ring */
/* For what may be dropped when the other side is far behind. */
void kvf_note_try(struct rte_ring *ring, int fd, const struct kvf_note *note);
bool kvf_note_take(struct rte_ring *ring, struct kvf_note *note);
/* Neither waits: what finds the ring full goes out with a later call, in order. */
void kvf_tell_dispatcher(struct kvf_engine *e, const struct kvf_note *note); /* control */
void kvf_tell_control(struct kvf_engine *e, const struct kvf_note *note);    /* dispatcher */
bool kvf_flush_dispatcher(struct kvf_engine *e); /* control; true: nothing is left */
bool kvf_flush_control(struct kvf_engine *e);    /* dispatcher; the same */
/* Takes out the first note that is kept; false: none. */
bool kvf_outbox_take(struct kvf_outbox *box, struct kvf_note *note);
/* What passes through a ring, or is left by a thread that ends, is written before the first and
 * read after the second. */
void kvf_hand_over(void);
void kvf_handed_over(void);

/* engine.c */
void kvf_log(struct kvf_engine *e, bool always, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* control.c */
int kvf_control_init(struct kvf_engine *e, struct kvf_err *err);
int kvf_control_run(struct kvf_engine *e, struct kvf_err *err);
void kvf_control_fini(struct kvf_engine *e);

/* registry.c: endpoints, groups, links, on the control thread */
int kvf_registry_add(struct kvf_engine *e, struct kvf_registration *reg, int pool_fd, pid_t pid,
	uid_t uid, struct kvf_ep **ep, struct kvf_err *err);
void kvf_registry_handed_over(struct kvf_ep *ep); /* the client has its descriptors */
void kvf_registry_admit(struct kvf_engine *e, struct kvf_ep *ep);
void kvf_registry_discard(
	struct kvf_engine *e, struct kvf_ep *ep); /* the dispatcher has no part in it */
void kvf_registry_dead(struct kvf_engine *e, struct kvf_ep *ep);
void kvf_registry_gone(struct kvf_engine *e, struct kvf_ep *ep);
void kvf_registry_want(struct kvf_engine *e, struct kvf_ep_group *p, struct kvf_ep_group *d);
void kvf_registry_fini(struct kvf_engine *e);

/* status.c */
char *kvf_status_json(struct kvf_engine *e);

/* dispatcher.c */
int kvf_dispatcher_main(void *arg);
/* One round at time `now` (TSC); never sleeps. True if anything was done. *at_rest: an orderly stop
 * has come to its end. */
bool kvf_dispatcher_step(struct kvf_dispatcher *d, uint64_t now, bool *at_rest);
void kvf_part_touch(struct kvf_dispatcher *d, struct kvf_part *part); /* publish its state */
void kvf_ep_fault(struct kvf_dispatcher *d, struct kvf_ep *ep, const struct kvf_err *why);

/* intake.c */
bool kvf_intake_poll(struct kvf_dispatcher *d, struct kvf_ep *ep);
void kvf_intake_drop(struct kvf_dispatcher *d, struct kvf_ep *ep);
void kvf_lists_free(struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_lists *lists);

/* What stands in a grant table for pages granted under `seq`; never 0, which means free. */
static inline uint32_t
kvf_grant_tag(uint64_t seq)
{
	return (uint32_t)(seq % (UINT32_MAX - 1)) + 1u;
}

/* room.c */
void kvf_room_post(struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_intake *in);
void kvf_room_abort(
	struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_intake *in, const char *reason);
void kvf_room_release_posted(struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_intake *in);
void kvf_room_fail(struct kvf_dispatcher *d, struct kvf_room *room, const struct kvf_ep *who,
	int code, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void kvf_part_status(struct kvf_dispatcher *d, struct kvf_part *part, uint8_t status);
void kvf_part_try_drain(struct kvf_dispatcher *d, struct kvf_part *part);
void kvf_part_linked(struct kvf_dispatcher *d, struct kvf_part *part);
bool kvf_sweep(struct kvf_dispatcher *d);
void kvf_room_free(struct kvf_dispatcher *d, struct kvf_room *room);
struct kvf_room **kvf_room_bucket(struct kvf_dispatcher *d, uint64_t id);
void kvf_room_ep_dead(struct kvf_dispatcher *d, struct kvf_ep *ep);
/* Fails the rooms of a dead endpoint, so many at a time; true if there were any. */
bool kvf_room_ep_reap(struct kvf_dispatcher *d, struct kvf_ep *ep);
bool kvf_room_ep_gone(struct kvf_dispatcher *d, struct kvf_ep *ep); /* true: nothing refers to it */

/* timer.c */
void kvf_timers_init(struct kvf_dispatcher *d);                      /* d->hz is known */
void kvf_timer_set(struct kvf_dispatcher *d, struct kvf_part *part); /* by what it waits for now */
void kvf_timer_drop(struct kvf_part *part);
void kvf_timers_run(struct kvf_dispatcher *d);

/* linger.c */
void kvf_room_over(struct kvf_dispatcher *d, struct kvf_room *room); /* the last part is released */
void kvf_linger_end(struct kvf_dispatcher *d, struct kvf_room *room); /* it is joined, or freed */
void kvf_rooms_expire(struct kvf_dispatcher *d);
/* May a member that states this total join a room that lingers? */
bool kvf_linger_joinable(
	const struct kvf_dispatcher *d, const struct kvf_room *room, uint64_t total);
/* If no member of the group is left, whoever comes next under its name knows nothing of its rooms.
 */
void kvf_linger_end_all(struct kvf_dispatcher *d, const struct kvf_ep_group *group);

/* links.c: the dispatcher's side of links */
void kvf_link_bind(struct kvf_dispatcher *d, struct kvf_room *room);
void kvf_link_note(struct kvf_dispatcher *d, const struct kvf_note *note);
bool kvf_link_tell(struct kvf_dispatcher *d); /* rooms that waited for a link, so many at a time */
void kvf_link_invalidate(struct kvf_dispatcher *d, const struct kvf_ep_group *group);
bool kvf_link_refused(
	const struct kvf_dispatcher *d, const struct kvf_ep_group *p, const struct kvf_ep_group *q);
void kvf_link_unbind(struct kvf_dispatcher *d, struct kvf_room *room);

/* segment.c */
/* Fills the slot with the leg's next segment, and what goes with it; false when there is none for
 * now. */
bool kvf_segment_fill(struct kvf_dispatcher *d, struct kvf_leg *leg, struct kvf_slot *slot);

/* transfer.c */
void kvf_leg_create(struct kvf_dispatcher *d, struct kvf_part *src, struct kvf_part *dst);
void kvf_leg_wake(struct kvf_dispatcher *d, struct kvf_leg *leg);
void kvf_leg_stop(struct kvf_dispatcher *d, struct kvf_leg *leg);
void kvf_legs_free(struct kvf_dispatcher *d, struct kvf_part *part);
bool kvf_transfer_plan(struct kvf_dispatcher *d);
bool kvf_transfer_finish(struct kvf_dispatcher *d);
void kvf_chunks_retire(struct kvf_dispatcher *d, struct kvf_part *send);
void kvf_chunk_free(struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_chunk *chunk);

static inline void
kvf_count(_Atomic uint64_t *counter, int64_t n)
{
	/* One writer; readers may see it late, never torn. */
	atomic_store_explicit(counter,
		atomic_load_explicit(counter, memory_order_relaxed) + (uint64_t)n,
		memory_order_relaxed);
}

static inline void
kvf_count_room(struct kvf_dispatcher *d, int n)
{
	d->num_rooms += (uint32_t)n;
	kvf_count(&d->totals.rooms_open, n);
}

#endif
