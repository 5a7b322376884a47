/*
 * A release grants, exclusion: enrol, grant, confirm, leave, and what a client may believe.
 *
 * Follows the rules of decision 123, whose numbers stand beside the transitions. A refused ask enrols its owner in the
 * queue of the store. Whatever leaves the record free writes the next owner into it, with a first lease, and publishes a
 * message with the owner and the server's time. The client that reads the message believes that it holds, until a
 * deadline that it computes from times of its own and the server's. A confirm makes a whole lease of the first one.
 *
 * ONE client is modelled in full. All other clients, however many, are OTHERS: they take a free record, are granted it, and
 * release it, leave it, or let it expire, at any time. What is shown is that the record has the client's owner for as
 * long as the client believes. This holds for each client, and the record has one owner: so one client at most believes.
 *
 * Time is unbounded: ticks come at any time, and ages stop to count where they make no difference. The client's clock misses at most
 * one of RATE ticks in a row. The client may stand still at any point, since nothing makes it go on; so a pause, and a client
 * that died, need no step of their own. A request that its sender gave up, a release, a leave and a message arrive
 * at any later time, or never, in any order: late, lost and reordered are one thing here.
 *
 * Left out: what a wait costs, and whether it ends (granted.pml); tokens; local handoffs (handoff.pml); sides and permits, whose
 * entries are granted one by one; that a server whose clock is set forward ends all leases early, as it does today.
 */

#ifndef CALLS
#define CALLS 2      /* Lock calls of the client, one after the other; three at most */
#endif
#ifndef FIRST
#define FIRST 3      /* the lease of a grant (rule 5) */
#endif
#ifndef SPARE
#define SPARE 0      /* ... and how much longer the record lasts */
#endif
#ifndef WHOLE
#define WHOLE 4      /* ... of an ask or a confirm */
#endif
#ifndef RATE
#define RATE 4       /* the client's clock misses at most one of so many ticks */
#endif
#ifndef PAIR
#define PAIR 4       /* a pair that is older is dropped (rule 3) */
#endif
#ifndef TRAVEL
#define TRAVEL 2     /* a request that is older is given up */
#endif
#ifndef LATE
#define LATE 0       /* requests that are given up; they arrive later, or never */
#endif
#ifndef TWICE
#define TWICE 0      /* messages that come again */
#endif
#ifndef FAILS
#define FAILS 0      /* writes of a grant that the store refuses: no memory, no permission */
#endif
#ifndef UNHEARD
#define UNHEARD 0    /* grants that are undone, since their message had no listener */
#endif
#ifndef SETS
#define SETS 0       /* how often the server's clock is set, by JUMP ticks; once at most */
#endif
#ifndef JUMP
#define JUMP 50
#endif
#ifndef FORGES
#define FORGES 0     /* messages that an intruder publishes, who may not run scripts */
#endif

#define N      (CALLS + 2)   /* ids count from 1 */
#define OTHERS 100
#define NOMSG  100
#if SETS && JUMP > 0 && JUMP <= PAIR
#define OLD    (FIRST + JUMP)
#else
#define OLD    FIRST         /* the age from which no message is believed */
#endif

mtype = { idle, waiting, holding, over };
mtype = { none, ask, confirm };
mtype = { sent, yes, no };           /* no: of an ask, it was refused and enrolled */
mtype = { leave, release };

/* The store. */
byte owner;          /* in the record; 0: the record is absent */
byte ttl;            /* ... if it is the client's */
bool entry[N];       /* in the queue; the entries of OTHERS stand anywhere between */
bool set;            /* its clock has been set */

/* The wire. */
mtype req = none, phase = sent;      /* the client's request, one at a time */
byte reqSent;        /* its age by the client's clock ... */
byte reqServer;      /* ... and the age of its reply by the server's */
bool reqOld;         /* the reply is from before the clock was set */
mtype stray = none;  /* a request that was given up */
byte strayId;
byte msg[N] = NOMSG; /* the age of a message; OLD stands for all ages from there */
bool msgNew[N];      /* granted after the clock was set */
bool msgForged[N];
mtype out[N] = none; /* a leave or a release, repeated until it is answered */

