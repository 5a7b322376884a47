/*
 * Waiting for permits, between processes: a release tells the clients that can be served, and what they were told of is
 * kept for them.
 *
 * Follows semaphore_take.lua, semaphore_add.lua, semaphore_leave.lua and, of include, join_queue, kept_permits,
 * leave_wake_queue, waiting_entries, tell_takers, tell_entry and announce_permits; handler.go and wait.go of
 * internal/engine. A refused ask puts its client's entry into the queue: the client and the number of its wait. An entry
 * waits, or was told to ask, for a second: until then the permits that it wants are kept from the other clients. An
 * entry that did not ask in its second loses its place when a script tells the next.
 *
 * A command is carried out at any time after it was sent, in any order with others, and its reply is read at any time
 * after that. Messages to one client keep their order. A timer fires only where nothing else can happen, and is
 * counted: so a lost wake-up shows as a timer that had to fire.
 *
 * Left out: replies that are lost, and permits that expire; turns of Redisson's clients (a client of Redisson takes a
 * permit that is there at any time, kept or not); several wishes within one client; the read and the write side.
 */

#ifndef N
#define N 3          /* clients, each a process */
#endif
#ifndef PERMITS
#define PERMITS 1
#endif
#ifndef CALLS
#define CALLS 1      /* Acquire calls of each client */
#endif
#ifndef EXTRA
#define EXTRA 0      /* Acquire calls of client 0 besides */
#endif
#ifndef WANTS
#define WANTS 1      /* permits that client 0 wants; the others want one */
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
#define FOREIGN 0    /* permits that a client of Redisson takes */
#endif
#ifndef STALLS
#define STALLS 0     /* how often a recheck may be what sets the waiters going */
#endif
#ifndef SECONDS
#define SECONDS 0    /* how often a timer of a second, or the end of what was kept */
#endif

#include "entries.inc"

#define wants(c)     ((c) == 0 -> WANTS : 1)

/* The store. */
byte there = PERMITS;

/* The wire. */
byte ask[N];
byte askEntry[N];        /* 0: the client does not enrol */
bool askStays[N];
byte askPlaced[N];       /* the reply: 0 not in the queue, 1 in it, 2 the first that waits */
bool askMore[N];         /* ... permits are free */
bool askKept[N];         /* ... some are kept for others, for a second at most */
byte releases[N];        /* releases that were sent */
byte leaving[N];         /* an entry that is to leave the queue */

/* The clients. */
bool alive[N];
byte todo[N];            /* Acquire calls to come */
byte waiters[N];
byte number[N];          /* of the wait */
byte holds[N];
bool dirty[N];           /* the first waiter is to ask */
bool refused[N];         /* so it wants to hear of releases */
bool listens[N];         /* its subscriptions were confirmed */
bool enrolled[N];        /* its entry is in the queue, as far as it knows */
bool fore[N];            /* it is the first: a release of Redisson's makes it ask */
bool armed[N];           /* it asks when a second is over */
bool gone[N];            /* the caller of the ask left */

byte leaves = LEAVES, cuts = CUTS, crashes = CRASHES, silent = SILENT, runouts = RUNOUTS, java = FOREIGN;
byte javaHolds, taken, stalls, seconds;

/* include/kept_permits.lua */
inline count_kept(e, sum) {
	sum = 0; i = 1;
	do
	:: i < ENTRIES ->
		if
		:: state[i] == TOLD && i != e -> sum = sum + wants(client_of(i))
		:: else
		fi;
		i++
	:: else -> break
	od;
#ifdef NOT_KEPT
	sum = 0;
#endif
	i = 0
}

/* include/tell_takers.lua; free is not below zero. */
inline tell_takers(free, asker) {
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
	i = 0; j = 0; second = 0; served = false; left = free;
	do
	:: free > 0 && j < places ->
		k = queue[j];
		if
		:: wants(client_of(k)) <= left && k != asker && hears[client_of(k)] ->
#ifndef NOT_TOLD
			inbox[client_of(k)] ! k;
#endif
			unlist(k); state[k] = TOLD; left = left - wants(client_of(k)); served = true
		:: wants(client_of(k)) <= left && k != asker && !hears[client_of(k)] -> out(k)
		:: else ->
			if
			:: wants(client_of(k)) > left && second == 0 -> second = k
			:: else
			fi;
			j++
		fi
	:: else -> break
	od;
#ifndef SECOND_UNTOLD
	if
	:: served && second != 0 -> tell(client_of(second), NEXT + second)
	:: else
	fi;
#endif
	j = 0; k = 0; second = 0; left = 0
}

