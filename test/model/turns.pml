/*
 * No client starves: the budget of local handoffs, and turns of foreign clients and of entries.
 *
 * Follows include/redissons_turn.lua, redisson_heard.lua, serve_queue.lua, serve.lua and enrol.lua; localqueue's Budget. One step is a script, a
 * tenure of Redisson's or the end of a window. Clients and waiters come at any time, and there is no end: the counters
 * that are asserted show how long each may have to wait, however often all others come again.
 *
 * The release of a fair lock of the same name is one of Redisson's that is heard at once, with AGAIN 0.
 *
 * Left out: the message that a turn that went on is over (Wanted), without which all waits are longer. Messages and faults
 * (reserve.pml): a reservation is claimed at once, and the client of the first entry asks when
 * a window ends, and when Redisson releases. Time but for the length of a window, in units of the shortest one, and
 * for what a waiter of Redisson needs from the message to its ask, which is one length for all and for ever (REACTION).
 * A pause is a number of releases. After a release of Redisson's another of its threads may take the
 * record before our ask arrives, AGAIN times at most: nothing of ours decides that race.
 */

#ifndef N
#define N 2          /* clients, each with an entry */
#endif
#ifndef F
#define F 2          /* waiters of Redisson at once */
#endif
#ifndef BUDGET
#define BUDGET 2     /* local handoffs in a tenure; in the code 32 */
#endif
#ifndef TIMES
#define TIMES 2      /* turns that the entries are owed at most; in the code 64 */
#endif
#ifndef WINDOWS
#define WINDOWS (F > N -> F + 1 : N + 1) /* while an entry waits, at most */
#endif
#ifndef AGAIN
#define AGAIN 1
#endif
#ifndef REACTION
#define REACTION 1
#endif
#ifndef PAUSE
#define PAUSE 2      /* releases without windows after three misses */
#endif
#define LONGEST 10   /* 200 ms */
#define JAVA 100     /* the holder is a thread of Redisson */
#define NONE 255
#define UNIT 6       /* of owed: a release. Entries are divided by one to three waiters of Redisson */

#define OPEN 1
#define OVER 2       /* its time has passed, and no script has run since */

/* What each may have to wait for: windows of 1, 2, 4 and 8 are too short, and three misses make a pause. */
#define TURN (N * TIMES + 1 + BUDGET)
#ifndef OURS
#define OURS (3 * TURN + 2 * (PAUSE + 1) * (1 + BUDGET))
#endif
#define HOLDS (N * (BUDGET + 1) + N * TIMES)

/* The store. */
byte queue[N];
byte places;
byte holder;         /* client + 1; 0: the record is absent */
byte window;
byte size = 1;       /* the length of the next window */
byte misses;
byte pause;
short owed = 0 - UNIT;         /* releases until the next window, in UNITs */
byte charge = UNIT;  /* what the last one cost */
bool served;

/* Clients. */
bool in[N];
byte waiters[N];     /* that wait in the client's own queue */
byte handed;         /* local handoffs in this tenure */
byte budget;
byte java;           /* waiters of Redisson, which listen */
byte again;          /* how often Redisson took the record again in this window */

byte ours;           /* our tenures since the first waiter of Redisson began to wait, or was served */
byte others[N];      /* tenures of others since the client enrolled */
byte past[N];        /* windows since the client enrolled */

inline enrol(x) {
	if
	:: !in[x] -> queue[places] = x; places++; in[x] = true; others[x] = 0; past[x] = 0
	:: else
	fi
}

inline tick(x) {
	i = 0;
	do
	:: i < N ->
		if
		:: in[i] && i != x -> others[i]++; assert(others[i] <= HOLDS)
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	if
	:: java > 0 -> ours++; assert(ours <= OURS)
	:: else
	fi
}

inline begin(x) {
	assert(holder == 0);
	holder = x + 1; handed = 0; tick(x);
#ifdef BUDGET_WITH_JAVA
	budget = BUDGET
#else
	budget = (java > 0 && pause == 0 -> 0 : BUDGET)
#endif
}

