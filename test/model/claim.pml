/*
 * Reservations and time: a record is reserved for a client's entry, and the lease begins with the claim.
 *
 * Follows enrol.lua and include/serve_queue.lua; acquire.go and wait.go of internal/engine. Beside lease.pml, which
 * has renewals and death, and handoff.pml, which has a release that grants within its process. Each ask has an owner of its own;
 * a repeat of one whose reply was lost has the same, and its deadline counts from the first of them. An entry is the
 * client and the number of its wait.
 *
 * Time is as in lease.pml: ticks that are counted down; a client's clock may miss one within a lease; a command is
 * carried out any time after it was sent, and one that is lost from its sender's sight arrives late, or never.
 *
 * Left out: messages (reserve.pml); a waiter asks at any time at which that would change
 * something. One waiter a client. What is compensated is released until it can no longer arrive.
 */

#ifndef LOCKS
#define LOCKS 2      /* Lock calls of one client */
#endif
#ifndef LOCKS1
#define LOCKS1 1     /* ... and of the other client */
#endif
#ifndef LEASE
#define LEASE 3
#endif
#ifndef RESERVE
#define RESERVE 1    /* how long a record is reserved */
#endif
#ifndef MARGIN
#define MARGIN 1
#endif
#ifndef DRIFT
#define DRIFT 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif

#define C 2
#define Q 8
#define RESERVED 100

mtype = { idle, waiting, asking, granted, refused, holding, releasing };

/* The store. */
byte owner;
byte ttl;
byte resFor;         /* the entry that the record is reserved for */
byte queue[Q];
byte places;
byte counter;        /* the fencing token */
byte seen;           /* the largest token that was written with */

/* The clients. */
mtype state[C] = idle;
byte locks[C];       /* the number of the wait */
byte use[C];         /* the owner of the ask, then of the lease */
byte left[C];        /* until the holder's deadline, by its own clock */
byte slow[C];
byte token[C];
bool late[C];
byte ghost[C];       /* an ask that may yet arrive: its owner */
byte ghostEntry[C];
byte back[C];        /* an owner that is compensated */
byte losses = LOSSES;

#define entry(x) (1 + (x) + C * locks[x])
#define believes(x) (state[x] == holding && left[x] > 0)
/* One that nothing names any more serves again, so that there are fewer states. */
#define named(x, o) (owner == o || ghost[x] == o || back[x] == o)

inline draw(x) {
	i = 1 + x;
#ifdef ONE_OWNER
	i = 1 + x + C * (locks[x] % 2);
#else
	do
	:: named(x, i) -> i = i + C
	:: else -> break
	od;
#endif
	use[x] = i; i = 0
}

inline pull(e) {
	i = 0;
	do
	:: i < places && queue[i] != e -> i++
	:: else -> break
	od;
	if
	:: i < places ->
		places--;
		do
		:: i < places -> queue[i] = queue[i + 1]; i++
		:: else -> break
		od;
		queue[places] = 0
	:: else
	fi;
	i = 0
}

inline enrol(e) {
	i = 0;
	do
	:: i < places && queue[i] != e -> i++
	:: else -> break
	od;
	if
	:: i == places -> assert(places < Q); queue[places] = e; places++
	:: else
	fi;
	i = 0
}

/* The record is absent. */
inline serve(a) {
	if
	:: places > 0 && queue[0] == a -> pull(a)
	:: places > 0 && queue[0] != a ->
		resFor = queue[0]; pull(queue[0]); owner = RESERVED; ttl = RESERVE;
#ifdef TOKEN_AT_RESERVE
		counter++
#endif
	:: else
	fi
}

/* Drawn by a repeat, too. */
inline token_of(t) {
#if !defined(TOKEN_AT_RESERVE) && !defined(TOKEN_NOT_DRAWN)
	counter++;
#endif
	t = counter
}