/* The client. */
mtype state = idle;
byte call = 1, id = 1;
bool pair;           /* rule 2: what a refusal told */
byte pairSent;       /* since its request was sent, by the client's clock */
byte pairServer;     /* since its server's time, by the server's clock */
bool pairOld;
byte left;           /* until the deadline, by the client's clock */
byte slow;           /* ticks until its clock may miss one again */
bool fooled;         /* it believes a forged message */
byte alone;          /* ticks that it believed one and did not hold */
bool shown[N];       /* a message had this id: who listens to the channel knows it */

byte late = LATE, twice = TWICE, fails = FAILS, unheard = UNHEARD, sets = SETS, forges = FORGES;

#define believes (state == holding && left > 0)
#define mine(x)  (x == id && (state == waiting || state == holding))
#define least(a, b) ((a) < (b) -> (a) : (b))

/* Rule 3. The margin is of all the time that a deadline spans. */
#ifdef NO_MARGIN
#define margin(t) 0
#else
#define margin(t) (((t) + RATE - 1) / RATE)
#endif
#define whole (WHOLE - margin(WHOLE) - reqSent)      /* of an ask or a confirm: from before it was sent */

/* Rule 3. The time of the grant less the server's time of the pair: how long it waited, if no clock was set. */
#define waited (pairServer - msg[id] + (pairOld && msgNew[id] -> JUMP : 0))
#ifdef NO_JUMP_CHECK
#define credible true
#else
#define credible (msgForged[id] || waited <= pairSent)      /* an intruder writes a time that is credible */
#endif
#ifdef CONFIRM_LATE
#define LEASE WHOLE
#else
#define LEASE FIRST
#endif
#ifdef MARGIN_OF_LEASE
#define fromPair (waited + LEASE - margin(LEASE) - pairSent)
#else
#define fromPair (waited + LEASE - margin(waited + LEASE) - pairSent)
#endif
#define fromReceipt (LEASE - margin(LEASE))
#ifdef FROM_RECEIPT
#define deadline fromReceipt
#else
#ifdef NO_RECEIPT
#define deadline fromPair
#else
#define deadline (msgForged[id] -> fromReceipt : least(fromPair, fromReceipt))
#endif
#endif

/* Of an id that is not used again no age makes a difference. */
#define old(x) (x < id -> OLD : 0)

/* Rule 4. */
inline publish(x) {
	if
	:: msg[x] = old(x); msgNew[x] = set; msgForged[x] = false
	:: msg[x] != NOMSG                           /* the older message comes, and not this one */
	fi;
	shown[x] = true
}

inline grant() {
	entry[g] = false;
	if
	:: owner = g; ttl = FIRST + SPARE; publish(g); break /* write, then publish (rules 4, 5) */
	:: unheard > 0 -> unheard--                  /* no listener: undone, and the next is served */
#ifdef UNDO_HEARD
	:: publish(g)                                /* ... though it was heard, as counts cannot be trusted */
#endif
	:: fails > 0 -> fails--;                     /* not written: its client is told to ask, the next is served */
#ifdef PUBLISH_FIRST
		publish(g)
#endif
	fi
}

/* Rules 4, 10, 12: what leaves the record free grants it to an entry: of this client, of another, or there is none. */
inline serve() {
	owner = 0; ttl = 0;
	do
	:: owner = OTHERS; break
	:: break
	:: entry[1] -> g = 1; grant()
#if CALLS > 1
	:: entry[2] -> g = 2; grant()
#endif
#if CALLS > 2
	:: entry[3] -> g = 3; grant()
#endif
	od;
	g = 0
}

#define extend() ttl = (ttl > WHOLE -> ttl : WHOLE)

/* Rule 2: ask is enrol. */
inline asks(x, reply) {
	if
	:: owner == x -> extend(); entry[x] = false; reply = yes     /* a repeated acquisition */
	:: owner != x && owner != 0 -> entry[x] = true; reply = no
	:: owner == 0 ->
		entry[x] = false;
		serve();                                                     /* entries before it */
		if
		:: owner == 0 -> owner = x; ttl = WHOLE; reply = yes
		:: else -> entry[x] = true; reply = no
		fi
	fi
}

