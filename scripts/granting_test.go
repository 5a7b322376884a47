package scripts_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/scripts"
)

const (
	queueOfN = "mortise:1:next:{n}2"
	asksOfN  = queueOfN + ":asks"
	roundOfN = queueOfN + ":round"
	waiting  = "ntag:+:host/1/x:1" // its subscribers cannot be counted
)

// queues puts an entry into the queue of n, whose owner asks for a token.
func queues(t *testing.T, srv *redistest.Server, entry string) {
	t.Helper()
	call(t, srv, "ZADD", queueOfN, "1", entry)
	call(t, srv, "HSET", asksOfN, entry, "60000:1")
}

// releases releases n, which h:1 holds.
func releases(t *testing.T, srv *redistest.Server) {
	t.Helper()
	call(t, srv, "HSET", "n", "h:1", "1")
	reply := call(t, srv, "EVAL", scripts.ReleaseSource, "2", "n", "redisson_lock__channel:{n}", "h:1", "0", "publish")
	check.FatalIf(t, reply != int64(1), "the release: %v", reply)
}

// A counter that is made by a user who may not set it would start below the tokens of before.
func TestAGrantWhoseCounterCannotBeSetDrawsNoToken(t *testing.T) {
	srv := redistest.Start(t)
	queues(t, srv, waiting)
	call(t, srv, "ACL", "SETUSER", "default", "-set")
	releases(t, srv)
	n := call(t, srv, "EXISTS", "redisson_lock_token:{n}")
	check.ErrorIf(t, n != int64(0), "the counter is there")
	check.Equal(t, "the record has %v", fmt.Sprint(call(t, srv, "HKEYS", "n")), "[mortise:reserved:"+waiting+"]")
	call(t, srv, "ACL", "SETUSER", "default", "+set")
	call(t, srv, "DEL", "n")
	queues(t, srv, waiting)
	releases(t, srv)
	n = call(t, srv, "EXISTS", "redisson_lock_token:{n}")
	check.ErrorIf(t, n != int64(1), "the counter is not there")
	check.Equal(t, "the record has %v", fmt.Sprint(call(t, srv, "HKEYS", "n")), "[host/1/x:1]")
}

// A client that asks for another owner has the lock that was reserved for the one before, as one that was granted.
func TestAnOwnerTakesWhatIsReservedForTheOneBefore(t *testing.T) {
	srv := redistest.Start(t)
	queues(t, srv, waiting)
	call(t, srv, "ZADD", queueOfN, "2", "nother:+:host/2/x:1")
	call(t, srv, "ACL", "SETUSER", "default", "-set")
	releases(t, srv)
	call(t, srv, "ACL", "SETUSER", "default", "+set")
	reply := call(t, srv, "EVAL", scripts.EnrolSource, "4", "n", queueOfN, "redisson_lock_token:{n}",
		"redisson_lock__channel:{n}", "host/1/x:2", "60000", "0", "0", "ntag:+:host/1/x:2", "600000", "0", "0", "1", waiting)
	check.Equal(t, "the reply begins with %v", reply.([]any)[0], any(int64(1)))
	check.Equal(t, "the record has %v", fmt.Sprint(call(t, srv, "HKEYS", "n")), "[host/1/x:2]")
}

// Without PUBSUB NUMSUB, PUBLISH alone says whether a client listens: dead ones are passed over as ever.
func TestDeadOwnersAreGrantedNothingWhereSubscribersAreNotCounted(t *testing.T) {
	srv := redistest.Start(t)
	for i := range 5 {
		queues(t, srv, fmt.Sprintf("pdead%d:+:host/1/x:%d", i, i))
	}
	call(t, srv, "ACL", "SETUSER", "default", "-pubsub|numsub")
	releases(t, srv)
	check.Equal(t, "the record has %v", fmt.Sprint(call(t, srv, "HKEYS", "n")), "[]")
	check.Equal(t, "%v entries are left", call(t, srv, "ZCARD", queueOfN), any(int64(0)))
}

// queuesDead puts entries of clients that do not listen into the queue of n.
func queuesDead(t *testing.T, srv *redistest.Server, entries int) {
	t.Helper()
	zadd, hset := []string{"ZADD", queueOfN}, []string{"HSET", asksOfN}
	for i := range entries {
		entry := fmt.Sprintf("pdead%d:+:host/1/x:%d", i, i)
		zadd, hset = append(zadd, fmt.Sprint(i), entry), append(hset, entry, "60000:1")
	}
	call(t, srv, zadd...)
	call(t, srv, hset...)
}