inline opened() {
	window = OPEN; served = true; again = 0;
	i = 0;
	do
	:: i < N ->
		if
		:: in[i] -> past[i]++; assert(past[i] <= WINDOWS)
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* include/redisson_heard.lua */
inline hear() {
	if
	:: window != 0 -> size = (size * 3 / 4 < 1 -> 1 : size * 3 / 4)
	:: else ->
		owed = (owed < 0 - UNIT -> 0 - UNIT : owed) + charge;
#ifndef OWED_UNBOUNDED
		owed = (owed > TIMES * (charge > UNIT -> charge : UNIT) -> TIMES * (charge > UNIT -> charge : UNIT) : owed)
#endif
	fi;
	window = 0; misses = 0
}

/* include/redissons_turn.lua */
inline turn_of(freed, heard) {
	if
	:: window == OPEN ->
#ifndef WINDOW_BARGED
		served = true
#endif
		skip
	:: window != OPEN && (freed || heard) && java > 0 ->
		if
		:: window == OVER -> misses++; size = (size * 2 > LONGEST -> LONGEST : size * 2)
		:: else
		fi;
		window = 0;
		if
		:: misses >= 3 -> misses = 0; pause = PAUSE;
#ifdef PAUSE_RESETS
			size = 1
#endif
		:: else
		fi;
		if
#ifdef QUEUED_COUNT
		:: freed && places > 1 -> owed = owed - UNIT
#else
		:: freed -> owed = owed - UNIT
#endif
		:: else
		fi;
		owed = (owed < 0 - UNIT -> 0 - UNIT : owed);
		if
		:: owed < 0 && pause == 0 ->
			charge = (places > 0 -> places : 1) * UNIT / java;
#ifndef FREE_TURNS
			owed = owed + charge;
#endif
			opened()
		:: else
		fi
	:: else
	fi
}

/* include/serve_queue.lua: the record is absent. It is granted to the asker where served stays false. */
inline serve(asker, freed, heard) {
	served = false;
	turn_of(freed, heard);
	if
	:: !served && places > 0 ->
		x = queue[0]; places--;
		do
		:: i < places -> queue[i] = queue[i + 1]; i++
		:: else -> break
		od;
		queue[places] = 0; i = 0; in[x] = false; others[x] = 0; past[x] = 0;
		if
		:: x == asker -> skip
		:: else ->
			served = true;
			if
			:: waiters[x] > 0 -> waiters[x]--; begin(x)
			:: else
			fi
		fi
	:: else
	fi
}

/* The client's first waiter asks for an absent record. */
inline ask(c, heard) {
	if
	:: places > 0 || window == OPEN -> serve(c, false, heard)
	:: else -> served = false
	fi;
	if
	:: !served -> waiters[c]--; begin(c)
	:: served && holder != c + 1 -> enrol(c)
	:: else
	fi;
	served = false
}

active proctype all() {
	byte i, x, c;
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

	/* A client without a place asks. */
	:: atomic { c = 0;
		do
		:: c < N - 1 -> c++
		:: break
		od;
		if
		:: waiters[c] > 0 && !in[c] && holder == 0 -> ask(c, false)
		:: waiters[c] > 0 && !in[c] && holder != 0 && holder != c + 1 -> enrol(c)
		:: else
		fi;
		c = 0; x = 0 }

	/* The holder goes on within its process: budget, without a look at the queue. */
	:: atomic { holder != 0 && holder != JAVA && waiters[holder - 1] > 0 && (handed < budget
#ifdef NO_BUDGET
		|| true
#endif
		) ->
		waiters[holder - 1]--;
		if
		:: handed < BUDGET -> handed++
		:: else
		fi;
		tick(holder - 1) }

	/* Unlock: release.lua without waiters of its own, serve.lua with them. */
	:: atomic { holder != 0 && holder != JAVA ->
		c = holder - 1;
		if
		:: pause > 0 -> pause--
		:: else
		fi;
		if
		:: waiters[c] > 0 && places == 0 && (java == 0 || pause > 0) ->
			waiters[c]--; holder = 0; begin(c)
		:: waiters[c] > 0 && places == 0 && java > 0 && pause == 0 && owed >= UNIT ->
#ifndef TURN_FOR_EVER
			owed = owed - UNIT;
#endif
			waiters[c]--; holder = 0; begin(c)
		:: else ->
			holder = 0;
			if
			:: waiters[c] > 0 -> enrol(c)
			:: else
			fi;
			if
#ifdef QUEUED_ONLY
			:: places > 0 ->
#else
			:: places > 0 || java > 0 ->
#endif
				serve(NONE, true, false)
			:: else -> served = false
			fi;
			served = false
		fi;
		c = 0; x = 0 }

	/* Redisson takes an absent record: in a window, or where nothing of ours waits. */
	:: atomic { holder == 0 && java > 0 && (window == OPEN && REACTION <= size || places == 0) ->
		java--; holder = JAVA; ours = 0 }
	:: atomic { window == OPEN && (holder == JAVA || REACTION > size || java == 0) -> window = OVER }
	/* It releases. The client of the first entry hears that, and asks, unless another thread was faster. */
	:: atomic { holder == JAVA -> c = queue[0];
		holder = 0;
		if
		:: places > 0 -> hear(); ask(c, true)
		:: java > 0 && again < AGAIN ->
			again++; holder = JAVA; java--; ours = 0;
			if
			:: places > 0 -> hear()
			:: else
			fi
		:: places == 0
		fi;
		c = 0; x = 0 }
	/* The client of the first entry asks when the window ends. */
	:: atomic { window == OVER && places > 0 -> c = queue[0];
		if
		:: holder == 0 -> ask(c, false)
		:: else
		fi;
		c = 0; x = 0 }
	od
}
