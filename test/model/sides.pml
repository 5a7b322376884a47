/*
 * Waiting for a read-write lock, between processes: a release tells the clients that can be served, one that writes or
 * all that read, and what they were told of is kept for them. A writer that readers stand in the way of leaves a claim.
 *
 * Follows read_acquire.lua, write_acquire.lua, read_release.lua, write_release.lua, rw_leave.lua, rw_withdraw.lua and,
 * of include, join_queue, kept_side, leave_wake_queue, waiting_entries, tell_sides, tell_entry and announce_side;
 * handler.go and wait.go of internal/engine. The entries are those of kept.pml, the wish of one is the side that its
 * client waits for.
 *
 * A command is carried out at any time after it was sent, in any order with others, and its reply is read at any time
 * after that. Messages to one client keep their order. A timer fires only where nothing else can happen, and is
 * counted: so a lost wake-up shows as a timer that had to fire. The 20 ms after which a writer behind readers asks are
 * over at any time, and not counted: it asks so that it leaves its claim.
 *
 * Left out: replies that are lost, and leases that end; turns of Redisson's clients (a client of Redisson takes a side
 * that is free at any time, kept, claimed or not); both sides within one client; readers that enter under a writer.
 */

#ifndef N
#define N 3          /* clients, each a process */
#endif
#ifndef WRITERS
#define WRITERS 1    /* a bit for each client: it waits to write; the others, to read */
#endif
#ifndef CALLS
#define CALLS 1      /* Lock calls of each client */
#endif
#ifndef EXTRA
#define EXTRA 0      /* Lock calls of client 0 besides */
#endif
#ifndef LEAVES
#define LEAVES 0     /* callers that leave */
#endif
#ifndef CUTS
#define CUTS 0       /* subscription connections that break; noticed at once, by both ends */
#endif
#ifndef CRASHES
#define CRASHES 0    /* processes that are killed while they wait */
#endif
#ifndef SILENT
#define SILENT 0     /* messages lost without notice */
#endif
#ifndef RUNOUTS
#define RUNOUTS 0    /* seconds that pass before a client that lives asks */
#endif
#ifndef FOREIGN
#define FOREIGN 0    /* tenures of clients of Redisson */
#endif
#ifndef PASSES
#define PASSES 1     /* how often a client has the lock at the most while an entry of another waits */
#endif
#ifndef STALLS
#define STALLS 0     /* how often a recheck may be what sets the waiters going */
#endif
#ifndef SECONDS
#define SECONDS 0    /* how often a timer of a second, or the end of what was kept */
#endif

#include "entries.inc"

#define writes(c)    ((WRITERS >> (c)) & 1)

/* The store. */
byte reading;            /* readers of mortise */
bool writing;            /* a writer of mortise */
byte javaReads;
bool javaWrites;
byte claim;              /* 0, or 1 and the client */

/* The wire. */
byte ask[N];
byte askEntry[N];        /* 0: the client does not enrol */
byte askPlaced[N];       /* the reply: 0 not in the queue, 1 in it, 2 the first that waits */
bool askKept[N];         /* ... the side is kept for others, for a second at most */
byte releases[N];        /* releases that were sent */
byte leaving[N];         /* an entry that is to leave the queue */
byte withdrawals[N];     /* of a claim, that were sent */

/* The clients. */
bool alive[N];
byte todo[N];            /* Lock calls to come */
byte waiters[N];
byte number[N];          /* of the wait */
byte holds[N];
bool dirty[N];           /* the first waiter is to ask */
bool refused[N];         /* so it wants to hear of releases */
bool listens[N];         /* its subscriptions were confirmed */
bool enrolled[N];        /* its entry is in the queue, as far as it knows */
bool fore[N];            /* it is the first: a release of Redisson's makes it ask */
bool armed[N];           /* it asks when a second is over */
bool soon[N];            /* ... when 20 ms are over */
bool gone[N];            /* the caller of the ask left */

byte leaves = LEAVES, cuts = CUTS, crashes = CRASHES, silent = SILENT, runouts = RUNOUTS, java = FOREIGN;
byte stalls, seconds;

