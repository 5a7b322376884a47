/*
 * The hand-over inside a process: one command releases an owner and grants to its successor.
 *
 * Follows release.go and release.lua: the head of the client's own line is named as the successor; handed over,
 * released only, or not held; the successor's deadline counts from before the release was
 * sent the first time; at most K in a row while another process waits; if the waiter left meanwhile, what it was
 * handed is released; where the outcome is unknown both owners are taken back. Also follows pass.go: without a command, PASSES
 * times after one, the lock goes on to the first who waits, with the owner that the store knows and what is left of its lease.
 *
 * Time is as in lease.pml. Waiting is not told here (wake.pml, reserve.pml): who waits may ask at any time when
 * the lock is free. Left out: the successor's lease is as long as the releaser's.
 */

#ifndef G
#define G 3          /* goroutines of the process; the last one is another process */
#endif
#define O (G - 1)
#ifndef LEASE
#define LEASE 2
#endif
#ifndef MARGIN
#define MARGIN 1
#endif
#ifndef DRIFT
#define DRIFT 1
#endif
#ifndef K
#define K 1          /* handed over in a row while another process waits */
#endif
#ifndef PASSES
#define PASSES 1     /* passed on without a command in a row */
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef LEAVES
#define LEAVES 1
#endif

#define NONE 15

mtype = { waiting, asking, granted, named, holding, releasing, handed, released, over };

/* The store. */
byte owner;          /* 0: free */
byte ttl;
byte row;            /* handed over so many times in a row while the other process waited */

/* The goroutines, each with one Lock. */
mtype state[G] = waiting;
byte tries[G];       /* each with an owner of its own */
byte left[G];
byte slow[G];
byte use[G];         /* the owner by which it holds: its own, or whose lock was passed on to it */
byte passed;         /* passed on so many times since the last command */
bool gone[G];        /* it left while it was named or asked */
byte heir[G];        /* the successor that its release names */
byte heirId[G];
byte ghost, ghostHeir;   /* a release whose outcome is unknown, still on its way */
byte back[2];        /* owners that are taken back */
byte until[2];

byte losses = LOSSES, leaves = LEAVES;

#define id(g) (g + 1 + G * tries[g])
#define believes(g) (state[g] == holding && left[g] > 0)
#define local(g) (g != O)
/* It stays in this process: at most K times in a row while the other waits. */
#ifdef NO_YIELD
#define stays(g) true
#else
#define stays(g) (state[O] != waiting || row < K)
#endif

inline count(x, y) {
	if
	:: x > 0 -> x--
	:: x > 0 && y > 0 -> y--
	:: x == 0 -> y = 0
	fi
}

inline down(x) {
	if
	:: x > 0 -> x--
	:: else
	fi
}

/* The first who waits here, if anybody does. */
inline first(r) {
	r = 0;
	do
	:: r < O && state[r] != waiting -> r++
	:: else -> break
	od;
	if
	:: r == O -> r = NONE
	:: else
	fi
}

inline name(g, s) {
	heir[g] = s;
	if
	:: s != NONE -> heirId[g] = id(s); state[s] = named; left[s] = LEASE - MARGIN; slow[s] = DRIFT
	:: else -> heirId[g] = 0
	fi
}

inline unname(g) {
	if
	:: heir[g] != NONE ->
		left[heir[g]] = 0; slow[heir[g]] = 0;
#ifndef REUSED_HEIR
		tries[heir[g]]++;                    /* an id that was sent is not used again */
#endif
		state[heir[g]] = (gone[heir[g]] -> over : waiting)
	:: else
	fi;
	heir[g] = NONE; heirId[g] = 0
}

