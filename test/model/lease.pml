/*
 * Leases and time: acquire, expiry, renewal, release, compensation.
 *
 * Follows acquire.go (ask, request, abandon, settle), schedule.go (renew, renewed), release.go,
 * compensate.go, clock.go; acquire_fenced.lua, renew.lua, release.lua.
 *
 * Time is counted down in ticks. A client's clock may miss a tick within a lease, which is what
 * the margin is for. Any process may stand still at any point, since nothing makes it go on; a command is
 * carried out any time after it was sent, and a renewal's reply is read any time after that. One that
 * is lost from its sender's sight may still arrive, however late.
 *
 * Left out: waiting (wake.pml; a refused one gives up), re-entry, wall clocks that are set.
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
#ifndef MARGIN
#define MARGIN 1
#endif
#ifndef DRIFT
#define DRIFT 1      /* ticks that a client's clock misses within a lease */
#endif
#ifndef LOSSES
#define LOSSES 1     /* commands whose reply is lost, and that may have arrived, or may yet */
#endif
#ifndef LEAVES
#define LEAVES 1     /* callers that leave before the reply */
#endif
#ifndef RENEWALS
#define RENEWALS 1   /* of each client */
#endif
#ifndef CRASHES
#define CRASHES 0
#endif

#define C 2

mtype = { idle, asking, granted, refused, holding, releasing, over, dead };
mtype = { none, sent, yes, no };

/* The store. */
byte owner;          /* whose field is in the lock's hash; 0: there is no key */
byte ttl;
byte counter;        /* the fencing token */
byte seen;           /* the largest token that was written with, as a fenced store keeps it */

/* The clients. */
mtype state[C] = idle;
byte locks[C];       /* how many Lock calls there were: makes the owner's id */
byte left[C];        /* until the holder's deadline, by its own clock */
byte slow[C];
byte token[C];
bool gone[C];        /* the caller left: the reply finds nobody */
bool late[C];        /* an attempt of this owner may yet arrive */
byte ghost[C];       /* it */
mtype renewal[C] = none;
byte renews[C];      /* its owner */
byte lefts[C];       /* the deadline that it is to bring, counted from when it was sent */
byte slows[C];
bool orphan[C];      /* it was sent when its holder was gone already */
byte budget[C];
byte back[C];        /* an owner that is being taken back */
byte until[C];       /* ... for so long */

byte losses = LOSSES, leaves = LEAVES, crashes = CRASHES;

#ifdef REUSED_OWNER
#define id(x) (x + 1)
#else
#define id(x) (x + 1 + C * locks[x])
#endif
#define believes(x) (state[x] == holding && left[x] > 0)

#ifdef RENEW_RELEASED
#define renews_now(x) (believes(x) || state[x] == releasing)
#else
#define renews_now(x) believes(x)
#endif

/* compensateLocked */
inline takeBack(x) {
#ifndef NO_COMPENSATION
	back[x] = id(x); until[x] = LEASE;
#endif
	late[x] = false
}

inline finish(x) {
	state[x] = idle; left[x] = 0; token[x] = 0; gone[x] = false; late[x] = false; slow[x] = 0
}

inline draw(x) {
#ifndef TOKEN_NOT_DRAWN
	counter++;
#endif
	x = counter
}

