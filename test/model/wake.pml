/*
 * Waiting: nobody sleeps on while the lock is free.
 *
 * Follows wait.go (stand, leave) and queue.go (events, remove, wake, stir, syncWatch) statement by
 * statement, acquire.go (request: settle, orphan), release.go (vacate), and the session's subscription: a release is
 * told to those who are subscribed at that moment, and Watching after each (re)connect.
 * events != seen is one bit here, dirty.
 *
 * Left out: time. The head's timer, retryAt, fires only where nothing else can happen, and is counted: it
 * must not be needed unless a message was lost or a holder died. So whoever sleeps for ever shows as a
 * timer that had to fire.
 */

#ifndef W0
#define W0 2         /* goroutines of client 0 that call Lock once */
#endif
#ifndef W1
#define W1 1
#endif
#ifndef LEAVES
#define LEAVES 1     /* callers that give up */
#endif
#ifndef CUTS
#define CUTS 0       /* connections that break; it is noticed */
#endif
#ifndef LOSSES
#define LOSSES 0     /* messages lost without notice */
#endif
#ifndef REPEATS
#define REPEATS 0    /* messages that come twice */
#endif
#ifndef CRASHES
#define CRASHES 0    /* processes that die */
#endif
#ifndef STALLS
#define STALLS 0     /* how often a timer may be what sets things going */
#endif

#define C 2
#define G (W0 + W1)
#define NOBODY 15
#define clientOf(g) (g < W0 -> 0 : 1)

/* The store. Owners are numbered as goroutines: each locks once. */
byte owner = NOBODY;
bool subscribed[C];
byte inbox[C];           /* messages on their way */

/* A client, under its mutex. */
byte line[C * 4];        /* its waiters, the head first; goroutine + 1 */
byte length[C];
byte holder[C] = NOBODY;
bool dirty[C] = true;
bool refused[C];
bool watched[C];         /* the session was told to Watch */
bool fresh[C];           /* ... and owes a Watching */
bool retry[C];           /* retryAt is set */
bool ready[G];           /* w.ready */
bool waits[G];           /* stands in line */
bool dead[C];

byte leaves = LEAVES, cuts = CUTS, losses = LOSSES, repeats = REPEATS, crashes = CRASHES, stalls = 0;

#define head(c) line[c * 4]
#define isHead(g, c) (head(c) == g + 1)

inline wake(c) {
	if
	:: length[c] > 0 && holder[c] == NOBODY -> ready[head(c) - 1] = true
	:: else
	fi
}

inline stir(c) { dirty[c] = true; wake(c) }

inline push(g, c) { line[c * 4 + length[c]] = g + 1; length[c]++; waits[g] = true }

/* leave: remove, tidy, syncWatch */
inline leave(g, c) {
	wasHead = isHead(g, c);
	i = 0;
	do
	:: line[c * 4 + i] != g + 1 -> i++
	:: else -> break
	od;
	length[c]--;
	do
	:: i < length[c] -> line[c * 4 + i] = line[c * 4 + i + 1]; i++
	:: else -> break
	od;
	line[c * 4 + length[c]] = 0; i = 0;
	waits[g] = false; ready[g] = false;
#ifndef HEAD_TELLS_NOBODY
	if
	:: wasHead -> wake(c)
	:: else
	fi;
#endif
	wasHead = false;
	if
	:: length[c] == 0 -> refused[c] = false; dirty[c] = true; retry[c] = false
	:: else
	fi;
	sync(c)
}

inline sync(c) {
	if
	:: length[c] > 0 && refused[c] && !watched[c] -> watched[c] = true; fresh[c] = true
	:: !(length[c] > 0 && refused[c]) && watched[c] -> watched[c] = false; fresh[c] = false
	:: else
	fi
}

/* release.lua: all who are subscribed are told */
inline publish() {
	owner = NOBODY;
	if
	:: subscribed[0] && inbox[0] < 3 -> inbox[0]++
	:: else
	fi;
	if
	:: subscribed[1] && inbox[1] < 3 -> inbox[1]++
	:: else
	fi
}