/* Rule 6: a confirm is a renewal. */
inline confirms(x, reply) {
	if
	:: owner == x -> extend(); reply = yes
	:: else -> reply = no
	fi
}

/* Rule 7: a leave takes the owner out of the queue, and out of the record. A release is for the record alone. */
inline leaves(x) {
	if
	:: out[x] == leave -> entry[x] = false
	:: else
	fi;
	out[x] = none;
	if
	:: owner == x -> serve()
	:: else
	fi
}

active proctype store() {
	byte g;
	mtype r = sent;
end:	do
	:: atomic { req == ask && phase == sent -> asks(id, phase); reqOld = !set }
	:: atomic { req == confirm && phase == sent -> confirms(id, phase) }
	:: atomic { stray == ask ->
		asks(strayId, r);
		if
		:: r == yes && !mine(strayId) -> out[strayId] = leave        /* the reply finds no caller */
		:: true                                                      /* it is lost, or refuses, or the owner is known */
		fi;
		stray = none; strayId = 0; r = sent }
	:: atomic { stray == confirm -> confirms(strayId, r); stray = none; strayId = 0; r = sent }
	:: atomic { out[1] != none -> leaves(1) }
#if CALLS > 1
	:: atomic { out[2] != none -> leaves(2) }
#endif
#if CALLS > 2
	:: atomic { out[3] != none -> leaves(3) }
#endif
	/* The other clients. */
	:: atomic { owner == OTHERS -> serve() }
	:: atomic { owner == 0 -> owner = OTHERS }
	od
}

inline answered() {
	req = none; phase = sent; reqSent = 0; reqServer = 0; reqOld = false
}

/* A request that is on its way when its caller stops to look may be late; a reply is dropped. */
#define drops (req == none || phase != sent || late > 0 && stray == none)
inline drop() {
	if
	:: req != none && phase == sent -> late--; stray = req; strayId = id
	:: else
	fi;
	answered()
}

/* Rule 1: one id, one wait. */
#ifdef ANSWERED
#define begins (out[id] == none && stray == none)
#else
#define begins true
#endif
inline used() {
	msg[id] = (msg[id] < OLD -> OLD : msg[id]);
	id++
}
inline ends(how) {
	drop();
	out[id] = how;
	pair = false; pairSent = 0; pairServer = 0; pairOld = false; left = 0; fooled = false; alone = 0;
	slow = 0;
	call++;
	state = (call > CALLS -> over : idle);
#ifndef REUSED_ID
#ifdef REENROL_KEEPS_ID
	if
	:: how == release -> used()
	:: else
	fi
#else
	used()
#endif
#endif
}

inline read(x) {
	if
	:: msg[x] = NOMSG; msgNew[x] = false; msgForged[x] = false
	:: twice > 0 && msg[x] != NOMSG -> twice--
	fi
}

inline holds() {
	state = holding;
	left = (t > left -> t : left);
	t = 0
}