/* include/leave_wake_queue.lua; was is its state before. */
inline leave_wake_queue(e, stays) {
	was = state[e];
	if
	:: stays && was == WAIT -> unlist(e); last(e); settle(client_of(e))
	:: stays && was != WAIT -> last(e); settle(client_of(e))
	:: !stays -> out(e)
	fi;
	if
	:: was == WAIT && places > 0 && queue[0] != e -> tell(client_of(queue[0]), NEXT + queue[0])
	:: else
	fi
}

/*
 * x takes permits while entries of others wait: once, and once more for each fault. A release of Redisson's tells no
 * entry, so that the next ask gets the permit.
 */
inline tick(x) {
	i = 1;
	do
	:: i < ENTRIES ->
		if
		:: (state[i] == WAIT || state[i] != OUT && PERMITS == 1) && client_of(i) != x && alive[client_of(i)] ->
			passed[client_of(i) * N + x]++;
#if WANTS == 1
			assert(passed[client_of(i) * N + x] <= 1 + LEAVES + CUTS + RUNOUTS + SILENT + FOREIGN)
#endif
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline taken_now(x) {
	there = there - wants(x); taken = taken + wants(x);
	assert(taken + javaHolds + there == PERMITS)
}

/* semaphore_take.lua */
inline take(x) {
	count_kept(askEntry[x], kept);
	queued = inside > 0;
	free = (there > kept -> there - kept : 0);
	askPlaced[x] = 0; askKept[x] = false;
	if
	:: free >= wants(x) ->
		free = free - wants(x); taken_now(x); tick(x); ask[x] = GOT;
		if
		:: queued && askEntry[x] != 0 ->
			leave_wake_queue(askEntry[x], askStays[x]);
			askPlaced[x] = askStays[x]
		:: else
		fi
	:: else ->
		ask[x] = NO; askKept[x] = kept > 0;
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
	fi;
	if
	:: queued && free > 0 -> tell_takers(free, askEntry[x])
	:: else
	fi;
	askMore[x] = free > 0;
	kept = 0; free = 0; queued = false; was = 0; served = false
}

/* semaphore_add.lua, include/announce_permits.lua */
inline add(x) {
	there = there + wants(x); taken = taken - wants(x);
	if
	:: inside == 0 -> tellAll(FREED)
	:: else ->
		count_kept(0, kept);
		free = (there > kept -> there - kept : 0);
		tell_takers(free, 0);
		if
		:: !served -> tellAll(FREED)
		:: else
		fi
	fi;
	kept = 0; free = 0; served = false
}

/* semaphore_leave.lua */
inline leave(e) {
	leave_wake_queue(e, false);
	if
	:: (was == TOLD || was == LATE) && there > 0 ->
		count_kept(0, kept);
		free = (there > kept -> there - kept : 0);
#ifndef LEAVE_KEEPS
		tell_takers(free, 0)
#endif
	:: else
	fi;
	kept = 0; free = 0; was = 0; served = false
}

inline tidy(x) {
	if
	:: waiters[x] == 0 ->
		refused[x] = false; dirty[x] = false; armed[x] = false; fore[x] = false;
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
	ask[x] = IDLE; askEntry[x] = 0; askStays[x] = false; askPlaced[x] = 0; askMore[x] = false; askKept[x] = false;
	gone[x] = false
}

proctype client(byte c) {
	byte i, j, k, m, kept, free, left, second, was;
	bool served, queued;
end:	do
	/* Acquire. */
	:: atomic { alive[c] && todo[c] > 0 ->
		todo[c]--; waiters[c]++;
		if
		:: waiters[c] == 1 -> dirty[c] = true;
#ifndef NUMBER_AGAIN
			number[c]++
#endif
		:: else
		fi }
	:: atomic { alive[c] && waiters[c] > 0 && dirty[c] && ask[c] == IDLE ->
		dirty[c] = false; armed[c] = false; ask[c] = SENT;
		askEntry[c] = (listens[c] -> entry(c) : 0); askStays[c] = listens[c] && waiters[c] > 1 }
	:: atomic { ask[c] == SENT && room -> take(c) }

	/* The reply. */
	:: atomic { ask[c] == GOT && !gone[c] && leaving[c] == 0 ->
		holds[c]++; waiters[c]--;
		if
		:: askEntry[c] != 0 -> enrolled[c] = askPlaced[c] > 0; fore[c] = false
		:: else
		fi;
		if
		:: waiters[c] > 0 && (askMore[c] || !refused[c] || askEntry[c] != 0 && !enrolled[c]) -> dirty[c] = true
		:: else
		fi;
		settled(c); tidy(c) }
	:: atomic { ask[c] == GOT && gone[c] && leaving[c] == 0 ->
		releases[c]++;
		if
		:: askEntry[c] != 0 && waiters[c] > 0 && askEntry[c] == entry(c) -> enrolled[c] = askPlaced[c] > 0
		:: askEntry[c] != 0 && askPlaced[c] > 0 && !(waiters[c] > 0 && askEntry[c] == entry(c)) -> leaving[c] = askEntry[c]
		:: else
		fi;
		settled(c); dirty[c] = waiters[c] > 0 }
	:: atomic { ask[c] == NO && !gone[c] ->
		refused[c] = true; enrolled[c] = enrolled[c] || askPlaced[c] > 0; fore[c] = fore[c] || askPlaced[c] == 2;
		armed[c] = armed[c] || askKept[c];
		settled(c) }
	:: atomic { ask[c] == NO && gone[c] && leaving[c] == 0 ->
		if
		:: askEntry[c] != 0 && waiters[c] > 0 && askEntry[c] == entry(c) -> enrolled[c] = true
		:: askEntry[c] != 0 && !(waiters[c] > 0 && askEntry[c] == entry(c)) -> leaving[c] = askEntry[c]
		:: askEntry[c] == 0
		fi;
		settled(c); dirty[c] = waiters[c] > 0 }

	/* Release. */
	:: atomic { holds[c] > 0 -> holds[c]--; releases[c]++ }
	:: atomic { releases[c] > 0 && room -> releases[c]--; add(c) }

	/* A caller leaves: the one that asks, or another. */
	:: atomic { alive[c] && leaves > 0 && waiters[c] > 0 && ask[c] == SENT && !gone[c] && leaving[c] == 0 ->
		leaves--; waiters[c]--; gone[c] = true; dirty[c] = waiters[c] > 0; tidy(c) }
	:: atomic { alive[c] && leaves > 0 && waiters[c] > (ask[c] != IDLE && !gone[c] -> 1 : 0) && leaving[c] == 0 ->
		leaves--; waiters[c]--; dirty[c] = waiters[c] > 0; tidy(c) }
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
		:: m > NEXT && m < JAVA && waiters[c] > 0 && m - NEXT == entry(c) -> fore[c] = true; armed[c] = true
		:: m > NEXT && m < JAVA && !(waiters[c] > 0 && m - NEXT == entry(c)) -> leaving[c] = m - NEXT
		fi;
		m = 0 }
	:: atomic { alive[c] && silent > 0 && nempty(inbox[c]) -> silent--; inbox[c] ? m; m = 0 }

	/* Faults. */
	:: atomic { alive[c] && crashes > 0 && waiters[c] > 0 && holds[c] == 0 && releases[c] == 0 && (ask[c] == IDLE || ask[c] == NO) ->
		crashes--; alive[c] = false; listens[c] = false; hears[c] = false; todo[c] = 0; waiters[c] = 0; leaving[c] = 0;
		enrolled[c] = false; settled(c); tidy(c); drain(c) }
	:: atomic { alive[c] && cuts > 0 && listens[c] && hears[c] -> cuts--; hears[c] = false; drain(c) }
	:: atomic { alive[c] && listens[c] && !hears[c] -> hears[c] = true; dirty[c] = waiters[c] > 0 }
	od
}

/* A client of Redisson takes what is there, and its release is a message to all. */
proctype redisson() {
	byte i;
end:	do
	:: atomic { java > 0 && there > 0 -> java--; there--; javaHolds++ }
	:: atomic { javaHolds > 0 && room -> javaHolds--; there++; tellAll(JAVA) }
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
		:: !waits -> assert(there == PERMITS); break
		:: else
		fi;
		second_over();
		if
		:: timed -> seconds++; assert(seconds <= SECONDS)
		:: else -> stalls++; assert(stalls <= STALLS);
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
