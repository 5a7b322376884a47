/*
 * A release grants, progress: no free lock while a client waits and none will act; no grant that its client does not learn of.
 *
 * Follows the rules of decision 123, whose numbers stand beside the transitions. grant.pml shows that a belief is right; here a
 * message is believed when it comes, and times are left out. Clients are told apart, and the queue has an order.
 *
 * A command is carried out at any time after it was sent, in any order with others, and its reply is read at any time after that. A
 * command that is lost from its sender's sight arrives once, at any later time, or never. What only time brings
 * happens where nothing else can: a client that cannot be told polls (20 ms, not counted); a first lease ends (1 s, FIRSTS); a whole
 * lease ends (WHOLES); a free lock is found by a recheck (STALLS). So what a fault costs is how many of these had to happen, and a run
 * that needs none shows that the messages alone are enough. Calls are bounded, and ENDS shows that no run goes on for ever: so each
 * ends, with every live client served. What a lease leaves free its waiters ask for, since a
 * refusal tells what is left.
 *
 * Left out: local waiters (one call of a client at a time), Redisson's clients (turns.pml), sides and permits.
 */

#ifndef N
#define N 3          /* clients, each a process */
#endif
#ifndef CALLS
#define CALLS 1      /* Lock calls of each */
#endif
#ifndef EXTRA
#define EXTRA 0      /* Lock calls of client 0 besides */
#endif
#ifndef LEAVES
#define LEAVES 0     /* callers that leave */
#endif
#ifndef LOSSES
#define LOSSES 0     /* asks of unknown outcome */
#endif
#ifndef LATER
#define LATER 0      /* 1: they may come later than the last leave */
#endif
#ifndef SILENT
#define SILENT 0     /* messages lost without notice */
#endif
#ifndef DOUBTS
#define DOUBTS 0     /* messages that are not believed: late, or a clock was set (rule 3) */
#endif
#ifndef FAILS
#define FAILS 0      /* grants that the store cannot write (rule 4) */
#endif
#ifndef CUTS
#define CUTS 0       /* subscriptions that break; noticed by both ends */
#endif
#ifndef CRASHES
#define CRASHES 0    /* processes that are killed */
#endif
#ifndef DEAD
#define DEAD 0       /* of the N clients, those that were killed while they were enrolled, before all this begins */
#endif
#ifndef STOPPED
#define STOPPED 0    /* 1: these are stopped, or half-open: the store counts them as listeners */
#endif
#ifndef UP
#define UP 0         /* 1: the clients' subscriptions were confirmed before */
#endif
#ifndef MUTE
#define MUTE 0       /* 1: client 0 cannot subscribe: it polls (rule 9) */
#endif
#ifndef COUNTED
#define COUNTED 1    /* PUBLISH tells how many clients it reached */
#endif
#ifndef CAP
#define CAP 3        /* entries that one script looks at (rule 10) */
#endif
#ifndef FIRSTS
#define FIRSTS 0
#endif
#ifndef WHOLES
#define WHOLES 0
#endif
#ifndef STALLS
#define STALLS 0
#endif

#define Q     (2 * N + 1)        /* entries, those of earlier calls included */
#define IDS   (N * (CALLS + EXTRA) + 1)
#define of(x) ((x - 1) % N)      /* whose id it is */
#define id(c) (1 + c + N * call[c])

mtype = { idle, waiting, holding, done, dead };
mtype = { none, sent, yes, no };
mtype = { leave, release };

/* The store. */
byte owner;          /* 0: the record is absent */
bool first;          /* the lease is a first one: not confirmed */
byte queue[Q];       /* ids, first come first */
byte length;
bool polls[IDS];     /* the entry says that its client cannot be told */
bool hears[N];       /* it has the client's subscription */

/* The wire. */
mtype req[N] = none; /* an ask */
bool reqPolls[N];
byte stray;          /* an ask that was given up: its id */
bool strayPolls;
bool msg[IDS];       /* a grant */
bool told[IDS];      /* a message that says: ask */
mtype out[IDS] = none;
bool more[N];        /* a script stopped at its bound: its client sends serve */

