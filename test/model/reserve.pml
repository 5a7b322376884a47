/*
 * Waiting by reservation, between processes: enrol, serve, claim, leave, recheck.
 *
 * Written from architecture.md, section 3 (rules 1 to 5, 7 and 9), before the code. A refused ask enrols its client
 * in the queue of the store. Each script that finds the record absent, or leaves it so, writes the record for
 * the first entry, marks it reserved, and tells that client and the one behind. The ask of the reserved owner is its claim.
 *
 * A command is carried out at any time after it was sent, in any order with others, and its reply is read at any
 * time after that. A command that is lost from its sender's sight arrives once, at any later time, or never. Messages to
 * one client keep their order. A timer that is armed fires at any time. A recheck fires only
 * where nothing else can happen, and is counted: so a lost wake-up shows as a recheck that had to fire.
 *
 * Left out: leases, deadlines and tokens of two tenures (claim.pml); the budget of local handoffs, how many windows
 * come after a round and how long they are (round.pml); re-entry; the waiters of one client are a
 * number (wake.pml). A liveness of 15 s is not modelled: an entry of a dead client stays until it is served or dropped.
 * Redisson's client is not asleep: it takes an absent record at any time.
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
#ifndef STALLS
#define STALLS 0     /* how often a recheck may be what sets the waiters going */
#endif

#define NOBODY 15
#define JAVA   100   /* the owner that is Redisson's */
#define NEXT   101   /* a message: the entry is now the first */

#define IDLE 0
#define SENT 1
#define GOT  2       /* the reply is on its way: granted; of a release: handed on */
#define NO   3       /* refused; of a release: not handed on */
#define HEAD 4       /* refused, first in the queue, and no release of mortise is to come */

/* The store. */
byte rec;             /* the owner in the record; 0: absent */
bool marked;          /* mortise:reserved */
byte count;           /* the owner's hold count */
byte draws;           /* tokens drawn in this tenure */
bool window;
byte queue[N];        /* the enrolled clients, first come first */
byte places;
byte entry[N];        /* the owner that each claims with */
byte passed[N * N];   /* how often d was served while c stood in the queue */
bool javaWaits;

/* The wire. */
bool hears[N];        /* the store has the client's subscription */
chan inbox[N] = [3] of { byte };
byte ask[N];
byte askId[N];
bool enrols[N];
byte stray[N];        /* an ask that its sender no longer sees: its owner */
bool strayEnrols[N];
byte rel[N];
byte relId[N];
byte heir[N];         /* the waiter that the release names; 0: none */
byte strayRel[N];     /* a release that its sender no longer sees */
byte strayHeir[N];

/* The clients. */
bool alive[N];
byte todo[N];         /* Lock calls to come */
byte waiters[N];
byte serial[N];       /* makes the id of the first waiter's owner */
byte holds[N];        /* the owner by which it holds; 0: it does not */
bool dirty[N];        /* the first waiter is to ask */
bool refused[N];      /* so it wants to hear of releases */
bool listens[N];      /* its subscriptions are confirmed */
bool armed[N];        /* it was told `next`: it asks when the reservation or the window ends, or Redisson releases */
bool placed[N];       /* the present id may be in the queue */
bool gone[N];         /* the caller of the ask left */
bool late[N];         /* a lost ask or release named the present id */
bool sweeps[N];       /* ... named the owner by which the client holds */
byte back[N];         /* an owner that is given back: compensate, leave */

byte leaves = LEAVES, losses = LOSSES, silent = SILENT, cuts = CUTS, crashes = CRASHES, runouts = RUNOUTS;
byte java = FOREIGN, windows = WINDOWS, stalls = 0;
bool died;

#ifdef SAME_ID
#define id(c) (1 + N * serial[c])   /* no part of the owner tells the clients apart */
#else
#define id(c) (1 + c + N * serial[c])
#endif

/* A message is late by so many others at most. */
#if N == 2
#define room (len(inbox[0]) < 2 && len(inbox[1]) < 2)
#else
#define room (len(inbox[0]) < 2 && len(inbox[1]) < 2 && len(inbox[2]) < 2)
#endif

inline tell(x, m) {
	if
	:: hears[x] -> inbox[x] ! m
	:: else
	fi
}