/* A goroutine that calls Lock, works, and calls Unlock. */
proctype caller(byte g, c) {
	byte i, before;
	bool wasHead, got;
end:	atomic { push(g, c) };
loop:
	atomic {
		if
		:: !dead[c] && isHead(g, c) && holder[c] == NOBODY && dirty[c] ->
			dirty[c] = false; before = retry[c]; retry[c] = false;
			goto ask
		:: else
		fi };
end1:	atomic {                                                 /* it sleeps */
		if
		:: dead[c] -> goto done
		:: !dead[c] && ready[g] -> ready[g] = false; goto loop
		:: !dead[c] && leaves > 0 -> leaves--; goto left
		fi };
ask:
	/* acquire.lua, and settle */
end2:	atomic {
		if
		:: owner == NOBODY -> owner = g; got = true
		:: owner != NOBODY -> got = false
		:: !dead[c] && leaves > 0 -> leaves--;
			goto gone
		fi };
end3:	atomic {
		if
		:: dead[c] -> goto done
		:: !dead[c] && got -> holder[c] = g
		:: !dead[c] && !got -> goto no
		:: !dead[c] && got && leaves > 0 -> leaves--; dirty[c] = true; leave(g, c); goto back
		fi };
end4:	atomic {
		if
		:: dead[c] -> goto done
		:: !dead[c] && holder[c] != NOBODY -> skip        /* who wakes the next */
		:: !dead[c] && holder[c] == NOBODY && (!refused[c] || !before) -> dirty[c] = true
		:: !dead[c] && holder[c] == NOBODY && refused[c] && before -> retry[c] = true
		fi;
		leave(g, c) };
	/* Unlock */
end5:	atomic {
		if
		:: dead[c] -> goto done
		:: !dead[c] -> publish()
		fi };
end6:	atomic {                                                 /* vacate */
		if
		:: dead[c] -> goto done
		:: else ->
			holder[c] = NOBODY; stir(c);
			if
			:: length[c] == 0 -> refused[c] = false; retry[c] = false
			:: else
			fi
		fi };
	goto done;
no:
	atomic { refused[c] = true; retry[c] = true; sync(c) };
	goto loop;
gone:	/* the caller left before the reply: who finds it gives back what was got */
	atomic {
#ifndef HEAD_FORGETS
		dirty[c] = true;
#endif
		leave(g, c) };
end7:	atomic {
		if
		:: owner == NOBODY -> owner = g
		:: owner != NOBODY -> goto done
		fi };
back:
end8:	atomic {
		if
		:: dead[c] -> goto done
		:: else
#ifdef NOT_GIVEN_BACK
			-> goto done
#else
			-> publish()
#endif
		fi };
end9:	atomic { stir(c) };                                      /* Released */
	goto done;
left:
	atomic { leave(g, c) };
done:
	skip
}

/* The session's subscription. */
proctype session(byte c) {
end:	do
	:: atomic { !dead[c] && watched[c] && !subscribed[c] -> subscribed[c] = true; fresh[c] = true }
	:: atomic { !dead[c] && watched[c] && subscribed[c] && fresh[c] -> fresh[c] = false;
#ifndef NO_SECOND_TRY
		stir(c)
#endif
		}
	:: atomic { !dead[c] && !watched[c] && subscribed[c] -> subscribed[c] = false; inbox[c] = 0 }
	:: atomic { !dead[c] && inbox[c] > 0 -> inbox[c]--; stir(c) }
	:: atomic { repeats > 0 && inbox[c] > 0 && inbox[c] < 3 -> repeats--; inbox[c]++ }
	:: atomic { losses > 0 && inbox[c] > 0 -> losses--; inbox[c]-- }
	:: atomic { cuts > 0 && subscribed[c] -> cuts--; subscribed[c] = false; inbox[c] = 0 }
	:: atomic { crashes > 0 && !dead[c] -> crashes--; dead[c] = true; subscribed[c] = false; inbox[c] = 0 }
	od
}

active proctype timers() {
	byte g;
	bool somebody;
end:	do
	:: atomic { timeout ->
		do
		:: g < G ->
			if
			:: waits[g] && !dead[clientOf(g)] -> somebody = true
			:: else
			fi;
			g++
		:: else -> break
		od;
		g = 0;
		if
		:: !somebody -> break
		:: else
		fi;
		stalls++; assert(stalls <= STALLS);
		somebody = false;
		if
		:: owner != NOBODY && dead[clientOf(owner)] -> owner = NOBODY  /* its lease ends */
		:: else
		fi;
#ifndef NO_RETRY
		if
		:: retry[0] && !dead[0] -> retry[0] = false; stir(0)
		:: else
		fi;
		if
		:: retry[1] && !dead[1] -> retry[1] = false; stir(1)
		:: else
		fi
#endif
		}
	od
}

init {
	byte g;
	atomic {
		run session(0); run session(1);
		do
		:: g < G -> run caller(g, clientOf(g)); g++
		:: else -> break
		od
	}
}