/* The clients. */
mtype state[N] = idle;
byte call[N];
byte todo[N];
bool dirty[N];       /* it is to ask */
bool listens[N];     /* its subscription was confirmed */
bool pair[N];        /* it has a pair */
bool owed[IDS];      /* an ask of it has an unknown outcome: its leave is repeated (rule 7) */

byte leaves = LEAVES, losses = LOSSES, silent = SILENT, doubts = DOUBTS, fails = FAILS, cuts = CUTS, crashes = CRASHES;
byte firsts, wholes, stalls;

#define alive(c) (state[c] != dead)
#define waits(c) (state[c] == waiting)
#define mine(x)  (id(of(x)) == x && (waits(of(x)) || state[of(x)] == holding))

#define unknown(x) (msg[x] && !mine(x))

inline unqueue(y) {
	i = 0; j = 0;
	do
	:: i < length && queue[i] == y -> i++
	:: i < length && queue[i] != y -> queue[j] = queue[i]; i++; j++
	:: i == length -> break
	od;
	do
	:: length > j -> length--; queue[length] = 0
	:: length == j -> break
	od;
	i = 0; j = 0
}

inline enrol(x, p) {
	i = 0;
	do
	:: i < length && queue[i] != x -> i++
	:: else -> break
	od;
	if
	:: i == length -> queue[length] = x; length++
	:: else
	fi;
	polls[x] = p;
	i = 0
}

/* Rules 4 and 10: grants to the first entry that can be told. c is the client that runs the script. */
inline serve(c, asker) {
	n = 0;
	do
	:: length == 0 || n == CAP || owner != 0 -> break
	:: length > 0 && n < CAP && owner == 0 ->
		x = queue[0]; unqueue(x); n++;
		if
		:: x == asker -> owner = x; first = false
		:: x != asker ->
			if
			:: fails > 0 -> fails--; told[x] = hears[of(x)]     /* not written: it is told to ask */
#ifdef FAIL_UNTOLD
				; told[x] = false
#endif
			:: polls[x] -> owner = x; first = true;                          /* rule 9: not undone, though it may not be heard */
#ifndef POLLS_UNTOLD
				msg[x] = hears[of(x)]                    /* an earlier ask may have been late: it no longer polls */
#endif
			:: !polls[x] && hears[of(x)] -> owner = x; first = true; msg[x] = true
#ifdef NO_UNDO
			:: !polls[x] && !hears[of(x)] -> owner = x; first = true
#else
			:: !polls[x] && !hears[of(x)] && COUNTED                         /* undone; the next */
			:: !polls[x] && !hears[of(x)] && !COUNTED -> owner = x; first = true
#endif
			fi
		fi
	od;
#ifndef NO_MORE
	if
	:: owner == 0 && length > 0 -> more[c] = true
	:: else
	fi;
#endif
	n = 0; x = 0
}

/* Rule 2. */
inline asks(c, y, p, reply) {
	if
	:: owner == y -> first = false; unqueue(y); reply = yes
	:: owner != 0 && owner != y -> enrol(y, p); reply = no
	:: owner == 0 ->
		enrol(y, p);
		serve(c, y);
		if
		:: owner == y -> first = false; unqueue(y); reply = yes
		:: else -> reply = no
		fi
	fi
}

inline freed(c) {
	owner = 0; first = false;
#ifdef NO_SERVE
	skip
#else
	serve(c, 0)
#endif
}

inline ends(c, how) {
	out[id(c)] = how;
	pair[c] = false; dirty[c] = false;
	todo[c]--;
	state[c] = (todo[c] > 0 -> idle : done);
	call[c] = (todo[c] > 0 -> call[c] + 1 : call[c])
}

inline lost(c) {
	i = 1;
	do
	:: i < IDS -> out[i] = (of(i) == c -> none : out[i]); owed[i] = (of(i) == c -> false : owed[i]); i++
	:: else -> break
	od;
	i = 0
}