proctype client(byte c) {
end:	do
	:: atomic { state[c] == idle && locks[c] < (c == 0 -> LOCKS : LOCKS1) && back[c] == 0 ->       /* ask */
		locks[c]++; state[c] = asking;
		left[c] = LEASE - MARGIN; slow[c] = DRIFT }

	/* acquire_fenced.lua */
	:: atomic { state[c] == asking && owner == 0 ->
		owner = id(c); ttl = LEASE; draw(token[c]); state[c] = granted }
	:: atomic { state[c] == asking && owner != 0 ->
		if
		:: owner == id(c) -> draw(token[c]); state[c] = granted
		:: else -> state[c] = refused
		fi }
	:: atomic { ghost[c] != 0 ->
		if
		:: owner == 0 -> owner = ghost[c]; ttl = LEASE; counter++
		:: owner == ghost[c] -> counter++
		:: else
		fi;
		ghost[c] = 0 }

	/* The reply is lost; the command is, or arrived, or will: blame, again. */
	:: atomic { losses > 0 && (state[c] == asking || state[c] == granted) && ghost[c] == 0 ->
		losses--;
		if
		:: state[c] == asking -> ghost[c] = id(c)
		:: skip
		fi;
		late[c] = true; token[c] = 0;
		if
		:: state[c] = asking;                                 /* the same request once more */
#ifdef FROM_LAST_ATTEMPT
			left[c] = LEASE - MARGIN; slow[c] = DRIFT;
#endif
			skip
		:: back[c] == 0 -> takeBack(c); finish(c)             /* request: abandon */
		fi }
	:: atomic { leaves > 0 && state[c] == asking && !gone[c] -> leaves--; gone[c] = true }

	:: atomic { state[c] == refused && (!late[c] || back[c] == 0) ->
		if
		:: late[c] -> takeBack(c)
		:: else
		fi;
		finish(c) }
	:: atomic { state[c] == granted && back[c] == 0 && (gone[c] || left[c] == 0) ->  /* abandon */
#ifdef RENEW_ABANDONED
		renewal[c] = sent; renews[c] = id(c); orphan[c] = true;
#endif
		takeBack(c); finish(c) }
	:: atomic { state[c] == granted && !gone[c] && left[c] > 0 ->             /* settle */
		state[c] = holding;
#ifdef FROM_REPLY
		left[c] = LEASE - MARGIN;
#endif
		assert(token[c] > seen);
		seen = token[c] }

	/* renew, renew.lua, renewed */
	:: atomic { renewal[c] == none && budget[c] > 0 && renews_now(c) ->
		budget[c]--; renewal[c] = sent; renews[c] = id(c); lefts[c] = LEASE - MARGIN; slows[c] = DRIFT;
		orphan[c] = state[c] != holding }
	:: atomic { renewal[c] == sent ->
		if
		:: owner == renews[c] -> assert(!orphan[c]); ttl = LEASE; renewal[c] = yes
		:: else -> renewal[c] = no
		fi }
	:: atomic { renewal[c] == yes || renewal[c] == no ->
		if
		:: state[c] == holding && renews[c] == id(c) && renewal[c] == yes && left[c] > 0 ->
			if
			:: lefts[c] > left[c] -> left[c] = lefts[c]; slow[c] = slows[c]
			:: else
			fi
		:: state[c] == holding && renews[c] == id(c) && renewal[c] == no -> left[c] = 0
		:: else
		fi;
		renewal[c] = none; renews[c] = 0; lefts[c] = 0; slows[c] = 0; orphan[c] = false }
	:: atomic { losses > 0 && renewal[c] == yes -> losses--; renewal[c] = none; renews[c] = 0; lefts[c] = 0; slows[c] = 0; orphan[c] = false }

	/* Unlock, of a lease that was lost, too */
	:: atomic { state[c] == holding -> state[c] = releasing; left[c] = 0 }
	:: atomic { state[c] == releasing && (!late[c] || back[c] == 0) ->        /* release.lua */
#ifdef RELEASE_ANYBODYS
		owner = 0; ttl = 0;
#else
		if
		:: owner == id(c) -> owner = 0; ttl = 0
		:: else
		fi;
#endif
		if
		:: late[c] -> takeBack(c)                             /* sweep */
		:: else
		fi;
		finish(c) }
	:: atomic { losses > 0 && state[c] == releasing && back[c] == 0 -> losses--; takeBack(c); finish(c) }

	/* compensate.go: again and again */
	:: atomic { back[c] != 0 && owner == back[c] -> owner = 0; ttl = 0;
		if
		:: ghost[c] != back[c] -> back[c] = 0; until[c] = 0   /* late */
		:: else
		fi }
#ifndef NO_CLOCK
	:: atomic { back[c] != 0 && until[c] == 0 -> back[c] = 0 }
#endif
	:: atomic { crashes > 0 && state[c] != idle && state[c] != dead ->
		crashes--; finish(c); state[c] = dead; back[c] = 0; until[c] = 0 }
	od
}

/* All clocks go at about one rate: those of the clients may miss a tick. */
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

active proctype clocks() {
end:	do
#ifndef NO_CLOCK
	:: atomic { owner != 0 || left[0] > 0 || left[1] > 0 || lefts[0] > 0 || lefts[1] > 0 || until[0] > 0 || until[1] > 0 ->
		count(left[0], slow[0]); count(left[1], slow[1]);
		count(lefts[0], slows[0]); count(lefts[1], slows[1]);
		down(until[0]); down(until[1]);
		down(ttl);
		if
		:: ttl == 0 -> owner = 0
		:: else
		fi }
#endif
	:: atomic { timeout -> break }
	od;
	/* Nothing is left when all is over, without any lease having had to end where there is no clock. */
	assert(owner == 0 || state[0] == dead || state[1] == dead)
}

/* Who believes in its lease holds the lock: so there is one at most, and it is told first. */
active proctype exclusion() {
end:	do
	:: atomic { believes(0) && owner != id(0) || believes(1) && owner != id(1) -> assert(false) }
	od
}

init {
	atomic { budget[0] = RENEWALS; budget[1] = RENEWALS; run client(0); run client(1) }
}
