/*
 * No client starves: rounds, the budget of local handoffs, windows for clients of Redisson.
 *
 * Written from architecture.md, section 3 (rules 5 to 7), before the code. One step is a hold, a release or a window;
 * clients and waiters come at any time, and there is no end: the counters that are asserted show
 * how long each may have to wait, however often all others come again.
 *
 * Left out: messages and faults (reserve.pml); time but for the length of a window, in units of the shortest one, and
 * for what a waiter of Redisson needs from the message to its ask, which is one length for all and for
 * ever (REACTION). A pause of windows is a number of tenures. A window that is missed is seen by the next script.
 */

#ifndef N
#define N 2          /* clients */
#endif
#ifndef F
#define F 2          /* waiters of Redisson at once */
#endif
#ifndef BUDGET
#define BUDGET 2     /* local handoffs in a tenure; rule 6: 32 */
#endif
#ifndef TENURES
#define TENURES 3    /* a round is no longer; rule 7: 8 */
#endif
#ifndef WINDOWS
#define WINDOWS 1    /* after a round at most; rule 7: 8 */
#endif
#ifndef REACTION
#define REACTION 1
#endif
#ifndef PAUSE
#define PAUSE 2      /* tenures without windows after three misses */
#endif
#define LONGEST 10   /* 200 ms */

/* What each may have to wait for. */
#define missed_at_most 5   /* windows of 1, 2, 4, 8 are too short */
#ifndef OURS
#define OURS (missed_at_most * (TENURES + 1) + 2 * (PAUSE + TENURES) + BUDGET)
#endif
#define HOLDS (N * (BUDGET + 1))

byte queue[N];
byte places;
bool in[N];
byte waiters[N];     /* that wait in the client's own queue */
byte holder;         /* client + 1; 0: the record is absent */
byte handed;         /* local handoffs in this tenure */
byte budget;
byte round;          /* tenures since the last window */
byte due;            /* windows that are due now */
byte java;           /* waiters of Redisson */
byte size = 1;       /* the length of the next window */
byte misses;
byte pause;
bool seen;           /* there was a tenure of Redisson, within 10 s */

byte ours;           /* our holds since the first waiter of Redisson began to wait, or was served */
byte others[N];      /* holds of others since the client enrolled */
byte inRow[N];       /* windows since the client enrolled, without a tenure of ours */

inline enrol(x) {
	queue[places] = x; places++; in[x] = true; others[x] = 0; inRow[x] = 0
}

inline hold(x) {
	i = 0;
	do
	:: i < N ->
		if
		:: in[i] && i != x -> others[i]++; inRow[i] = 0; assert(others[i] <= HOLDS)
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline begin(x) {
	holder = x + 1; handed = 0; hold(x);
	if
	:: java > 0 -> ours++; assert(ours <= OURS)
	:: else
	fi;
#ifdef BUDGET_WITH_JAVA
	budget = BUDGET
#else
	budget = (java > 0 -> 0 : BUDGET)
#endif
}

inline window() {
	due--; i = 0;
	do
	:: i < N ->
		if
		:: in[i] -> inRow[i]++; assert(inRow[i] <= WINDOWS)
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	if
	:: REACTION <= size -> java--; ours = 0; seen = true; misses = 0; size = 1
	:: else ->
		misses++;
#ifdef DOUBLE_IF_SEEN
		if
		:: seen -> size = (size * 2 > LONGEST -> LONGEST : size * 2)
		:: else
		fi;
#else
		size = (size * 2 > LONGEST -> LONGEST : size * 2);
#endif
		if
		:: misses == 3 -> misses = 0; pause = PAUSE; due = 0;
#ifdef PAUSE_RESETS
			size = 1
#endif
		:: else
		fi
	fi
}

active proctype all() {
	byte i, x;
end:	do
	/* A waiter comes. */
	:: atomic { waiters[0] == 0 -> waiters[0] = 1 }
	:: atomic { waiters[1] == 0 -> waiters[1] = 1 }
#if N > 2
	:: atomic { waiters[2] == 0 -> waiters[2] = 1 }
#endif
	:: atomic { java < F -> java++;
		if
		:: java == 1 -> ours = 0
		:: else
		fi }

	/* A client without a place asks: it is granted, or it enrols. */
	:: atomic { x = 0;
		do
		:: x < N - 1 -> x++
		:: break
		od;
		if
		:: waiters[x] > 0 && !in[x] && holder != x + 1 ->
			if
			:: holder == 0 && due == 0 && places == 0 -> waiters[x]--; begin(x)
			:: else -> enrol(x)
			fi
		:: else
		fi;
		x = 0 }

	/* Local handoff. */
	:: atomic { holder != 0 && waiters[holder - 1] > 0 && (handed < budget
#ifdef NO_BUDGET
		|| true
#endif
		) ->
		waiters[holder - 1]--;
		if
		:: handed < BUDGET -> handed++
		:: else
		fi;
		hold(holder - 1);
		if
		:: java > 0 -> ours++; assert(ours <= OURS)
		:: else
		fi }

	/* Release: the next of this client where no other waits, else its place is the last one. */
	:: atomic { holder != 0 ->
		x = holder - 1; holder = 0; handed = 0; budget = 0;
		if
		:: waiters[x] > 0 && !in[x] && (places > 0 || java > 0) -> enrol(x)
		:: waiters[x] > 0 && !in[x] && places == 0 && java == 0 -> waiters[x]--; begin(x)
		:: else
		fi;
		if
		:: pause > 0 -> pause--
		:: else
		fi;
#ifdef SERVED_COUNT
		if
		:: places > 0 && round < TENURES -> round++
		:: else
		fi;
#else
		if
		:: round < TENURES -> round++
		:: else
		fi;
#endif
		if
#ifdef AFTER_ALL
		:: java > 0 && pause == 0 && holder == 0 && places == 0 ->
#else
		:: java > 0 && pause == 0 && holder == 0 && (round >= TENURES || round >= places && round > 0) ->
#endif
			round = 0;
#ifdef WINDOWS_FOR_ALL
			due = java
#else
			due = (java < WINDOWS -> java : WINDOWS)
#endif
		:: else
		fi;
		x = 0 }

	/* The record is absent. */
	:: atomic { holder == 0 && due > 0 && java > 0 -> window() }
	:: atomic { holder == 0 && due == 0 && places > 0 ->                 /* serve */
		x = queue[0]; places--;
		do
		:: i < places -> queue[i] = queue[i + 1]; i++
		:: else -> break
		od;
		queue[places] = 0; i = 0; in[x] = false; others[x] = 0; inRow[x] = 0;
		if
		:: waiters[x] > 0 -> waiters[x]--; begin(x)
		:: else
		fi;
		x = 0 }
	od
}
