/*
 * The hand-over between processes: nobody is granted anything by another; a release names
 * one client that is to ask, and a stand-by.
 *
 * Follows wait.go and queue.go (the head asks, events), release.go, acquire.lua (a refused
 * client takes its place in `next` in the same step), release.lua (names the first two of
 * `next`), and the script by which the last waiter of a client takes its place back.
 *
 * Left out: time, leases and owners' ids (lease.pml), what goes on between the waiters of
 * one client (wake.pml; here they are a number), what a hand-over inside a client does
 * (handoff.pml; here it is a step). A command is carried out at any time after it was sent, in
 * any order with others, and its reply is read at once: a late reply shows nothing here that a late
 * command does not.
 *
 * A timer that is armed fires some time, so the stand-by's T may fire at any moment. The retry
 * at the end of the lease that a waiter last heard of fires only where nothing else
 * can happen: it is what must not be needed, and it is counted.
 */

#ifndef N
#define N 3          /* clients, each a process */
#endif
#ifndef LOCKS
#define LOCKS 1      /* Lock calls of each client */
#endif
#ifndef LEAVES
#define LEAVES 0     /* callers that give up */
#endif
#ifndef CRASHES
#define CRASHES 0    /* processes that are killed, or stopped for good */
#endif
#ifndef DEAD
#define DEAD 0       /* those that were, while they waited, before all this begins */
#endif
#ifndef CUTS
#define CUTS 0       /* subscription connections that break, with all that is on its way there */
#endif
#ifndef STALLS
#define STALLS 0     /* how often the end of a lease may be what sets the waiters going */
#endif

#define NOBODY 15
#define ALL    14

#define IDLE 0
#define SENT 1
#define BACK 2
#define DONE 3

/* The store. */
byte owner = NOBODY;  /* the client whose owner is in the lock's hash */
byte next[N];         /* the sorted set `next`, first come first */
byte places;          /* its size */
bool listens[N];      /* subscribed, and the client knows */

/* The wire. */
chan inbox[N] = [2] of { byte, byte };  /* the chosen one and the stand-by */
byte acquire[N];      /* the acquisition of the head */
bool enrols[N];       /* ... asks for a place */
byte ousts[N];        /* ... and names a chosen one who kept silent */
byte stray[N];        /* an acquisition whose caller left, then its compensation */
bool strayEnrols[N];
byte release[N];
bool again[N];        /* ... takes a place for those who still wait here */
byte strike[N];       /* takes the client's place back */

/* The clients. */
bool alive[N];
byte todo[N];         /* Lock calls to come */
byte waiters[N];
bool holds[N];
bool dirty[N];        /* queue.events != queue.seen: the head is to ask */
bool refused[N];      /* queue.refused: so it wants to hear of releases */
byte suspect[N];      /* T is running, and the one whom it waits for meanwhile */
bool placed[N];       /* it may have a place in `next` */

byte leaves = LEAVES, crashes = CRASHES, cuts = CUTS, stalls = 0;

inline enrol(x) {
	i = 0;
	do
	:: i < places && next[i] != x -> i++
	:: else -> break
	od;
	if
	:: i == places -> next[places] = x; places++
	:: else
	fi;
	i = 0
}

inline expel(x) {
	i = 0;
	do
	:: i < places && next[i] != x -> i++
	:: else -> break
	od;
	if
	:: i < places ->
		places--;
		do
		:: i < places -> next[i] = next[i + 1]; i++
		:: else -> break
		od;
		next[places] = 0
	:: else
	fi;
	i = 0
}

/* A message is late by so many others at the most. */
#if N == 2
#define room (nfull(inbox[0]) && nfull(inbox[1]))
#elif N == 3
#define room (nfull(inbox[0]) && nfull(inbox[1]) && nfull(inbox[2]))
#else
#define room (nfull(inbox[0]) && nfull(inbox[1]) && nfull(inbox[2]) && nfull(inbox[3]))
#endif