// A client behind any number of dead ones, up to 3,000, has the lock when the release is over. Without one the lock is
// free; and a free lock behind which only dead ones wait is granted to whoever asks.
func TestAReleaseSkipsManyDeadOwners(t *testing.T) {
	for _, dead := range []int{1, 2, 99, 100, 101, 255, 256, 600, 3000} {
		srv := redistest.Start(t)
		conn := check.Value(net.Dial("tcp", srv.Addr())).In(t)
		check.Value(fmt.Fprint(conn, "SUBSCRIBE redisson_lock__channel:{n}:to:live\r\n")).In(t)
		check.Value(conn.Read(make([]byte, 1))).In(t)
		queuesDead(t, srv, dead)
		call(t, srv, "ZADD", queueOfN, fmt.Sprint(dead), "plive:-:host/2/x:1")
		releases(t, srv)
		check.Equal(t, "the record has %v", fmt.Sprint(call(t, srv, "HKEYS", "n")), "[host/2/x:1]")
		queuesDead(t, srv, dead)
		call(t, srv, "DEL", "n")
		releases(t, srv)
		left := call(t, srv, "EXISTS", "n", queueOfN, asksOfN)
		check.ErrorIf(t, left != int64(0), "behind %d dead entries alone %v keys are left", dead, left)
		queuesDead(t, srv, dead)
		call(t, srv, evalOf(t, "acquire", "owner=host/3/x:1")...)
		check.Equal(t, "a free lock's record has %v", fmt.Sprint(call(t, srv, "HKEYS", "n")), "[host/3/x:1]")
		check.NoError(t, conn.Close())
	}
}

// A script removes 3,000 dead entries, and looks at 8 more. If all their clients are dead, the lock is reserved for the
// last one, unchecked: its end has a client ask, and the queue is served on.
func TestAReleaseBehindTooManyDeadOwnersKeepsTheQueueGoing(t *testing.T) {
	srv := redistest.Start(t)
	queuesDead(t, srv, 3500)
	releases(t, srv)
	left := call(t, srv, "PTTL", "n").(int64)
	check.ErrorIf(t, left <= 0 || left > 1000, "the record ends in %d ms", left)
	const told = 64 // see tell_first
	check.Equal(t, "%v entries are left", call(t, srv, "ZCARD", queueOfN), any(int64(3500-3000-8-told)))
}

// An entry of a client that polls is not dead.
func TestAReleaseServesWhoPollsBehindTheDead(t *testing.T) {
	srv := redistest.Start(t)
	queuesDead(t, srv, 150)
	call(t, srv, "HSET", roundOfN, "polls:pdead120:+:host/1/x:120", "10")
	releases(t, srv)
	// The record lasts for 20 ms. Whoever is granted it polls no more.
	polls := call(t, srv, "HEXISTS", roundOfN, "polls:pdead120:+:host/1/x:120")
	check.Equal(t, "%v says that it polls", polls, any(int64(0)))
}

// What another program has written into the hash of the turns fails no release.
func TestAGrantMeetsAnEntryThatPollsAtNoTime(t *testing.T) {
	srv := redistest.Start(t)
	const polls = "ptag:+:host/1/x:1"
	for _, every := range []string{"nan", "-nan", "inf", "-1", "0", "1e300", "x"} {
		queues(t, srv, polls)
		call(t, srv, "HSET", roundOfN, "polls:"+polls, every)
		releases(t, srv)
		left := call(t, srv, "PTTL", "n").(int64)
		check.ErrorIf(t, left == -1 || left > 100, "polls %s: the lock is kept for %d ms", every, left)
		call(t, srv, "FLUSHALL")
	}
}

// A version before grants reserves the lock for an entry with an owner.
func TestAnOwnerThatLeavesLeavesAReservation(t *testing.T) {
	srv := redistest.Start(t)
	call(t, srv, "HSET", "n", "mortise:reserved:"+waiting, "-")
	call(t, srv, "PEXPIRE", "n", "60000")
	reply := call(t, srv, "EVAL", scripts.LeaveQueueSource, "3", "n", "redisson_lock__channel:{n}", queueOfN, waiting,
		"publish", "host/1/x:1")
	check.ErrorIf(t, reply != int64(1) || call(t, srv, "EXISTS", "n") != int64(0), "it is still reserved: %v", reply)
}

// The hash of the turns lives for as long as a lock is contended: nothing of an owner stays there.
func TestAnOwnerThatPolledLeavesNothing(t *testing.T) {
	srv := redistest.Start(t)
	enrol := func(owner, instead string) {
		t.Helper()
		call(t, srv, "EVAL", scripts.EnrolSource, "4", "n", queueOfN, "redisson_lock_token:{n}",
			"redisson_lock__channel:{n}", owner, "60000", "0", "0", "ntag:+:"+owner, "600000", "0", "10", "1", instead)
	}
	call(t, srv, "HSET", "n", "h:1", "1")
	enrol("host/1/x:1", "")
	enrol("host/1/x:2", "ntag:+:host/1/x:1")
	releases(t, srv)
	enrol("host/1/x:2", "")
	check.ErrorIf(t, call(t, srv, "HEXISTS", "n", "host/1/x:2") != int64(1), "it is not granted")
	for _, key := range []string{roundOfN, asksOfN, queueOfN} {
		n := call(t, srv, "EXISTS", key)
		check.ErrorIf(t, n != int64(0), "%s is left", key)
	}
}