active proctype client() {
	short t;
end:	do
	:: atomic { state == idle && begins -> state = waiting }

	/* Rule 2: it asks first, after a second (a recheck), when told to, when it did not believe a message. */
	:: atomic { state == waiting && req == none -> req = ask }
	:: atomic { req == ask && phase == no ->
		if
		:: state == waiting ->
#ifdef PAIR_OF_TWO
			if
			:: !pair -> pairServer = reqServer; pairOld = reqOld
			:: else
			fi;
			pairSent = reqSent;
#else
			pairSent = reqSent; pairServer = reqServer; pairOld = reqOld;
#endif
			pair = true
		:: else
		fi;
		answered() }
	:: atomic { req == ask && phase == yes ->
		if
		:: (state == waiting || believes) && whole > 0 -> t = whole; holds()
		:: else
		fi;
		answered() }
	:: atomic { req != none && drops && late > 0 ->              /* given up */
		if
		:: phase != sent -> late--
		:: else
		fi;
		drop() }

	/* Rule 3: the message is the grant. One that comes before the reply waits for it. */
	:: atomic { state == waiting && msg[id] != NOMSG && pair && (req != confirm) ->
		if
#ifdef CONFIRM_FIRST
		:: req == none -> req = confirm      /* rule 6: before Lock returns */
		:: req != none
#else
		:: credible && deadline > 0 -> t = deadline; holds(); fooled = msgForged[id]
		:: else                              /* late, or not credible: it asks */
#endif
		fi;
		read(id) }

	/* Rule 8: a leave is the answer to a grant only if its id neither waits nor is held. */
	:: atomic { state == holding && msg[id] != NOMSG ->
#ifdef LEAVE_HELD
		out[id] = leave;
#endif
		read(id) }
	:: atomic { msg[1] != NOMSG && !mine(1) -> out[1] = leave; read(1) }
#if CALLS > 1
	:: atomic { msg[2] != NOMSG && !mine(2) -> out[2] = leave; read(2) }
#endif
#if CALLS > 2
	:: atomic { msg[3] != NOMSG && !mine(3) -> out[3] = leave; read(3) }
#endif

	/* Rule 6. */
	:: atomic { believes && req == none -> req = confirm }
	:: atomic { req == confirm && phase == yes ->
		if
		:: (state == waiting || believes) && whole > 0 -> t = whole; holds()
		:: else                              /* it comes too late */
		fi;
		answered() }
	:: atomic { req == confirm && phase == no ->
		if
		:: state == holding -> left = 0      /* lost */
		:: else                              /* it asks */
		fi;
		answered() }

	/* Rule 7, and Unlock, of a lost lock, too. */
	:: atomic { state == waiting && drops -> ends(leave) }
	:: atomic { state == holding && drops -> ends(release) }
	od
}

/* A tick. */
active proctype clocks() {
	byte x;
end:	do
	:: atomic { (req == none || reqSent < TRAVEL) ->
		if
		:: slow == 0 && (state == waiting || state == holding) -> slow = RATE - 1    /* the client's clock misses it */
		:: true ->
			slow = (slow > 0 -> slow - 1 : 0);
			left = (left > 0 -> left - 1 : 0);
			reqSent = (req != none -> reqSent + 1 : 0);
			pairSent = (pair -> pairSent + 1 : 0)
		fi;
		reqServer = (req != none && phase != sent -> reqServer + 1 : 0);
		pairServer = (pair -> pairServer + 1 : 0);
		if
		:: pairSent > PAIR -> pair = false; pairSent = 0; pairServer = 0; pairOld = false
		:: else
		fi;
		x = 1;
		do
		:: x < N && msg[x] < OLD -> msg[x]++; x++
		:: x < N && msg[x] >= OLD -> x++
		:: x == N -> break
		od;
		x = 0;
		if
		:: owner != 0 && owner != OTHERS ->
			ttl--;
			owner = (ttl == 0 -> 0 : owner)      /* an ask sees it, and serves */
		:: else
		fi;
		if
		:: fooled && believes && owner != id -> alone++; assert(alone < FIRST)
		:: else
		fi }
	:: atomic { sets > 0 -> sets--; set = true }
	od
}

/* An intruder forges a grant for an id that it knows. Nobody but its client knows an id that waits, or is to come (rule 1). */
#define drawn(x) (x < id || mine(x))
#ifdef READS                                 /* it reads the queue */
#define known(x) drawn(x)
#else
#ifdef LISTENS                               /* it listens to the client's channel */
#define known(x) (drawn(x) && (shown[x] || !(x == id && state == waiting)))
#else
#define known(x) (drawn(x) && !(x == id && state == waiting))
#endif
#endif
inline forge(x) {
	forges--; msg[x] = 0; msgNew[x] = set; msgForged[x] = true
}
active proctype intruder() {
end:	do
	:: atomic { forges > 0 && known(1) -> forge(1) }
#if CALLS > 1
	:: atomic { forges > 0 && known(2) -> forge(2) }
#endif
	od
}

/* What believes, holds. An intruder that reads the queue has a belief for less than a first lease. */
active proctype exclusion() {
end:	do
#ifdef READS
	:: atomic { believes && owner != id && !fooled -> assert(false) }
#else
	:: atomic { believes && owner != id -> assert(false) }
#endif
	od
}