/* include/kept_side.lua: for an entry of another client, that writes, or of any */
inline kept_side(e, any, kept) {
	kept = false; i = 1;
	do
	:: i < ENTRIES -> kept = kept || state[i] == TOLD && i != e && (any || writes(client_of(i))); i++
	:: else -> break
	od;
#ifdef NOT_KEPT
	kept = false;
#endif
	i = 0
}

/* include/tell_sides.lua; side is 0, 1 for reading, 2 for writing. */
#define its(k)  (writes(client_of(k)) -> 2 : 1)
#define fits(k) (!(side == 1 && claim != 0) && (side == 0 || side == its(k)) && !(served && its(k) == 2))
inline tell_sides(readers) {
	i = 1;
	do
	:: i < ENTRIES ->
		if
		:: state[i] == LATE -> state[i] = OUT; inside--; k = i; settle(client_of(k)); i = k; k = 0
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0; j = 0; second = 0; served = false;
	pending = 0; i = 1;
	do
	:: i < ENTRIES ->
		if
		:: state[i] == TOLD -> pending = its(i)
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
#ifdef TOLD_BOTH
	pending = 0;
#endif
	side = (readers || pending == 1 -> 1 : (claim != 0 -> 2 : 0));
	do
	:: pending != 2 && j < places ->
		k = queue[j];
		if
		:: fits(k) && hears[client_of(k)] ->
#ifndef NOT_TOLD
			inbox[client_of(k)] ! k;
#endif
			unlist(k); state[k] = TOLD; side = its(k); served = true
		:: fits(k) && !hears[client_of(k)] -> out(k)
		:: else ->
			if
			:: second == 0 -> second = k
			:: else
			fi;
			j++
		fi
	:: else -> break
	od;
	if
	:: second != 0 && (served || pending == 1) && side == 1 && claim == 0 -> tell(client_of(second), SOON + second)
	:: second != 0 && (served || pending == 1) && !(side == 1 && claim == 0) -> tell(client_of(second), NEXT + second)
	:: else
	fi;
	served = served || pending != 0;
	j = 0; k = 0; second = 0; side = 0; pending = 0
}

/* include/leave_wake_queue.lua; was is its state before. */
inline leave_wake_queue(e) {
	was = state[e];
	out(e);
	if
	:: was == WAIT && places > 0 -> tell(client_of(queue[0]), NEXT + queue[0])
	:: else
	fi
}

/* include/announce_side.lua */
inline announce_side(readers) {
	if
	:: inside == 0 -> tellAll(FREED)
	:: else ->
		tell_sides(readers);
		if
		:: !served -> tellAll(FREED)
		:: else
		fi
	fi;
	served = false
}

inline join(x) {
	ask[x] = NO;
	if
	:: askEntry[x] != 0 ->
		if
		:: state[askEntry[x]] == OUT -> last(askEntry[x])
		:: state[askEntry[x]] == TOLD || state[askEntry[x]] == LATE -> first(askEntry[x])
		:: else
		fi;
#ifdef FIRST_UNTOLD
		askPlaced[x] = 1
#else
		askPlaced[x] = (queue[0] == askEntry[x] -> 2 : 1)
#endif
	:: else
	fi
}

/*
 * x is in, while entries of others wait. Readers that come while others read pass a writer until its claim is there:
 * until it heard that it is the first.
 */
