/*
 * Waiting by reservation, between processes: enrol, serve, claim, leave, recheck.
 *
 * Follows enrol.lua, serve.lua, release.lua, leave_queue.lua and include/serve_queue.lua; handler.go, handoff.go, wait.go,
 * release.go and compensate.go of internal/engine. A refused ask puts its client's entry into the queue of the store: the client
 * and the number of its wait. Each script that finds the record absent while there is a queue, or leaves it so, reserves the record
 * for the first entry, and tells that client and the one behind. Any ask of that client that carries the entry is its claim.
 *
 * A command is carried out at any time after it was sent, in any order with others, and its reply is read at any
 * time after that. A command that is lost from its sender's sight arrives once, at any later time, or never. Messages to
 * one client keep their order. A timer that is armed fires at any time. A recheck fires only
 * where nothing else can happen, and is counted: so a lost wake-up shows as a recheck that had to fire. So does a
 * reservation that runs out.
 *
 * Left out: leases, deadlines and tokens (claim.pml); the budget of local handoffs, how many windows come after a
 * round and how long they are (turns.pml); re-entry; the waiters of one client are a number (wake.pml). Each ask has a new owner
 * id: one that nothing names any more serves again here, so that there are fewer states. Redisson's client is not
 * asleep: it takes an absent record at any time. Releases without a queue tell nothing.
 */

#ifndef N
#define N 2          /* clients, each a process */
#endif
#ifndef LOCKS
#define LOCKS 1      /* Lock calls of each client */
#endif
#ifndef EXTRA
#define EXTRA 0      /* Lock calls of client 0 besides */
#endif
#ifndef LEAVES
#define LEAVES 0     /* callers that leave */
#endif
#ifndef LOSSES
#define LOSSES 0     /* asks or releases of unknown outcome */
#endif
#ifndef SILENT
#define SILENT 0     /* messages lost without notice */
#endif
#ifndef CUTS
#define CUTS 0       /* subscription connections that break; noticed at once, by both ends */
#endif
#ifndef CRASHES
#define CRASHES 0    /* processes that are killed */
#endif
#ifndef DEAD
#define DEAD 0       /* clients that were killed while they were enrolled, before all this begins */
#endif
#ifndef RUNOUTS
#define RUNOUTS 0    /* reservations that run out though the client lives */
#endif
#ifndef FOREIGN
#define FOREIGN 0    /* tenures of a client of Redisson */
#endif
#ifndef WINDOWS
#define WINDOWS 0    /* windows for it */
#endif
#ifndef COUNTED
#define COUNTED 1    /* PUBLISH tells how many clients it reached */
#endif
#ifndef CAP
#define CAP 2        /* entries that one script drops at most */
#endif
#ifndef LAPSES
#define LAPSES 3     /* asks in a row that find a reservation which ran out: then the queue is removed */
#endif
#ifndef STALLS
#define STALLS 0     /* how often a recheck may be what sets the waiters going */
#endif
#ifndef SECONDS
#define SECONDS 0    /* how often a timer of a second: a reservation runs out, or the first is silent at a release of Redisson's */
#endif

#define Q        (3 * N)  /* entries in the queue, those of earlier waits included */
#define JAVA     100      /* the owner that is Redisson's, and the message of its release */
#define RESERVED 101      /* the record is reserved, for resFor */
#define NEXT     50       /* a message: this and an entry: it is the first now. An entry alone: the record is reserved for it */

#define IDLE  0
#define SENT  1
#define GOT   2      /* the reply is on its way: granted; of a release: the successor has it */
#define NO    3      /* refused; of a release: it was not held */
#define HEAD  4      /* refused, first in the queue, and no release of mortise is to come */
#define HEADT 5      /* ... and what it waits for ends by itself, soon */
#define DONE  6      /* released */
#define IN    7      /* released, and the client is in the queue */
#define SOON  8      /* refused, not first in the queue, and what it waits for ends by itself, soon */