/* enrol.lua */
inline acquire(o, e, t, r) {
	if
	:: owner == 0 -> serve(e)
	:: else
	fi;
	if
	:: owner == o -> token_of(t); r = granted          /* a repeat: the time stays */
	:: owner == 0 -> owner = o; ttl = LEASE; pull(e); counter++; t = counter; r = granted
	:: owner == RESERVED && resFor == e ->
		owner = o; resFor = 0; pull(e); token_of(t); r = granted;
#ifndef TIME_KEPT
		ttl = LEASE
#endif
	:: else -> enrol(e); r = refused
	fi
}

inline release(o) {
	if
	:: owner == o -> owner = 0; ttl = 0; serve(0)
	:: else
	fi
}

inline begins(x) { left[x] = LEASE - MARGIN; slow[x] = DRIFT }

proctype client(byte c) {
	byte i, t;
	mtype r;
end:	do
	:: atomic { state[c] == idle && locks[c] < (c == 0 -> LOCKS : LOCKS1) || state[c] == waiting && (owner == 0 || resFor == entry(c)
#ifdef ONE_OWNER
		|| owner == 1 + c + C * (locks[c] % 2)
#endif
		) ->
		draw(c); state[c] = asking; begins(c) }
	:: atomic { state[c] == asking -> acquire(use[c], entry(c), token[c], state[c]) }
	:: atomic { ghost[c] != 0 -> acquire(ghost[c], ghostEntry[c], t, r); t = 0; r = 0; ghost[c] = 0; ghostEntry[c] = 0 }
	:: atomic { ghost[c] != 0 -> ghost[c] = 0; ghostEntry[c] = 0 }
	:: atomic { state[c] == refused && (!late[c] || back[c] == 0) ->
		if
#ifndef ONE_OWNER
		:: late[c] -> back[c] = use[c]; late[c] = false
#endif
		:: else
		fi;
		state[c] = waiting; left[c] = 0; slow[c] = 0; use[c] = 0 }
	:: atomic { losses > 0 && ghost[c] == 0 && (state[c] == asking || state[c] == granted) ->
		losses--; late[c] = true; token[c] = 0;
		if
		:: state[c] == asking -> ghost[c] = use[c]; ghostEntry[c] = entry(c)
		:: else
		fi;
#ifdef FROM_LAST_REQUEST
		begins(c);
#endif
		state[c] = asking }                                    /* the same once more */
#ifdef TOLD_IS_HELD
	:: atomic { state[c] == waiting && resFor == entry(c) -> draw(c); begins(c); state[c] = granted; token[c] = counter }
#endif
	:: atomic { state[c] == granted && left[c] == 0 -> state[c] = releasing }
	:: atomic { state[c] == granted && left[c] > 0 ->
		state[c] = holding;
#ifdef FROM_REPLY
		begins(c);
#endif
		assert(token[c] > seen);
		seen = token[c] }
	:: atomic { state[c] == holding -> state[c] = releasing; left[c] = 0 }
	:: atomic { state[c] == releasing && (!late[c] || back[c] == 0) ->
		release(use[c]);
		if
		:: late[c] -> back[c] = use[c]
		:: else
		fi;
		state[c] = idle; left[c] = 0; slow[c] = 0; token[c] = 0; late[c] = false; use[c] = 0; locks[c]++ }
	:: atomic { back[c] != 0 && (owner == back[c] || ghost[c] != back[c]) ->
		release(back[c]);
		if
		:: ghost[c] != back[c] -> back[c] = 0
		:: else
		fi }
	od
}

inline count(x, y) {
	if
	:: x > 0 -> x--
	:: x > 0 && y > 0 -> y--
	:: x == 0 -> y = 0
	fi
}

active proctype clocks() {
end:	do
	:: atomic { owner != 0 ->
		count(left[0], slow[0]); count(left[1], slow[1]);
		ttl--;
		if
		:: ttl == 0 -> owner = 0; resFor = 0
		:: else
		fi }
	:: atomic { timeout -> break }
	od;
	assert(owner == 0 && state[0] == idle && state[1] == idle)
}

/* A holder that believes in its lease is in the record. */
active proctype exclusion() {
end:	do
	:: atomic { believes(0) && owner != use[0] || believes(1) && owner != use[1] -> assert(false) }
	od
}

init { atomic { run client(0); run client(1) } }
