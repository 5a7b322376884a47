/*
 * Reservations and time: a record is reserved for the next owner, whose lease begins with its claim.
 *
 * Written from architecture.md, section 3 (rules 2 and 3), before the code. Beside lease.pml, which
 * has renewals and death, and handoff.pml, which has a release that grants within its process.
 *
 * Time is as in lease.pml: ticks that are counted down; a client's clock may miss one within a lease; a command is
 * carried out any time after it was sent, and one that is lost from its sender's sight arrives late, or never.
 *
 * Left out: messages (reserve.pml); a waiter asks at any time at which that would change
 * something. One waiter a client. What is compensated is given back until it can no longer arrive.
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

mtype = { idle, waiting, asking, granted, refused, holding, releasing };

/* The store. */
byte owner;
byte ttl;
bool marked;         /* reserved, and not claimed */
byte entry[C];       /* the queue: an owner a client */
byte head;           /* the client whose entry is first */
byte counter;        /* the fencing token */
byte seen;           /* the largest token that was written with */

/* The clients. */
mtype state[C] = idle;
byte locks[C];
byte left[C];        /* until the holder's deadline, by its own clock */
byte slow[C];
byte token[C];
bool late[C];
byte ghost[C];       /* an ask that may yet arrive */
byte back[C];        /* an owner that is given back */
byte rest;           /* of a repeat: what is left of the lease */
byte losses = LOSSES;

#define id(x) (x + 1 + C * locks[x])
#define believes(x) (state[x] == holding && left[x] > 0)

inline serve() {
	if
	:: owner == 0 && entry[head] != 0 -> owner = entry[head]; entry[head] = 0; head = 1 - head; ttl = RESERVE; marked = true
	:: owner == 0 && entry[head] == 0 && entry[1 - head] != 0 -> owner = entry[1 - head]; entry[1 - head] = 0; ttl = RESERVE; marked = true
	:: else
	fi;
#ifdef TOKEN_AT_RESERVE
	if
	:: marked -> counter++
	:: else
	fi
#endif
}

inline claim(t) {
	if
	:: marked ->
		marked = false;
#if !defined(TOKEN_AT_RESERVE) && !defined(TOKEN_NOT_DRAWN)
		counter++;
#endif
#ifndef TIME_KEPT
		ttl = LEASE
#endif
	:: else -> rest = ttl                  /* a repeat: the time stays, and the reply says what is left */
	fi;
	t = counter
}

/* acquire.lua */
inline acquire(x, o, t, r) {
	serve();
	if
	:: owner == o -> claim(t); r = granted
	:: owner == 0 -> owner = o; ttl = LEASE; marked = false; counter++; t = counter; r = granted
	:: else ->
		if
		:: entry[x] == 0 && entry[1 - x] == 0 -> head = x
		:: else
		fi;
		entry[x] = o; r = refused
	fi
}

inline finish(x) { state[x] = idle; left[x] = 0; slow[x] = 0; token[x] = 0; late[x] = false; locks[x]++ }

proctype client(byte c) {
	byte t;
	mtype r;
end:	do
	:: atomic { (state[c] == idle && locks[c] < (c == 0 -> LOCKS : LOCKS1) && back[c] == 0) ||
			(state[c] == waiting && (owner == 0 || owner == id(c))) ->
		state[c] = asking; left[c] = LEASE - MARGIN; slow[c] = DRIFT }
	:: atomic { state[c] == asking -> acquire(c, id(c), token[c], state[c]);
#ifndef REPEAT_WHOLE
		/* The deadline: from before this ask was sent, by what was left when it was carried out. */
		if
		:: rest > 0 && left[c] > LEASE - rest -> left[c] = left[c] - (LEASE - rest)
		:: rest > 0 && left[c] <= LEASE - rest -> left[c] = 0
		:: else
		fi;
#endif
		rest = 0 }
	:: atomic { ghost[c] != 0 -> acquire(c, ghost[c], t, r); t = 0; r = 0; rest = 0; ghost[c] = 0 }
	:: atomic { ghost[c] != 0 -> ghost[c] = 0 }
	:: atomic { state[c] == refused -> state[c] = waiting; left[c] = 0; slow[c] = 0 }
	:: atomic { losses > 0 && ghost[c] == 0 && (state[c] == asking || state[c] == granted) ->
		losses--; late[c] = true; token[c] = 0;
		if
		:: state[c] == asking -> ghost[c] = id(c)
		:: else
		fi;
		state[c] = asking;                                     /* the same once more */
#ifdef FROM_LAST_ATTEMPT
		left[c] = LEASE - MARGIN; slow[c] = DRIFT
#endif
		}
#ifdef TOLD_IS_HELD
	:: atomic { state[c] == waiting && owner == id(c) -> left[c] = LEASE - MARGIN; slow[c] = DRIFT; state[c] = granted; token[c] = counter }
#endif
	:: atomic { state[c] == granted && left[c] == 0 -> state[c] = releasing }
	:: atomic { state[c] == granted && left[c] > 0 ->
		state[c] = holding;
#ifdef FROM_REPLY
		left[c] = LEASE - MARGIN; slow[c] = DRIFT;
#endif
		assert(token[c] > seen);
		seen = token[c] }
	:: atomic { state[c] == holding -> state[c] = releasing; left[c] = 0 }
	:: atomic { state[c] == releasing && (!late[c] || back[c] == 0) ->          /* release.lua */
		if
		:: owner == id(c) -> owner = 0; ttl = 0; marked = false
		:: else
		fi;
		serve();
		if
		:: late[c] -> back[c] = id(c)                          /* sweep */
		:: else
		fi;
		finish(c) }
	:: atomic { back[c] != 0 && (owner == back[c] || entry[c] == back[c] || ghost[c] != back[c]) ->
		if
		:: entry[c] == back[c] -> entry[c] = 0
		:: else
		fi;
		if
		:: owner == back[c] -> owner = 0; ttl = 0; marked = false
		:: else
		fi;
		serve();
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
		:: ttl == 0 -> owner = 0; marked = false
		:: else
		fi }
	:: atomic { timeout -> break }
	od;
	assert(owner == 0 && entry[0] == 0 && entry[1] == 0 && state[0] == idle && state[1] == idle)
}

/* A holder that believes in its lease is in the record, and claimed it. */
active proctype exclusion() {
end:	do
	:: atomic { believes(0) && (owner != id(0) || marked) || believes(1) && (owner != id(1) || marked) -> assert(false) }
	od
}

init { atomic { run client(0); run client(1) } }