/* The store. */
byte rec;            /* the owner in the record; 0: absent */
byte resFor;         /* mortise:reserved */
bool window;
byte queue[Q];       /* entries, first come first */
byte places;
byte passed[N * N];  /* how often d was served while c stood in the queue */
bool javaWaits;
byte lapsed;         /* asks in a row that found the record absent */
bool served;         /* a script's own: the record is not for the asker */

/* The wire. */
bool hears[N];       /* the store has the client's subscription */
chan inbox[N] = [7] of { byte };
byte ask[N];
byte askId[N];       /* its owner */
byte askEntry[N];    /* its entry; 0: the client does not enrol */
bool askHeard[N];
byte stray[N];       /* an ask that its sender no longer sees: its owner */
byte strayEntry[N];
byte rel[N];
byte relId[N];
byte heir[N];        /* the successor that the release names; 0: none */
byte relEntry[N];    /* 0: it is a plain release */
byte strayRel[N];    /* a release that its sender no longer sees */
byte strayHeir[N];
byte strayRelEntry[N];
byte leaving[N];     /* an entry that is to leave the queue */
byte back[N];        /* an owner that is released in the background: compensation */

/* The clients. */
bool alive[N];
byte todo[N];        /* Lock calls to come */
byte waiters[N];
byte number[N];      /* of the wait */
byte holds[N];       /* the owner by which it holds; 0: it does not */
bool dirty[N];       /* the first waiter is to ask */
bool refused[N];     /* so it wants to hear of releases */
bool enrolled[N];    /* its entry is in the queue, as far as it knows */
bool was[N];         /* ... it was when the release was sent */
bool fore[N];        /* it is the first: a release of Redisson's makes it ask */
bool heard[N];       /* ... did */
bool armed[N];       /* it asks when the reservation or the window ends */
bool silence[N];     /* Redisson has released, or a reservation ends, and another is the first: it asks after a while */
bool listens[N];     /* its subscriptions were confirmed */
bool gone[N];        /* the caller of the ask left */
bool heirGone[N];    /* the named successor left */
bool late[N];        /* a lost ask named the owner of the ask */
bool sweeps[N];      /* ... the owner by which the client holds */

byte leaves = LEAVES, losses = LOSSES, silent = SILENT, cuts = CUTS, crashes = CRASHES, runouts = RUNOUTS;
byte java = FOREIGN, windows = WINDOWS, stalls = 0, seconds = 0;
bool died;

#if N == 2
#define silent_first (silence[0] || silence[1])
#else
#define silent_first (silence[0] || silence[1] || silence[2])
#endif
/* A release that comes before the answer may be later than the answer. */
#ifdef RELEASE_BEFORE_REPLY
#define asks_now(c) false
#else
#define asks_now(c) (ask[c] != IDLE)
#endif
#define entry(c) (1 + (c) + N * number[c])
#define client_of(e) (((e) - 1) % N)

/* A message is late by so many others at most. */
#if N == 2
#define fewer(n) (len(inbox[0]) < n && len(inbox[1]) < n)
#else
#define fewer(n) (len(inbox[0]) < n && len(inbox[1]) < n && len(inbox[2]) < n)
#endif
#define room fewer(2)

inline tell(x, m) {
	if
	:: hears[x] -> inbox[x] ! m
	:: else
	fi
}

/* An owner that nothing names. */
#ifdef OWNER_AGAIN
#define named(x, o) (holds[x] == o || relId[x] == o || heir[x] == o)
#else
#define named(x, o) (rec == o || holds[x] == o || askId[x] == o || stray[x] == o || relId[x] == o || heir[x] == o || \
	strayRel[x] == o || strayHeir[x] == o || back[x] == o)
#endif

inline draw(x, o) {
	m = 1 + x;
	do
	:: named(x, m) -> m = m + N
	:: else -> break
	od;
	o = m; m = 0
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
		queue[places] = 0;
		i = 0;
		do
		:: i < N -> passed[client_of(e) * N + i] = 0; i++
		:: else -> break
		od
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
	:: else ->
#ifdef REFRESH_MOVES
		queue[i] = queue[places - 1]; queue[places - 1] = e
#else
		skip
#endif
	fi;
	i = 0
}