proctype goroutine(byte g) {
	byte s;
end:	do
	/* It asks by itself: nobody here holds it. */
	:: atomic { state[g] == waiting && owner == 0 ->
		state[g] = asking; left[g] = LEASE - MARGIN; slow[g] = DRIFT }
	:: atomic { state[g] == asking && owner == 0 -> owner = id(g); ttl = LEASE; row = 0; passed = 0; use[g] = id(g); state[g] = granted }
	:: atomic { state[g] == asking && owner != 0 -> state[g] = (gone[g] -> over : waiting); left[g] = 0; slow[g] = 0 }
	:: atomic { state[g] == granted ->
		if
		:: !gone[g] && left[g] > 0 -> state[g] = holding
		:: else -> state[g] = releasing; left[g] = 0; heir[g] = NONE
		fi }
	:: atomic { leaves > 0 && local(g) && !gone[g] && (state[g] == named || state[g] == asking) -> leaves--; gone[g] = true }
	:: atomic { leaves > 0 && local(g) && state[g] == waiting -> leaves--; state[g] = over }

	/* pass.go */
	:: atomic { state[g] == holding && left[g] > 0 && local(g) && passed < PASSES ->
		first(s);
		if
		:: s != NONE ->
			passed++; use[s] = use[g]; left[s] = left[g]; slow[s] = slow[g]; state[s] = holding;
			left[g] = 0; slow[g] = 0; state[g] = over;
#ifdef PASS_FRESH_LEASE
			left[s] = LEASE - MARGIN; slow[s] = DRIFT;
#endif
#ifdef PASS_AND_RELEASE
			state[g] = releasing; heir[g] = NONE;
#endif
		:: else
		fi;
		s = 0 }

	/* Unlock */
	:: atomic { state[g] == holding ->
		state[g] = releasing; left[g] = 0;
		if
		:: local(g) -> first(s)
		:: else -> s = NONE
		fi;
		name(g, s); s = 0 }

	/* release.lua */
	:: atomic { state[g] == releasing ->
		if
		:: owner == use[g] && heir[g] != NONE && stays(g) ->
			owner = heirId[g]; ttl = LEASE; passed = 0; state[g] = handed;
			if
			:: state[O] == waiting -> row++; assert(row <= K)
			:: else -> row = 0
			fi
		:: owner == use[g] && !(heir[g] != NONE && stays(g)) ->
			owner = 0; ttl = 0; state[g] = released;
#ifdef GRANT_ACROSS
			if
			:: local(g) && state[O] == waiting -> owner = id(O); use[O] = id(O); ttl = LEASE; state[O] = named
			:: else
			fi
#endif
		:: owner != use[g] && heir[g] != NONE && owner == heirId[g] ->
#ifdef HAND_ONCE
			state[g] = released
#else
			state[g] = handed                    /* the same answer as the first time */
#endif
		:: owner != use[g] && !(heir[g] != NONE && owner == heirId[g]) -> state[g] = released
		fi }
#ifdef GRANT_ACROSS
	:: atomic { g == O && state[g] == named -> state[g] = holding; left[g] = LEASE - MARGIN; slow[g] = DRIFT }
#endif
	:: atomic { ghost != 0 && g == 0 ->
		if
		:: owner == ghost && ghostHeir != 0 -> owner = ghostHeir; ttl = LEASE
		:: owner == ghost && ghostHeir == 0 -> owner = 0; ttl = 0
		:: else
		fi;
		ghost = 0; ghostHeir = 0 }

	/* The reply. */
	:: atomic { state[g] == handed ->
		state[g] = over;
		s = heir[g]; use[s] = heirId[g]; heir[g] = NONE; heirId[g] = 0;
		if
		:: !gone[s] && left[s] > 0 -> state[s] = holding
#ifdef DEAD_WAITER_KEEPS
		:: else -> state[s] = over; left[s] = 0; slow[s] = 0
#else
		:: else -> state[s] = releasing; left[s] = 0; slow[s] = 0; heir[s] = NONE /* nobody wants it */
#endif
		fi;
#ifdef FROM_REPLY
		if
		:: state[s] == holding -> left[s] = LEASE - MARGIN; slow[s] = DRIFT
		:: else
		fi;
#endif
		s = 0 }
	:: atomic { state[g] == released -> state[g] = over; unname(g) }

	/* The reply is lost; the command is, or arrived, or will. */
	:: atomic { losses > 0 && (state[g] == releasing || state[g] == handed || state[g] == released) && back[0] == 0 ->
		losses--;
		if
		:: state[g] == releasing -> ghost = use[g]; ghostHeir = heirId[g]
		:: skip
		fi;
		if
		:: state[g] = releasing;                     /* the same once more */
#ifdef FROM_LAST_ATTEMPT
			if
			:: heir[g] != NONE -> left[heir[g]] = LEASE - MARGIN; slow[heir[g]] = DRIFT
			:: else
			fi;
#endif
			skip
		:: true ->                                   /* both are taken back */
#ifndef RELEASER_NOT_TAKEN_BACK
			back[0] = use[g]; until[0] = LEASE;
#endif
#ifndef HEIR_NOT_TAKEN_BACK
			back[1] = heirId[g]; until[1] = LEASE;
#endif
			state[g] = over; unname(g)
		fi }

	/* compensate.go */
	:: atomic { g < 2 && back[g] != 0 && owner == back[g] -> owner = 0; ttl = 0; back[g] = 0; until[g] = 0 }
#ifndef NO_CLOCK
	:: atomic { g < 2 && back[g] != 0 && until[g] == 0 -> back[g] = 0 }
#endif
	od
}

active proctype clocks() {
	byte g;
end:	do
#ifndef NO_CLOCK
	:: atomic { owner != 0 || until[0] > 0 || until[1] > 0 || left[0] > 0 || left[1] > 0 || left[O] > 0 ->
		do
		:: g < G -> count(left[g], slow[g]); g++
		:: else -> break
		od;
		g = 0;
		down(until[0]); down(until[1]); down(ttl);
		if
		:: ttl == 0 -> owner = 0
		:: else
		fi }
#endif
	:: atomic { timeout -> break }
	od;
	/* Where no lease ends, everybody got it or left, and nothing is held by nobody. */
	assert(owner == 0);
	g = 0;
	do
	:: g < G -> assert(state[g] == over); g++
	:: else -> break
	od
}

/* Who believes in its lease holds the lock, and there is one at most: it is told first. */
active proctype exclusion() {
end:	do
	:: atomic { believes(0) && owner != use[0] || believes(1) && owner != use[1] || believes(O) && owner != use[O] -> assert(false) }
	:: atomic { believes(0) && (believes(1) || O > 1 && believes(O)) || O > 1 && believes(1) && believes(O) -> assert(false) }
	od
}

init {
	byte g;
	atomic {
		do
		:: g < G -> heir[g] = NONE; run goroutine(g); g++
		:: else -> break
		od
	}
}