inline place(x) {     /* i: where x stands; places: it does not */
	i = 0;
	do
	:: i < places && queue[i] != x -> i++
	:: else -> break
	od
}

inline pull(x) {
	place(x);
	if
	:: i < places ->
		places--;
		do
		:: i < places -> queue[i] = queue[i + 1]; i++
		:: else -> break
		od;
		queue[places] = 0; entry[x] = 0;
		i = 0;
		do
		:: i < N -> passed[x * N + i] = 0; i++
		:: else -> break
		od
	:: else
	fi;
	i = 0
}

/* The first entry is told that it is the first, where no release of mortise is to come. */
inline tellNext() {
	if
	:: places > 0 -> tell(queue[0], NEXT)
	:: else
	fi
}

inline enrol(x, o) {
	place(x);
	if
	:: i == places -> queue[places] = x; places++; entry[x] = o
	:: else ->
#ifdef REFRESH_MOVES
		queue[i] = queue[places - 1]; queue[places - 1] = x;
#endif
#ifdef ID_KEPT
		skip
#elif defined(ID_ANY)
		entry[x] = o
#else
		if
		:: o > entry[x] -> entry[x] = o    /* the place stays; an older request changes nothing */
		:: else
		fi
#endif
	fi;
	i = 0
}

/* x is served while others stand in the queue. */
inline tick(x) {
	i = 0;
	do
	:: i < places ->
		if
		:: queue[i] != x -> passed[queue[i] * N + x]++; assert(passed[queue[i] * N + x] <= 1)
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* Included in each script; the record is absent. */
inline serve() {
	j = 0;
	do
	:: rec == 0 && places > 0 ->
		k = queue[0];
		if
		:: COUNTED && !hears[k] && j < CAP -> pull(k); j++
		:: else ->
#ifdef CAP_STOPS
			if
			:: COUNTED && !hears[k] -> break
			:: else
			fi;
#endif
			rec = entry[k]; marked = true; count = 1; draws = 0;
			pull(k); tick(k);
#ifndef NOT_TOLD
			tell(k, rec);
#endif
			tellNext()
		fi
	:: else -> break
	od;
	j = 0; k = 0
}

inline freed() {
	rec = 0; marked = false; count = 0; draws = 0;
	if
	:: javaWaits && windows > 0 -> windows--; window = true;
#ifndef WINDOW_SILENT
		tellNext()
#endif
	:: else -> serve()
	fi
}

inline granted(x, o) {
	rec = o; marked = false; count = 1; draws = 1; tick(x); pull(x)
}

inline claim() {
	if
	:: marked -> marked = false; draws++
	:: else ->                                  /* a repeat */
#ifdef REPEAT_DRAWS
		draws++;
#endif
#ifdef REPEAT_COUNTS
		count++;
#endif
		skip
	fi;
	assert(draws == 1 && count == 1)
}

inline refuse(x, o, e) {
	if
	:: e -> enrol(x, o)
	:: else
	fi
}

#ifdef BARGE
#define first_served skip;
#else
#define first_served serve();
#endif

/* acquire.lua */
inline acquire(x, o, e, r) {
	if
	:: rec == 0 && !window -> first_served
		if
		:: rec == 0 -> granted(x, o); r = GOT
		:: rec != 0 && rec == o -> claim(); r = GOT
		:: else -> refuse(x, o, e); r = NO
		fi
	:: rec == 0 && window -> refuse(x, o, e); r = NO
	:: rec != 0 && rec == o -> claim(); r = GOT
	:: rec != 0 && rec != o -> refuse(x, o, e); r = NO
	fi;
	if
#ifndef HEAD_UNTOLD
	:: r == NO && places > 0 && queue[0] == x && (window || marked || rec == JAVA) -> r = HEAD
#endif
	:: else
	fi
}

#ifdef GRANT_MARKED
#define unmarked true
#else
#define unmarked !marked
#endif

/* release.lua */
inline release(x, o, h, r) {
	r = NO;
	if
	:: rec == o && count > 1 -> count--
	:: rec == o && count == 1 ->
		if
		:: h == 0 -> freed()
		:: h != 0 && !(places > (entry[x] != 0 -> 1 : 0)) && !javaWaits -> granted(x, h); r = GOT
		:: else ->
#ifdef TO_THE_FRONT
			pull(x); rec = h; marked = true; count = 1; draws = 0; tell(x, h); tick(x)
#else
			pull(x); enrol(x, h); freed()
#endif
		fi
	:: rec != o && h != 0 && rec == h && unmarked -> r = GOT     /* the same answer as the first time */
	:: rec != o && !(h != 0 && rec == h && unmarked) ->
		if
		:: rec == 0 && !window -> serve()
		:: else
		fi
	fi
}

/* leave.lua; compensation, too */
inline giveBack(x, o) {
	place(x);
#ifdef LEAVE_ANY
	if
	:: i < places -> k = i; i = 0; pull(x)
#else
	if
	:: i < places && entry[x] == o -> k = i; i = 0; pull(x)
#endif
	:: else -> k = NOBODY; i = 0
	fi;
	if
#ifdef LEAVE_KEEPS
	:: rec == o && !marked -> freed()
#else
	:: rec == o -> freed()
#endif
	:: rec != o && rec == 0 && !window -> serve()
	:: else ->
#ifndef LEAVE_SILENT
		if
		:: k == 0 && (window || marked || rec == JAVA) -> tellNext()
		:: else
		fi
#endif
	fi;
	k = 0
}

/* Giving back is repeated while a lost ask may arrive: where that changes nothing it is not shown. */
#define due(x) (stray[x] != back[x] && strayHeir[x] != back[x] || rec == back[x] || entry[x] == back[x])

inline tidy(x) {
	if
	:: waiters[x] == 0 -> refused[x] = false; dirty[x] = false; armed[x] = false
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

inline newId(x) { serial[x]++; placed[x] = false; late[x] = false }

/* The present id was named by a request of unknown outcome, and its waiter is gone: it is for no other. */
inline bar(x) {
	back[x] = id(x);
#ifdef GIVEN_TO_ANOTHER
	placed[x] = false; late[x] = false
#else
	newId(x)
#endif
}

inline taken(x, o) {
	holds[x] = o; sweeps[x] = late[x]; waiters[x]--; newId(x); tidy(x)
}

proctype client(byte c) {
	byte i, j, k, m;
end:	do
	/* Lock: the first waiter of a client knows nothing, so it asks. */
	:: atomic { alive[c] && todo[c] > 0 ->
		todo[c]--; waiters[c]++;
		if
		:: waiters[c] == 1 -> dirty[c] = true
		:: else
		fi }
	:: atomic { alive[c] && waiters[c] > 0 && holds[c] == 0 && dirty[c] && ask[c] == IDLE && rel[c] == IDLE ->
		dirty[c] = false; ask[c] = SENT; askId[c] = id(c); enrols[c] = listens[c];
		placed[c] = true }

	:: atomic { ask[c] == SENT && room ->
		acquire(c, askId[c], enrols[c], ask[c]); enrols[c] = false;
		if
		:: !alive[c] -> ask[c] = IDLE; askId[c] = 0
		:: else
		fi }
	:: atomic { stray[c] != 0 && room ->
		acquire(c, stray[c], strayEnrols[c], m); m = 0; stray[c] = 0; strayEnrols[c] = false }
	:: atomic { stray[c] != 0 -> stray[c] = 0; strayEnrols[c] = false }   /* it never arrives */

	/* The reply of the ask. */
	:: atomic { alive[c] && ask[c] == GOT && waiters[c] > 0 && !(gone[c] && late[c]) -> /* where its outcome is known another waiter's, too */
		ask[c] = IDLE; askId[c] = 0; gone[c] = false;
		taken(c, id(c)) }
	:: atomic { alive[c] && ask[c] == GOT && (waiters[c] == 0 || gone[c] && late[c]) && back[c] == 0 ->
		ask[c] = IDLE; askId[c] = 0; gone[c] = false; bar(c); dirty[c] = true; tidy(c) }
	:: atomic { alive[c] && (ask[c] == NO || ask[c] == HEAD) && !(gone[c] && late[c] && back[c] != 0) ->
		refused[c] = true;
		if
		:: ask[c] == HEAD -> armed[c] = true
		:: else
		fi;
		ask[c] = IDLE; askId[c] = 0;
		if
		:: gone[c] && late[c] -> bar(c); dirty[c] = true
		:: else
		fi;
		gone[c] = false; tidy(c) }

	/* The ask is lost from sight: once more by the same waiter, or the waiter leaves. */
	:: atomic { alive[c] && losses > 0 && ask[c] != IDLE && stray[c] == 0 && (!gone[c] || back[c] == 0) ->
		losses--;
		if
		:: ask[c] == SENT -> stray[c] = askId[c]; strayEnrols[c] = enrols[c]
		:: else
		fi;
		late[c] = true; ask[c] = IDLE; askId[c] = 0; enrols[c] = false;
		if
		:: !gone[c] -> dirty[c] = true
		:: back[c] == 0 ->
			if
			:: !gone[c] -> waiters[c]--
			:: else
			fi;
			gone[c] = false; bar(c); dirty[c] = true; tidy(c)
		fi }

	/* Unlock. */
	:: atomic { alive[c] && holds[c] != 0 && rel[c] == IDLE ->
		rel[c] = SENT; relId[c] = holds[c]; holds[c] = 0;
		if
		:: waiters[c] > 0 && listens[c] -> heir[c] = id(c); placed[c] = true
		:: else -> heir[c] = 0
		fi }
	:: atomic { rel[c] == SENT && room ->
		release(c, relId[c], heir[c], rel[c]);
		if
		:: !alive[c] -> rel[c] = IDLE; relId[c] = 0; heir[c] = 0
		:: else
		fi }
	:: atomic { strayRel[c] != 0 && room ->
		release(c, strayRel[c], strayHeir[c], m); m = 0; strayRel[c] = 0; strayHeir[c] = 0 }
	:: atomic { strayRel[c] != 0 -> strayRel[c] = 0; strayHeir[c] = 0 }
	:: atomic { alive[c] && losses > 0 && rel[c] != IDLE && strayRel[c] == 0 ->
		losses--;
		if
		:: rel[c] == SENT -> strayRel[c] = relId[c]; strayHeir[c] = heir[c]
		:: else
		fi;
		late[c] = heir[c] != 0; rel[c] = SENT }                        /* the same once more */
	/* The release was answered, and a lost ask of its owner may yet arrive. */
	:: atomic { alive[c] && rel[c] > SENT && sweeps[c] && back[c] == 0 ->
#ifndef NOT_SWEPT
		back[c] = relId[c];
#endif
		sweeps[c] = false }
	:: atomic { alive[c] && rel[c] == GOT && !sweeps[c] && (waiters[c] > 0 || back[c] == 0) ->
		rel[c] = IDLE; relId[c] = 0;
		if
		:: waiters[c] > 0 -> taken(c, heir[c])
		:: else -> bar(c)
		fi;
		heir[c] = 0 }
	:: atomic { alive[c] && rel[c] == NO && !sweeps[c] ->
		rel[c] = IDLE; relId[c] = 0;
		if
		:: waiters[c] > 0 && (heir[c] == 0 || late[c]) -> dirty[c] = true
		:: else
		fi;
		heir[c] = 0 }

	/* A caller leaves: the one that asks, by its reply or at once, or another. */
	:: atomic { alive[c] && leaves > 0 && waiters[c] > 0 && ask[c] == SENT && !gone[c] ->
		leaves--; waiters[c]--;
		if
		:: gone[c] = true
		:: back[c] == 0 && stray[c] == 0 ->
			stray[c] = askId[c]; strayEnrols[c] = enrols[c];
			ask[c] = IDLE; askId[c] = 0; enrols[c] = false;
			bar(c); dirty[c] = true
		fi;
		tidy(c) }
	:: atomic { alive[c] && leaves > 0 && waiters[c] > (ask[c] != IDLE && !gone[c] -> 1 : 0) ->
		leaves--; waiters[c]--;
		if
		:: late[c] && heir[c] == 0 && ask[c] == IDLE && back[c] == 0 -> bar(c); dirty[c] = true
		:: else
		fi;
		tidy(c) }

	/* Without waiters: leave. */
	:: atomic { alive[c] && waiters[c] == 0 && placed[c] && back[c] == 0 && ask[c] == IDLE && rel[c] == IDLE && holds[c] == 0 ->
		back[c] = id(c);
#ifdef LEFT_ID_USED
		placed[c] = false
#else
		newId(c)
#endif
		}
	:: atomic { back[c] != 0 && room && due(c) ->
		giveBack(c, back[c]);
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
	:: atomic { alive[c] && !refused[c] && listens[c] && holds[c] == 0 && waiters[c] == 0 ->
		listens[c] = false; hears[c] = false; drain(c) }
	:: atomic { alive[c] && nempty(inbox[c]) ->
		inbox[c] ? m;
		if
		:: waiters[c] > 0 && m == NEXT -> armed[c] = true
		:: waiters[c] > 0 && m == JAVA && armed[c] -> armed[c] = false; dirty[c] = true
#ifdef ANY_OWNER
		:: waiters[c] > 0 && m < JAVA -> dirty[c] = true; serial[c] = (m - 1 - c) / N
#else
		:: waiters[c] > 0 && m == id(c) -> dirty[c] = true
#endif
		:: else
		fi;
		m = 0 }
	:: atomic { alive[c] && silent > 0 && nempty(inbox[c]) -> silent--; inbox[c] ? m; m = 0 }
	:: atomic { alive[c] && armed[c] && waiters[c] > 0 && !dirty[c] && ask[c] == IDLE && !marked && !window && rec != JAVA ->
		armed[c] = false; dirty[c] = true }

	/* Faults. */
	:: atomic { alive[c] && crashes > 0 ->
		crashes--; died = true; alive[c] = false; listens[c] = false; hears[c] = false;
		todo[c] = 0; waiters[c] = 0; placed[c] = false; holds[c] = 0; back[c] = 0; late[c] = false; sweeps[c] = false; gone[c] = false;
		if
		:: ask[c] > SENT -> ask[c] = IDLE; askId[c] = 0
		:: else
		fi;
		if
		:: rel[c] > SENT -> rel[c] = IDLE; relId[c] = 0; heir[c] = 0
		:: else
		fi;
		tidy(c); drain(c) }
	:: atomic { alive[c] && cuts > 0 && listens[c] -> cuts--; listens[c] = false; hears[c] = false; refused[c] = true; drain(c) }
	od
}

proctype redisson() {
	byte i, j, k;
end:	do
	:: atomic { java > 0 && !javaWaits && rec != JAVA -> java--; javaWaits = true }
	:: atomic { javaWaits && rec == 0 -> rec = JAVA; marked = false; window = false; javaWaits = false }
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
	:: atomic { marked && runouts > 0 -> runouts--; rec = 0; marked = false; count = 0 }
	od
}

/* Nothing can happen any more but that reservations and leases of the dead end, and that clients recheck. */
active proctype rechecks() {
	byte i;
	bool somebody;
end:	do
	:: atomic { timeout ->
		do
		:: i < N ->
			if
			:: alive[i] && waiters[i] > 0 -> somebody = true
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		if
		:: rec != 0 && marked -> rec = 0; marked = false; count = 0       /* 1 s: not a recheck */
			if
			:: !somebody && !died && SILENT == 0 -> assert(false)
			:: else
			fi
		:: rec != 0 && !marked && somebody -> assert(died); rec = 0; count = 0  /* a dead holder: its lease ends */
		:: rec == 0 && somebody ->
			stalls++; assert(stalls <= STALLS);
			do
			:: i < N ->
				if
				:: alive[i] && waiters[i] > 0 -> dirty[i] = true
				:: else
				fi;
				i++
			:: else -> break
			od;
			i = 0
		:: rec == 0 && !somebody -> assert(died || DEAD > 0 || places == 0); break
		:: rec != 0 && !marked && !somebody -> assert(died); break
		fi;
		somebody = false }
	od
}

/* A client that holds is in the record: so there is one at most. */
active proctype exclusion() {
	byte i;
end:	do
	:: atomic { holds[0] != 0 && (rec != holds[0] || marked) || holds[1] != 0 && (rec != holds[1] || marked) -> assert(false) }
#if N > 2
	:: atomic { holds[2] != 0 && (rec != holds[2] || marked) -> assert(false) }
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
			:: else -> queue[places] = i; places++; entry[i] = 1 + i; died = true
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