/* The first entry is told that it is the first, where no release of mortise is to come. */
inline tellNext() {
	if
	:: places > 0 -> tell(client_of(queue[0]), NEXT + queue[0])
	:: else
	fi
}

/* x has the lock while others stand in the queue. An entry of an earlier wait may be claimed by a lost ask. */
inline tick(x) {
	i = 0;
	do
	:: i < places ->
		if
		:: client_of(queue[i]) != x ->
			passed[client_of(queue[i]) * N + x]++;
			assert(passed[client_of(queue[i]) * N + x] <= 1 + LOSSES + LEAVES)
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* The queue is removed, and all clients are told. */
inline forget() {
	do
	:: places > 0 -> places--; queue[places] = 0
	:: else -> break
	od;
	i = 0;
	do
	:: i < N * N -> passed[i] = 0; i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < N -> tell(i, JAVA); i++
	:: else -> break
	od;
	i = 0
}

/* include/serve_queue.lua: the record is absent. */
inline serve(a, h, f) {
	served = false;
	if
	:: h -> window = false
	:: else
	fi;
	if
	:: window -> served = true;
#ifndef WINDOW_UNTOLD
		if
		:: f -> tellNext()
		:: else
		fi
#endif
	:: !window && javaWaits && windows > 0 ->
		windows--; window = true; served = true;
#ifndef WINDOW_SILENT
		if
		:: places > 0 && queue[0] != a -> tellNext()
		:: else
		fi
#endif
	:: !window ->
		if
		:: f -> lapsed = 0
		:: !f && places > 0 && queue[0] != a ->
			lapsed++;
			if
			:: lapsed >= LAPSES -> lapsed = 0; forget()
			:: else
			fi
		:: else
		fi;
		j = 0;
		do
		:: !served && places > 0 ->
			k = queue[0]; pull(k);
			if
			:: k == a -> break
			:: k != a && COUNTED && !hears[client_of(k)] && j < CAP -> j++
			:: else ->
				rec = RESERVED; resFor = k; served = true;
#ifndef NOT_TOLD
				tell(client_of(k), k);
#endif
				tellNext();
				if
				:: !COUNTED && places > 1 -> tell(client_of(queue[places - 1]), JAVA)
				:: else
				fi
			fi
		:: else -> break
		od;
		j = 0; k = 0
	fi
}

inline freed() {
	rec = 0; resFor = 0;
	if
	:: places > 0 -> serve(0, false, true); served = false
	:: else
	fi
}

inline granted(x, o, e) {
	rec = o; resFor = 0; lapsed = 0;
	if
	:: e != 0 -> pull(e)
	:: else
	fi;
	tick(x)
}

#ifdef BARGE
#define has_queue false
#else
#define has_queue (places > 0)
#endif

/* enrol.lua; acquire.lua where e is 0 */
inline acquire(x, o, e, h, r) {
	if
	:: rec == 0 && has_queue -> serve(e, h, false)
	:: else
	fi;
	if
	:: rec == o -> r = GOT                        /* a repeat */
	:: rec == 0 && !served || rec == RESERVED && e != 0 && resFor == e -> granted(x, o, e); r = GOT
	:: else ->
		r = NO;
		if
		:: e != 0 -> enrol(e)
		:: else
		fi;
#ifndef HEAD_UNTOLD
		if
		:: e != 0 && queue[0] == e && (rec == RESERVED || rec == 0) -> r = HEADT
		:: e != 0 && queue[0] == e && rec == JAVA -> r = HEAD
		:: e != 0 && queue[0] != e && (rec == RESERVED || rec == 0) -> r = SOON
		:: else
		fi
#endif
	fi;
	served = false
}

/* release.lua; serve.lua where e is not 0 */
inline release(x, o, h, e, r) {
	if
	:: rec != o -> r = NO
	:: rec == o && e == 0 -> freed(); r = DONE
	:: rec == o && e != 0 && places == 0 && !javaWaits -> granted(x, h, 0); r = GOT
	:: rec == o && e != 0 && (places > 0 || javaWaits) ->
#ifdef TO_THE_FRONT
		pull(e); rec = RESERVED; resFor = e; tell(x, e)
#else
		pull(e); enrol(e); freed()
#endif
		; r = IN
	fi
}

/* leave_queue.lua */
inline leave(e) {
	m = (places > 0 && queue[0] == e -> 1 : 0);
	pull(e);
#ifdef LEAVE_ANY
	do
	:: j < places && client_of(queue[j]) == client_of(e) -> k = queue[j]; pull(k)
	:: j < places && client_of(queue[j]) != client_of(e) -> j++
	:: else -> break
	od;
	j = 0; k = 0;
#endif
	if
	:: rec == RESERVED && resFor == e -> freed(); m = 0
	:: rec == 0 && places > 0 -> serve(0, false, false); served = false
	:: else
	fi;
#ifndef LEAVE_SILENT
	if
	:: m == 1 -> tellNext()
	:: else
	fi;
#endif
	m = 0
}

/* A release is repeated while a lost ask may arrive: where that changes nothing it is not shown. */
#define due(x) (rec == back[x] || stray[x] != back[x] && strayHeir[x] != back[x])

/* Each step of a client that may take its last waiter away has room for a leave. */
inline tidy(x) {
	if
	:: waiters[x] == 0 ->
		refused[x] = false; dirty[x] = false; armed[x] = false; fore[x] = false; heard[x] = false; silence[x] = false;
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

inline settled(x) { ask[x] = IDLE; askId[x] = 0; askEntry[x] = 0; askHeard[x] = false; gone[x] = false; late[x] = false }

inline compensate(x, o) {
#ifndef NOT_COMPENSATED
	back[x] = o
#endif
	skip
}

proctype client(byte c) {
	byte i, j, k, m;
end:	do
	/* Lock: the first waiter of a client knows nothing, so it asks. */
	:: atomic { alive[c] && todo[c] > 0 ->
		todo[c]--; waiters[c]++;
		if
		:: waiters[c] == 1 -> dirty[c] = true;
#ifndef NUMBER_AGAIN
			number[c]++
#endif
		:: else
		fi }
	:: atomic { alive[c] && waiters[c] > 0 && holds[c] == 0 && dirty[c] && ask[c] == IDLE && rel[c] == IDLE ->
		dirty[c] = false; armed[c] = false; silence[c] = false; ask[c] = SENT; draw(c, askId[c]);
		askEntry[c] = (listens[c] -> entry(c) : 0); askHeard[c] = heard[c]; heard[c] = false }

	:: atomic { ask[c] == SENT && room ->
		acquire(c, askId[c], askEntry[c], askHeard[c], ask[c]);
		if
		:: !alive[c] -> settled(c)
		:: else
		fi }
	:: atomic { stray[c] != 0 && room ->
		acquire(c, stray[c], strayEntry[c], false, m); m = 0; stray[c] = 0; strayEntry[c] = 0 }
	:: atomic { stray[c] != 0 -> stray[c] = 0; strayEntry[c] = 0 }   /* it never arrives */

	/* The reply of the ask. */
	:: atomic { alive[c] && ask[c] == GOT && !gone[c] && leaving[c] == 0 ->
		holds[c] = askId[c]; sweeps[c] = late[c]; waiters[c]--; dirty[c] = false;
		if
		:: askEntry[c] != 0 -> enrolled[c] = false; fore[c] = false
		:: else
		fi;
		settled(c); tidy(c) }
	:: atomic { alive[c] && ask[c] == GOT && gone[c] && back[c] == 0 ->
		compensate(c, askId[c]); settled(c); dirty[c] = waiters[c] > 0 }
	:: atomic { alive[c] && ask[c] > GOT && !gone[c] && (!late[c] || back[c] == 0) ->
		refused[c] = true;
		if
		:: ask[c] == SOON -> silence[c] = true
		:: ask[c] == HEAD || ask[c] == HEADT -> fore[c] = true; armed[c] = armed[c] || ask[c] == HEADT
		:: else
		fi;
		if
		:: askEntry[c] != 0 -> enrolled[c] = true
		:: else
		fi;
		if
		:: late[c] -> compensate(c, askId[c])
		:: else
		fi;
		settled(c) }
	:: atomic { alive[c] && ask[c] > GOT && gone[c] && (!late[c] || back[c] == 0) && leaving[c] == 0 ->
		if
		:: askEntry[c] != 0 && waiters[c] > 0 && askEntry[c] == entry(c) -> enrolled[c] = true
		:: askEntry[c] != 0 && !(waiters[c] > 0 && askEntry[c] == entry(c)) -> leaving[c] = askEntry[c]
		:: askEntry[c] == 0
		fi;
		if
		:: late[c] -> compensate(c, askId[c])
		:: else
		fi;
		settled(c); dirty[c] = waiters[c] > 0 }

	/* The ask is lost from sight: the same once more, unless its caller has left. */
	:: atomic { alive[c] && losses > 0 && ask[c] != IDLE && stray[c] == 0 && (!gone[c] || back[c] == 0) ->
		losses--;
		if
		:: ask[c] == SENT -> stray[c] = askId[c]; strayEntry[c] = askEntry[c]
		:: else
		fi;
		if
		:: !gone[c] -> ask[c] = SENT; late[c] = true
		:: else -> compensate(c, askId[c]); settled(c); dirty[c] = waiters[c] > 0
		fi }

	/* Unlock. */
	:: atomic { alive[c] && holds[c] != 0 && rel[c] == IDLE ->
		rel[c] = SENT; relId[c] = holds[c]; holds[c] = 0; dirty[c] = false;
		if
		:: waiters[c] > 0 ->
			draw(c, heir[c]); relEntry[c] = entry(c);
			was[c] = enrolled[c]; enrolled[c] = enrolled[c] || listens[c]
		:: else
		fi }
	:: atomic { rel[c] == SENT && room ->
		release(c, relId[c], heir[c], relEntry[c], rel[c]);
		if
		:: !alive[c] -> rel[c] = IDLE; relId[c] = 0; heir[c] = 0; relEntry[c] = 0
		:: else
		fi }
	:: atomic { strayRel[c] != 0 && room ->
		release(c, strayRel[c], strayHeir[c], strayRelEntry[c], m); m = 0;
		strayRel[c] = 0; strayHeir[c] = 0; strayRelEntry[c] = 0 }
	:: atomic { strayRel[c] != 0 -> strayRel[c] = 0; strayHeir[c] = 0; strayRelEntry[c] = 0 }
	:: atomic { alive[c] && losses > 0 && rel[c] != IDLE && strayRel[c] == 0 ->
		losses--;
		if
		:: rel[c] == SENT -> strayRel[c] = relId[c]; strayHeir[c] = heir[c]; strayRelEntry[c] = relEntry[c]
		:: else
		fi;
		relEntry[c] = 0; rel[c] = SENT }              /* a plain release; the successor's outcome is unknown */
	/* The release was answered, and a lost ask of its owner may yet arrive. */
	:: atomic { alive[c] && rel[c] > SENT && sweeps[c] && back[c] == 0 ->
#ifndef NOT_SWEPT
		back[c] = relId[c];
#endif
		sweeps[c] = false;
#ifndef HEIR_FORGOTTEN
		if                                            /* which grants it again: the successor's release may then run */
		:: heir[c] != 0 && relEntry[c] == 0 -> rel[c] = NO
		:: else
		fi
#endif
		}
	:: atomic { alive[c] && rel[c] > SENT && !sweeps[c] && back[c] == 0 && leaving[c] == 0 ->
		if
		:: heir[c] != 0 && rel[c] != IN -> enrolled[c] = enrolled[c] && was[c]
		:: else
		fi;
		if
		:: rel[c] == GOT && waiters[c] > 0 && relEntry[c] == entry(c) && !heirGone[c] ->
			holds[c] = heir[c]; waiters[c]--; dirty[c] = false
		:: rel[c] == GOT && !(waiters[c] > 0 && relEntry[c] == entry(c) && !heirGone[c]) ->
			compensate(c, heir[c]); dirty[c] = true
		:: rel[c] == NO && heir[c] != 0 && relEntry[c] == 0 -> compensate(c, heir[c]); dirty[c] = true
		:: rel[c] == IN && hears[c] && (waiters[c] == 0 || relEntry[c] != entry(c)) -> leaving[c] = relEntry[c]; dirty[c] = true
		:: rel[c] == IN && hears[c] && waiters[c] > 0 && relEntry[c] == entry(c) ->
			enrolled[c] = true; refused[c] = true
		:: rel[c] == IN && !hears[c] -> enrolled[c] = enrolled[c] && was[c]; dirty[c] = true
		:: else -> dirty[c] = true
		fi;
		rel[c] = IDLE; relId[c] = 0; heir[c] = 0; relEntry[c] = 0; was[c] = false; heirGone[c] = false;
		if
		:: waiters[c] == 0 && enrolled[c] && leaving[c] != 0 -> enrolled[c] = false
		:: else
		fi;
		tidy(c) }

	/* A caller leaves: the one that asks, whose reply is awaited or lost, or another. */
	:: atomic { alive[c] && leaves > 0 && waiters[c] > 0 && ask[c] == SENT && !gone[c] && leaving[c] == 0 ->
		leaves--; waiters[c]--; dirty[c] = true;
		if
		:: gone[c] = true
		:: back[c] == 0 && stray[c] == 0 ->
			stray[c] = askId[c]; strayEntry[c] = askEntry[c]; compensate(c, askId[c]); settled(c)
		fi;
		tidy(c) }
	:: atomic { alive[c] && leaves > 0 && waiters[c] > (ask[c] != IDLE && !gone[c] -> 1 : 0) && leaving[c] == 0 ->
		leaves--; waiters[c]--;
		if
		:: heir[c] != 0 -> heirGone[c] = true
		:: skip
		fi;
		tidy(c) }

	/* In the background. */
	:: atomic { leaving[c] != 0 && fewer(4) -> leave(leaving[c]); leaving[c] = 0 }
	:: atomic { back[c] != 0 && room && due(c) ->
		if
		:: rec == back[c] ->
			freed();
			if
			:: waiters[c] > 0 && !enrolled[c] -> dirty[c] = true
			:: waiters[c] > 0 && enrolled[c] && fore[c] -> fore[c] = false; heard[c] = true; dirty[c] = true
			:: else
			fi
		:: else
		fi;
		if
		:: stray[c] != back[c] && strayHeir[c] != back[c] -> back[c] = 0
		:: else
		fi }

	/* What is heard. */
	:: atomic { alive[c] && refused[c] && !listens[c] ->
		listens[c] = true; hears[c] = true;
#ifndef NO_SECOND_TRY
		dirty[c] = true
#endif
		}
	:: atomic { alive[c] && !refused[c] && listens[c] ->
		listens[c] = false; hears[c] = false; drain(c) }
	:: atomic { alive[c] && nempty(inbox[c]) && leaving[c] == 0 ->
		inbox[c] ? m;
		if
		:: m == JAVA && waiters[c] > 0 && !fore[c] && (!enrolled[c] || asks_now(c)) -> dirty[c] = true
		:: m == JAVA && waiters[c] > 0 && !enrolled[c] && fore[c] -> dirty[c] = true
		:: m == JAVA && waiters[c] > 0 && enrolled[c] && fore[c] -> fore[c] = false; heard[c] = true; dirty[c] = true
		:: m == JAVA && waiters[c] > 0 && enrolled[c] && !fore[c] && !asks_now(c) -> silence[c] = true
		:: m == JAVA && waiters[c] == 0
		:: m < NEXT && waiters[c] > 0 && m == entry(c) -> dirty[c] = true
		:: m > NEXT && m < JAVA && waiters[c] > 0 && m - NEXT == entry(c) -> fore[c] = true; armed[c] = true
		:: m < NEXT && !(waiters[c] > 0 && m == entry(c)) -> leaving[c] = m
		:: m > NEXT && m < JAVA && !(waiters[c] > 0 && m - NEXT == entry(c)) -> leaving[c] = m - NEXT
		fi;
		m = 0 }
	:: atomic { alive[c] && silent > 0 && nempty(inbox[c]) -> silent--; inbox[c] ? m; m = 0 }
	:: atomic { alive[c] && armed[c] && waiters[c] > 0 && !dirty[c] && ask[c] == IDLE && rec != RESERVED && !window ->
		armed[c] = false; dirty[c] = true }

	/* Faults. */
	:: atomic { alive[c] && crashes > 0 ->
		crashes--; died = true; alive[c] = false; listens[c] = false; hears[c] = false;
		todo[c] = 0; waiters[c] = 0; holds[c] = 0; back[c] = 0; leaving[c] = 0; sweeps[c] = false; enrolled[c] = false;
		if
		:: ask[c] > SENT -> settled(c)
		:: else -> gone[c] = false; late[c] = false
		fi;
		if
		:: rel[c] > SENT -> rel[c] = IDLE; relId[c] = 0; heir[c] = 0; relEntry[c] = 0
		:: else
		fi;
		was[c] = false; heirGone[c] = false;
		tidy(c); drain(c) }
	:: atomic { alive[c] && cuts > 0 && listens[c] && hears[c] -> cuts--; hears[c] = false; drain(c) }
	:: atomic { alive[c] && listens[c] && !hears[c] -> hears[c] = true; dirty[c] = waiters[c] > 0 }
	od
}

proctype redisson() {
	byte i;
end:	do
	:: atomic { java > 0 && !javaWaits && rec != JAVA -> java--; javaWaits = true }
	:: atomic { javaWaits && rec == 0 -> rec = JAVA; javaWaits = false }
	:: atomic { rec == JAVA && room -> rec = 0;
		do
		:: i < N -> tell(i, JAVA); i++
		:: else -> break
		od;
		i = 0 }
	od
}

/* Time: a window or a reservation ends, and nothing tells so. */
proctype ends() {
end:	do
	:: atomic { window -> window = false }
	:: atomic { rec == RESERVED && runouts > 0 -> runouts--; rec = 0; resFor = 0 }
	od
}

/* Nothing can happen any more but that reservations and leases of the dead end, and that clients recheck. */
active proctype rechecks() {
	byte i;
	bool waits;
end:	do
	:: atomic { timeout ->
		do
		:: i < N ->
			if
			:: alive[i] && waiters[i] > 0 -> waits = true
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		if
		:: rec == RESERVED ->                                  /* 1 s */
			if
			:: waits -> seconds++; assert(seconds <= SECONDS)
			:: else
			fi;
			rec = 0; resFor = 0
		:: rec != 0 && rec != RESERVED && waits -> assert(died); rec = 0  /* a dead holder: its lease ends */
		:: rec == 0 && waits ->
			if
			:: silent_first -> seconds++; assert(seconds <= SECONDS)
			:: else -> stalls++; assert(stalls <= STALLS)
			fi;
			do
			:: i < N ->
				if
				:: alive[i] && waiters[i] > 0 && (silence[i] || !silent_first) -> dirty[i] = true
				:: else
				fi;
				i++
			:: else -> break
			od;
			i = 0
		:: rec == 0 && !waits -> break
		:: rec != 0 && rec != RESERVED && !waits -> assert(died); break
		fi;
		waits = false }
	od
}

/* A client that holds is in the record: so there is one at most. */
active proctype exclusion() {
end:	do
	:: atomic { holds[0] != 0 && rec != holds[0] || holds[1] != 0 && rec != holds[1] -> assert(false) }
#if N > 2
	:: atomic { holds[2] != 0 && rec != holds[2] -> assert(false) }
#endif
	od
}

init {
	byte i;
	atomic {
		do
		:: i < N ->
			alive[i] = i < N - DEAD;
			if
			:: alive[i] -> todo[i] = LOCKS + (i == 0 -> EXTRA : 0)
			:: else -> queue[places] = entry(i); places++; died = true
			fi;
			run client(i);
			i++
		:: else -> break
		od;
		i = 0;
		run ends();
		run redisson()
	}
}