inline tick(x) {
	i = 1;
	do
	:: i < ENTRIES ->
		if
		:: state[i] != OUT && client_of(i) != x && alive[client_of(i)] && writes(x) ->
			passed[client_of(i) * N + x]++;
			assert(passed[client_of(i) * N + x] <= PASSES + LEAVES + CUTS + RUNOUTS + SILENT + FOREIGN)
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

#define absent (reading + javaReads == 0 && !writing && !javaWrites)

/* read_acquire.lua: a claim is for those that were not told. */
#ifdef CLAIM_FOR_ALL
#define claimed(x) (claim != 0)
#else
#define claimed(x) (claim != 0 && !(askEntry[x] != 0 && (state[askEntry[x]] == TOLD || state[askEntry[x]] == LATE)))
#endif
inline read_acquire(x) {
	queued = inside > 0;
	askPlaced[x] = 0; askKept[x] = false; kept = false;
	if
	:: queued && !writing && !javaWrites && !claimed(x) -> kept_side(askEntry[x], false, kept)
	:: else
	fi;
	if
	:: kept || writing || javaWrites || claimed(x) ->
		toldOut = claimed(x);
		join(x); askKept[x] = kept;
#ifndef CLAIM_UNTOLD
		if
		:: queued && toldOut && absent -> tell_sides(false)
		:: else
		fi;
#endif
		toldOut = false
	:: else ->
		assert(!writing && !javaWrites);
		if
		:: queued ->
			was = OUT;
			if
			:: askEntry[x] != 0 -> leave_wake_queue(askEntry[x])
			:: else
			fi;
			if
			:: was == OUT || was == WAIT -> tell_sides(true)
			:: else
			fi
		:: else
		fi;
		reading++; ask[x] = GOT; tick(x)
	fi;
	kept = false; was = 0; served = false; queued = false
}

/* write_acquire.lua */
inline write_acquire(x) {
	askPlaced[x] = 0; askKept[x] = false; kept = false;
	if
	:: inside > 0 && absent -> kept_side(askEntry[x], true, kept)
	:: else
	fi;
	if
	:: absent && !kept ->
		if
		:: claim == x + 1 -> claim = 0
		:: else
		fi;
		writing = true; ask[x] = GOT; tick(x);
		if
		:: inside > 0 && askEntry[x] != 0 -> leave_wake_queue(askEntry[x])
		:: else
		fi
	:: else ->
		if
		:: reading + javaReads > 0 && !writing -> claim = x + 1
		:: else
		fi;
		join(x); askKept[x] = kept
	fi;
	kept = false; was = 0
}

/* read_release.lua, write_release.lua */
inline release(x) {
	if
	:: writes(x) -> writing = false; announce_side(false)
	:: else ->
		reading--;
		if
		:: reading + javaReads == 0 -> announce_side(false)
		:: else
		fi
	fi
}

/* rw_leave.lua */
inline leave(e) {
	leave_wake_queue(e);
	if
	:: (was == TOLD || was == LATE) && !writing && !javaWrites ->
#ifndef LEAVE_KEEPS
		tell_sides(reading + javaReads > 0)
#endif
	:: else
	fi;
	was = 0; served = false
}

/* rw_withdraw.lua */
inline withdraw(x) {
	if
	:: claim == x + 1 ->
		claim = 0;
		if
		:: !writing && !javaWrites ->
#ifdef WITHDRAW_UNTOLD
			skip
#else
			announce_side(reading + javaReads > 0)
#endif
		:: else -> tellAll(FREED)
		fi
	:: else
	fi
}

inline tidy(x) {
	if
	:: waiters[x] == 0 ->
		refused[x] = false; dirty[x] = false; armed[x] = false; soon[x] = false; fore[x] = false;
		if
		:: enrolled[x] -> enrolled[x] = false; leaving[x] = entry(x)
		:: else
		fi
	:: else
	fi
}

inline drain(x) {
	do
	:: nempty(inbox[x]) -> inbox[x] ? m
	:: empty(inbox[x]) -> break
	od;
	m = 0
}

inline settled(x) {
	ask[x] = IDLE; askEntry[x] = 0; askPlaced[x] = 0; askKept[x] = false;
	gone[x] = false
}

proctype client(byte c) {
	byte i, j, k, m, second, side, pending, was;
	bool served, queued, kept, toldOut;
end:	do
	/* Lock. */
	:: atomic { alive[c] && todo[c] > 0 ->
		todo[c]--; waiters[c]++;
		if
		:: waiters[c] == 1 -> dirty[c] = true;
#ifndef NUMBER_AGAIN
			number[c]++
#endif
		:: else
		fi }
	:: atomic { alive[c] && waiters[c] > 0 && dirty[c] && ask[c] == IDLE && !(writes(c) && holds[c] + releases[c] > 0) ->
		dirty[c] = false; armed[c] = false; soon[c] = false; ask[c] = SENT;
		askEntry[c] = (listens[c] -> entry(c) : 0) }
	:: atomic { ask[c] == SENT && room && !writes(c) -> read_acquire(c) }
	:: atomic { ask[c] == SENT && room && writes(c) -> write_acquire(c) }

	/* The reply. */
	:: atomic { ask[c] == GOT && !gone[c] && leaving[c] == 0 ->
		holds[c]++; waiters[c]--;
		if
		:: askEntry[c] != 0 -> enrolled[c] = askPlaced[c] > 0; fore[c] = false
		:: else
		fi;
		dirty[c] = waiters[c] > 0;
		settled(c); tidy(c) }
	:: atomic { ask[c] == GOT && gone[c] && leaving[c] == 0 ->
		releases[c]++; withdrawals[c] = writes(c);
		settled(c); dirty[c] = waiters[c] > 0 }
	:: atomic { ask[c] == NO && !gone[c] ->
		refused[c] = true; enrolled[c] = enrolled[c] || askPlaced[c] > 0; fore[c] = fore[c] || askPlaced[c] == 2;
		armed[c] = armed[c] || askKept[c];
		settled(c) }
	:: atomic { ask[c] == NO && gone[c] && leaving[c] == 0 ->
		withdrawals[c] = writes(c);
		if
		:: askEntry[c] != 0 && waiters[c] > 0 && askEntry[c] == entry(c) -> enrolled[c] = true
		:: askEntry[c] != 0 && !(waiters[c] > 0 && askEntry[c] == entry(c)) -> leaving[c] = askEntry[c]
		:: askEntry[c] == 0
		fi;
		settled(c); dirty[c] = waiters[c] > 0 }

	/* Release. */
	:: atomic { holds[c] > 0 -> holds[c]--; releases[c]++ }
	:: atomic { releases[c] > 0 && room -> releases[c]--; release(c); dirty[c] = dirty[c] || writes(c) && waiters[c] > 0 }
#ifndef NOT_WITHDRAWN
	:: atomic { withdrawals[c] > 0 && room ->
		withdrawals[c] = 0; withdraw(c); dirty[c] = dirty[c] || alive[c] && waiters[c] > 0 }
#endif

	/* A caller leaves: the one that asks, or another. */
	:: atomic { alive[c] && leaves > 0 && waiters[c] > 0 && ask[c] == SENT && !gone[c] && leaving[c] == 0 ->
		leaves--; waiters[c]--; gone[c] = true; dirty[c] = waiters[c] > 0; withdrawals[c] = writes(c); tidy(c) }
	:: atomic { alive[c] && leaves > 0 && waiters[c] > (ask[c] != IDLE && !gone[c] -> 1 : 0) && leaving[c] == 0 ->
		leaves--; waiters[c]--; dirty[c] = waiters[c] > 0; withdrawals[c] = writes(c); tidy(c) }
	:: atomic { leaving[c] != 0 && fewer(6) -> leave(leaving[c]); leaving[c] = 0 }

	/* What is heard. */
	:: atomic { alive[c] && refused[c] && !listens[c] ->
		listens[c] = true; hears[c] = true;
#ifndef NO_SECOND_TRY
		dirty[c] = true
#endif
		}
	:: atomic { alive[c] && !refused[c] && listens[c] -> listens[c] = false; hears[c] = false; drain(c) }
	:: atomic { alive[c] && nempty(inbox[c]) && leaving[c] == 0 ->
		inbox[c] ? m;
		if
		:: waiters[c] == 0 && m >= JAVA
		:: waiters[c] > 0 && m == FREED && enrolled[c] -> armed[c] = true
		:: waiters[c] > 0 && m >= JAVA && (!enrolled[c] || m == JAVA && ask[c] != IDLE && !fore[c]) -> dirty[c] = true
		:: waiters[c] > 0 && m == JAVA && enrolled[c] && fore[c] -> fore[c] = false; dirty[c] = true
		:: waiters[c] > 0 && m == JAVA && enrolled[c] && !fore[c] && ask[c] == IDLE -> armed[c] = true
		:: m < NEXT && waiters[c] > 0 && m == entry(c) -> dirty[c] = true
		:: m < NEXT && !(waiters[c] > 0 && m == entry(c)) -> leaving[c] = m
		:: m > NEXT && m < SOON && waiters[c] > 0 && m - NEXT == entry(c) ->
			fore[c] = true; armed[c] = true; soon[c] = false
		:: m > NEXT && m < SOON && !(waiters[c] > 0 && m - NEXT == entry(c)) -> leaving[c] = m - NEXT
		:: m > SOON && m < JAVA && waiters[c] > 0 && m - SOON == entry(c) ->
			fore[c] = true; armed[c] = false; soon[c] = true
		:: m > SOON && m < JAVA && !(waiters[c] > 0 && m - SOON == entry(c)) -> leaving[c] = m - SOON
		fi;
		m = 0 }
	:: atomic { alive[c] && soon[c] && waiters[c] > 0 -> soon[c] = false; dirty[c] = true }
	:: atomic { alive[c] && silent > 0 && nempty(inbox[c]) -> silent--; inbox[c] ? m; m = 0 }

	/* Faults. */
	:: atomic { alive[c] && crashes > 0 && waiters[c] > 0 && holds[c] == 0 && releases[c] == 0 && (ask[c] == IDLE || ask[c] == NO) ->
		withdrawals[c] = 0;
		crashes--; alive[c] = false; listens[c] = false; hears[c] = false; todo[c] = 0; waiters[c] = 0; leaving[c] = 0;
		enrolled[c] = false; settled(c); tidy(c); drain(c) }
	:: atomic { alive[c] && cuts > 0 && listens[c] && hears[c] -> cuts--; hears[c] = false; drain(c) }
	:: atomic { alive[c] && listens[c] && !hears[c] -> hears[c] = true; dirty[c] = waiters[c] > 0 }
	od
}

/* Clients of Redisson take a side that is free; a release is a message to all where none holds the lock any more. */
proctype redisson() {
	byte i;
end:	do
	:: atomic { java > 0 && absent -> java--; javaWrites = true }
	:: atomic { java > 0 && !writing && !javaWrites -> java--; javaReads++ }
	:: atomic { javaWrites && room -> javaWrites = false; tellAll(JAVA) }
	:: atomic { javaReads > 0 && room -> javaReads--;
		if
		:: absent -> tellAll(JAVA)
		:: else
		fi }
	od
}

/* A second: what was kept is kept no more, and clients ask that armed a timer. */
inline second_over() {
	i = 1;
	do
	:: i < ENTRIES ->
		if
		:: state[i] == TOLD -> state[i] = LATE
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < N ->
		if
		:: armed[i] && waiters[i] > 0 -> armed[i] = false; dirty[i] = true; timed = true
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

proctype runs_out() {
	byte i;
	bool timed;
end:	do
	:: atomic { runouts > 0 -> runouts--; second_over(); timed = false }
	od
}

/* Nothing can happen any more but that timers fire. */
active proctype rechecks() {
	byte i;
	bool waits, timed;
end:	do
	:: atomic { timeout ->
		do
		:: i < N -> waits = waits || waiters[i] > 0; i++
		:: else -> break
		od;
		i = 0;
		if
		:: !waits -> assert(absent && (claim == 0 || CRASHES > 0)); break
		:: else
		fi;
		second_over();
		if
		:: timed -> seconds++; assert(seconds <= SECONDS)
		:: else -> stalls++; assert(stalls <= STALLS);
			if
			:: claim != 0 && !alive[claim - 1] -> claim = 0 /* its time is over */
			:: else
			fi;
			do
			:: i < N -> dirty[i] = waiters[i] > 0; i++
			:: else -> break
			od;
			i = 0
		fi;
		waits = false; timed = false }
	od
}

init {
	byte i;
	atomic {
		do
		:: i < N ->
			alive[i] = true; todo[i] = CALLS + (i == 0 -> EXTRA : 0);
			run client(i);
			i++
		:: else -> break
		od;
		i = 0;
		run runs_out();
		run redisson()
	}
}