inline drain(c) {
	i = 1;
	do
	:: i < IDS -> msg[i] = (of(i) == c -> false : msg[i]); told[i] = (of(i) == c -> false : told[i]); i++
	:: else -> break
	od;
	i = 0
}

proctype client(byte c) {
	byte i, j, n, x, k;
	mtype r = none;
end:	do
	:: atomic { state[c] == idle && todo[c] > 0 && req[c] == none -> state[c] = waiting; dirty[c] = true }

	/* It subscribes while its first request is on its way, and asks once more when that is confirmed. */
	:: atomic { waits(c) && !listens[c] && !hears[c] && !(MUTE && c == 0) -> hears[c] = true }
	:: atomic { alive(c) && hears[c] && !listens[c] -> listens[c] = true;
#ifndef NO_SECOND_TRY
		dirty[c] = waits(c)
#endif
		}

	/* Rule 2: ask is enrol. Rule 9: one that cannot be told says so. */
	:: atomic { waits(c) && dirty[c] && req[c] == none -> req[c] = sent; reqPolls[c] = !listens[c]; dirty[c] = false }
	:: atomic { req[c] == sent -> asks(c, id(c), reqPolls[c], req[c]) }
	:: atomic { alive(c) && req[c] == no -> req[c] = none; pair[c] = waits(c);
#ifdef BUSY
		dirty[c] = waits(c)
#endif
		}
	:: atomic { alive(c) && req[c] == yes ->
		req[c] = none;
		if
		:: waits(c) -> state[c] = holding; assert(owner == id(c))
		:: else                                   /* it holds by the message, or its leave is on its way */
		fi }
	/* Of unknown outcome: it asks again, and what the lost one may yet do is taken back. */
	:: atomic { losses > 0 && stray == 0 && waits(c) && (req[c] == sent || req[c] == yes || req[c] == no) ->
		losses--; dirty[c] = true;
		if
		:: req[c] == sent -> stray = id(c); strayPolls = reqPolls[c]
		:: true
		fi;
#ifndef LEAVE_ONCE
		owed[id(c)] = true;
#endif
		req[c] = none }
	:: atomic { stray != 0 && of(stray) == c ->
		k = stray;
		asks(c, k, strayPolls, r);
		stray = 0; strayPolls = false; r = none; k = 0 }

	/* Rule 3: the message is the grant. One that comes before the first reply waits for it. */
	:: atomic { listens[c] && waits(c) && msg[id(c)] && pair[c] ->
		msg[id(c)] = false; state[c] = holding; assert(owner == id(c)) }
#ifdef NOT_KEPT
	:: atomic { listens[c] && waits(c) && msg[id(c)] && !pair[c] -> msg[id(c)] = false }
#endif
	:: atomic { doubts > 0 && listens[c] && waits(c) && msg[id(c)] && pair[c] ->
		doubts--; msg[id(c)] = false;
#ifndef DOUBT_SILENT
		dirty[c] = true
#endif
		}
	:: atomic { listens[c] && told[id(c)] -> told[id(c)] = false; dirty[c] = waits(c) }
	/* Rule 8: a grant of an id that neither waits nor is held is left. */
	:: atomic { listens[c] && state[c] == holding && msg[id(c)] -> msg[id(c)] = false }
	:: atomic { listens[c] && (unknown(1 + c) || CALLS + EXTRA > 1 && unknown(1 + c + N)) ->
		k = (unknown(1 + c) -> 1 + c : 1 + c + N);
		msg[k] = false;
#ifndef KEEPS_UNKNOWN
		out[k] = leave;
#endif
		k = 0 }
	:: atomic { silent > 0 && listens[c] && msg[id(c)] -> silent--; msg[id(c)] = false }

	/* Rule 6. */
	:: atomic { state[c] == holding && owner == id(c) && first -> first = false }

	/* Rules 4, 7, 12: a release, a leave. */
	:: atomic { state[c] == holding && req[c] == none -> ends(c, release) }
	:: atomic { leaves > 0 && waits(c) && (req[c] != sent || stray == 0) ->
		leaves--;
		if
		:: req[c] == sent -> stray = id(c); strayPolls = reqPolls[c];
#ifndef LEAVE_ONCE
			owed[id(c)] = true
#endif
		:: else
		fi;
		req[c] = none;
		ends(c, leave) }
	:: atomic { alive(c) && (more[c]) -> more[c] = false;
		if
		:: owner == 0 -> serve(c, 0)
		:: else
		fi }
	:: atomic { alive(c) && cuts > 0 && listens[c] && hears[c] -> cuts--; hears[c] = false; listens[c] = false; drain(c) }
	:: atomic { alive(c) && crashes > 0 && state[c] != done ->
		crashes--; state[c] = dead; hears[c] = false; listens[c] = false; dirty[c] = false; pair[c] = false; more[c] = false;
		if
		:: req[c] != sent -> req[c] = none
		:: else
		fi;
		if
		:: true
		:: lost(c)                                /* what it was to repeat is lost */
		fi;
		drain(c) }
	od
}