/* What release.lua publishes. */
inline announce() {
	first = ALL; second = NOBODY;
	if
	:: places > 0 -> first = next[0]
	:: else
	fi;
	if
	:: places > 1 -> second = next[1]
	:: else
	fi;
#ifndef LEFT_IN
	if
	:: places > 0 -> expel(first)
	:: else
	fi;
#endif
	do
	:: i < N ->
		if
		:: listens[i] && alive[i] -> inbox[i] ! first, second
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0; first = 0; second = 0
}

inline drain(x) {
	do
	:: nempty(inbox[x]) -> inbox[x] ? first, second
	:: empty(inbox[x]) -> break
	od;
	first = 0; second = 0
}

/* tidy: nobody waits here any more. */
inline tidy(x) {
	if
	:: waiters[x] == 0 -> refused[x] = false; dirty[x] = false; suspect[x] = NOBODY
	:: else
	fi
}

/* A place is taken back when nothing is on its way that may take it, and the reverse. */
#ifdef UNORDERED
#define silent(x) true
#define struck(x) true
#else
#define silent(x) (acquire[x] == IDLE && stray[x] == IDLE && release[x] == IDLE)
#define struck(x) (strike[x] == IDLE)
#endif

proctype client(byte c) {
	byte i, first, second;
end:	do
	/* Lock: the first in a queue knows nothing, so it asks. */
	:: atomic { alive[c] && todo[c] > 0 && (c == 0 || todo[c] < LOCKS || todo[c - 1] < LOCKS) ->
		todo[c]--; waiters[c]++;
		if
		:: waiters[c] == 1 -> dirty[c] = true
		:: else
		fi }
	:: atomic { alive[c] && waiters[c] > 0 && !holds[c] && dirty[c] && acquire[c] == IDLE && release[c] == IDLE && struck(c) ->
		dirty[c] = false; acquire[c] = SENT; enrols[c] = listens[c];
		#ifdef OUST
		ousts[c] = suspect[c];
#endif
		suspect[c] = NOBODY;
		if
		:: enrols[c] -> placed[c] = true
		:: else
		fi }

	/* acquire.lua. Those of the dead arrive, too. */
	:: atomic { acquire[c] == SENT && owner == NOBODY ->
		owner = c;
		acquire[c] = IDLE; enrols[c] = false;
		expel(c);
		if
		:: ousts[c] != NOBODY -> expel(ousts[c]); ousts[c] = NOBODY
		:: else
		fi;
		if
		:: alive[c] -> holds[c] = true; waiters[c]--; placed[c] = stray[c] == SENT && strayEnrols[c]; tidy(c)
		:: else
		fi }
	:: atomic { acquire[c] == SENT && owner != NOBODY ->
		if
		:: enrols[c] -> enrol(c)
		:: else
		fi;
		acquire[c] = IDLE; enrols[c] = false; ousts[c] = NOBODY;
		if
		:: alive[c] -> refused[c] = true
		:: else
		fi }

	/* Unlock. */
	:: atomic { alive[c] && holds[c] && waiters[c] > 0 && release[c] == IDLE -> /* handed over in here */
		waiters[c]--; tidy(c) }
	:: atomic { alive[c] && holds[c] && release[c] == IDLE ->
		release[c] = SENT; again[c] = waiters[c] > 0 && listens[c];
		if
		:: again[c] -> placed[c] = true
		:: else
		fi }
	:: atomic { release[c] == SENT && room ->   /* release.lua */
		assert(owner == c);
		owner = NOBODY; release[c] = DONE;
		if
		:: again[c] -> enrol(c)
		:: else
		fi;
		announce() }
	:: atomic { alive[c] && release[c] == DONE -> /* vacate */
		release[c] = IDLE; holds[c] = false;
		if
		:: waiters[c] > 0 && !again[c] -> dirty[c] = true
		:: else
		fi;
		again[c] = false }

	/* A caller leaves: the head, whose reply finds nobody, or another. */
	:: atomic { alive[c] && leaves > 0 && waiters[c] > 0 && acquire[c] == SENT && stray[c] == IDLE ->
		leaves--; waiters[c]--;
		stray[c] = SENT; strayEnrols[c] = enrols[c];
		acquire[c] = IDLE; enrols[c] = false; ousts[c] = NOBODY;
		dirty[c] = true;
		tidy(c) }
	:: atomic { alive[c] && leaves > 0 && waiters[c] > (acquire[c] == SENT -> 1 : 0) ->
		leaves--; waiters[c]--;
		tidy(c) }
	:: atomic { stray[c] == SENT && owner == NOBODY ->
		owner = c; expel(c); strayEnrols[c] = false;
		stray[c] = (alive[c] -> BACK : IDLE) }
	:: atomic { stray[c] == SENT && owner != NOBODY ->
		if
		:: strayEnrols[c] -> enrol(c); strayEnrols[c] = false
		:: else
		fi;
		stray[c] = IDLE }
	:: atomic { stray[c] == BACK && room ->     /* abandon, compensate */
		assert(owner == c);
		owner = NOBODY; stray[c] = IDLE;
		if
		:: alive[c] && waiters[c] > 0 -> dirty[c] = true
		:: else
		fi;
		announce() }

	/* Nobody waits here any more: the place is taken back. */
	:: atomic { alive[c] && waiters[c] == 0 && placed[c] && strike[c] == IDLE && silent(c) ->
		placed[c] = false; strike[c] = SENT }
	:: atomic { strike[c] == SENT && room ->
		strike[c] = IDLE;
		expel(c);
#ifndef SILENT_STRIKE
		if
		:: owner == NOBODY -> announce()
		:: else
		fi
#endif
		}

	/* What is heard. */
	:: atomic { alive[c] && refused[c] && !listens[c] -> /* subscribed: Watching */
		listens[c] = true; suspect[c] = NOBODY;
#ifndef NO_SECOND_TRY
		dirty[c] = true
#endif
		}
	:: atomic { alive[c] && !refused[c] && listens[c] && !holds[c] -> /* Unwatch, some time */
		listens[c] = false; drain(c) }
	:: atomic { alive[c] && nempty(inbox[c]) -> /* Released */
		inbox[c] ? first, second;
		suspect[c] = NOBODY;
		if
		:: waiters[c] > 0 && (first == c || first == ALL) -> dirty[c] = true
#ifndef NO_STANDBY
		:: waiters[c] > 0 && second == c -> suspect[c] = first
#endif
#ifdef PASS
		:: waiters[c] == 0 && !holds[c] && (first == c || second == c) -> placed[c] = true /* to be taken back */
#endif
		:: else
		fi;
		first = 0; second = 0 }
	:: atomic { alive[c] && suspect[c] != NOBODY && waiters[c] > 0 && !dirty[c] -> /* T is over */
		dirty[c] = true }

	/* Faults. */
	:: atomic { alive[c] && crashes > 0 ->
		crashes--; alive[c] = false; listens[c] = false;
		todo[c] = 0; waiters[c] = 0; placed[c] = false; holds[c] = false;
		if
		:: stray[c] == BACK -> stray[c] = IDLE
		:: else
		fi;
		tidy(c); drain(c) }
	:: atomic { alive[c] && cuts > 0 && listens[c] ->
		cuts--; listens[c] = false; drain(c) }
	od
}

/* Nothing can happen any more but that leases end. */
active proctype leases() {
	byte i;
	bool somebody;
end:	do
	:: atomic { timeout ->
		do
		:: i < N ->
			if
			:: alive[i] && waiters[i] > 0 -> somebody = true; dirty[i] = true
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		if
		:: !somebody -> break
		:: else
		fi;
		if
		:: owner != NOBODY -> assert(!alive[owner])    /* a dead holder: its lease ends */
			owner = NOBODY
		:: else -> stalls++; assert(stalls <= STALLS) /* it was free, and nobody came */
		fi;
		somebody = false }
	od
}

init {
	byte i;
	atomic {
		do
		:: i < N ->
			alive[i] = i < N - DEAD; suspect[i] = NOBODY; ousts[i] = NOBODY;
			if
			:: alive[i] -> todo[i] = LOCKS
			:: else -> next[places] = i; places++
			fi;
			run client(i);
			i++
		:: else -> break
		od;
		i = 0
	}
}