/* A release and a leave are repeated until they are answered. */
proctype repeats(byte y) {
	byte i, j, n, x;
	bool asked;          /* it is a leave */
end:	do
	:: atomic { out[y] != none ->
		asked = out[y] == leave;
		if
		:: asked -> unqueue(y)
		:: else
		fi;
		out[y] = none;
		if
#ifdef LEAVE_ENTRY
		:: owner == y && asked                    /* out of the queue, and not out of the record */
#else
		:: owner == y && asked -> freed(of(y))
#endif
		:: owner == y && !asked -> freed(of(y))
		:: owner != y
		fi;
		asked = false }
	/* Rule 7: and once more, when an ask of it had an unknown outcome (1 s and 3 s later). */
	:: atomic { owed[y] && !mine(y) && (LATER || stray != y) && out[y] == none -> owed[y] = false; out[y] = leave }
	od
}

/* What only time brings. */
active proctype time() {
	byte i;
	bool waiter, poller, lateAsk;
end:	do
	:: atomic { timeout ->
		do
		:: i < N ->
			waiter = waiter || waits(i);
			poller = poller || waits(i) && !listens[i] && owner == id(i);
			lateAsk = lateAsk || waits(i) && owner == id(i);
			i++
		:: else -> break
		od;
		if
		:: poller                                                        /* 20 ms: it asks */
		:: !poller && owner != 0 && first -> firsts++; assert(firsts <= FIRSTS); owner = 0; first = false
		:: !poller && owner != 0 && !first && lateAsk -> stalls++; assert(stalls <= STALLS)  /* a late ask was granted: it asks */
		:: !poller && owner != 0 && !first && !lateAsk -> wholes++; assert(wholes <= WHOLES); owner = 0
		:: !poller && owner == 0 && waiter -> stalls++; assert(stalls <= STALLS)
		:: !poller && owner == 0 && !waiter -> break
		fi;
		i = 0;
		do
		:: i < N -> dirty[i] = waits(i); i++
		:: else -> break
		od;
		i = 0; waiter = false; poller = false; lateAsk = false }
	od;
	i = 0;
	do
	:: i < N -> assert(state[i] == done || state[i] == dead); i++
	:: else -> break
	od
}

init {
	byte i;
	atomic {
		do
		:: i < N - DEAD -> todo[i] = CALLS + (i == 0 -> EXTRA : 0);
			listens[i] = UP; hears[i] = UP; run client(i); i++
		:: i >= N - DEAD && i < N ->
			state[i] = dead; hears[i] = STOPPED; queue[length] = id(i); length++; i++
		:: else -> break
		od;
		i = 1;
		do
		:: i < IDS -> run repeats(i); i++
		:: else -> break
		od;
		i = 0
	}
}
