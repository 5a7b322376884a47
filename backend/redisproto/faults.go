package redisproto

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/mortise-go/mortise/backend"
)

const (
	remedyWrongKind = "the name is in use for another kind of lock or other data: choose another name, or use the " +
		"calls of that kind (of a read-write lock Client.RW); delete the key if TYPE and " +
		"its value show that it is no lock"
	// remedyReadWrite is for a call of another kind on a read-write lock, remedyNotReadWrite for the reverse.
	remedyReadWrite    = "the name is in use for a read-write lock: choose another name, or use Client.RW"
	remedyNotReadWrite = "the name is in use for a lock that is no read-write lock: choose another name, or use " +
		"Lock, Inspect and ForceUnlock"
	remedyToken = "another program wrote redisson_lock_token:{name}: set it below 2^53, and make each store that checks " +
		"tokens forget the larger ones"
)

// reply is the meaning of an error reply of Redis.
type reply struct {
	// prefix is the beginning of the reply's text, without a leading ERR.
	prefix    string
	remedy    string
	temporary bool
	// dirty reports that a script may have written before it got the error. Redis reports the other errors at the
	// first write of a script at the latest.
	dirty bool
	// permission reports that the user lacks a permission, which the remedy names.
	permission bool
	// kind is an error to wrap beside the reply; nil if there is none.
	kind error
}

// replies lists the error replies that have a remedy, or that are temporary. The first one whose prefix matches is
// used.
var replies = []reply{
	{prefix: "NOAUTH", remedy: "give the Redis client the server's username and password"},
	// The reply to a command of more than ten arguments before AUTH.
	{prefix: "Protocol error: unauthenticated", remedy: "give the Redis client the server's username and password"},
	{prefix: "WRONGPASS", remedy: "the Redis client's username or password is wrong, or the user is disabled"},
	{prefix: "AUTH failed", remedy: "the Redis client's username or password is wrong"},
	{prefix: "invalid password", remedy: "the Redis client's password is wrong"},
	{prefix: "Client sent AUTH, but no password is set",
		remedy: "the server has no password: take it out of the Redis client's options"},
	{prefix: "AUTH <password> called without any password",
		remedy: "the server has no password: take it out of the Redis client's options"},
	{prefix: "DENIED", remedy: "the server is in protected mode: set a password, or bind it to the right addresses"},
	{prefix: "NOPERM", dirty: true, permission: true},
	{prefix: "ACL failure in script", dirty: true, permission: true},
	{prefix: "The user executing the script", dirty: true, permission: true},
	{prefix: "WRONGTYPE", dirty: true, kind: backend.ErrWrongKind, remedy: remedyWrongKind},
	{prefix: "WRONGKIND the key holds a read-write lock", kind: backend.ErrWrongKind, remedy: remedyReadWrite},
	{prefix: "WRONGKIND the key holds a lock that is no read-write lock", kind: backend.ErrWrongKind,
		remedy: remedyNotReadWrite},
	{prefix: "WRONGKIND the counter of tokens", kind: backend.ErrWrongKind, remedy: remedyToken},
	{prefix: "WRONGKIND", kind: backend.ErrWrongKind, remedy: remedyWrongKind},
	{prefix: "READONLY", temporary: true, remedy: "the server is a replica: let the client find the primary " +
		"(Sentinel or Cluster), or wait for the failover to end"},
	{prefix: "LOADING", temporary: true, remedy: "the server is loading its data: wait"},
	{prefix: "BUSYLOADING", temporary: true, remedy: "the server is loading its data: wait"},
	{prefix: "CLUSTERDOWN", temporary: true,
		remedy: "the cluster does not serve this slot: repair it with redis-cli --cluster fix, or wait for the " +
			"failover to end"},
	{prefix: "MASTERDOWN", temporary: true, remedy: "the replica has lost its primary: wait for the failover, or " +
		"connect to the primary"},
	{prefix: "TRYAGAIN", temporary: true, remedy: "the slot is being moved: it passes"},
	{prefix: "CROSSSLOT", remedy: "the server is a cluster: give mortise a cluster client, and names whose braces " +
		"form one hash tag"},
	{prefix: "This instance has cluster support disabled", temporary: true,
		remedy: "the server is no cluster: give mortise a client of a single server"},
	{prefix: "MOVED", remedy: remedyCluster},
	{prefix: "ASK", remedy: remedyCluster},
	{prefix: "REDIRECT", temporary: true, remedy: "the server hands over to another server: let the client follow"},
	{prefix: "OOM", temporary: true,
		remedy: "the server is out of memory: raise maxmemory, or free memory; eviction would remove locks"},
	{prefix: "MISCONF Errors writing to the AOF file", temporary: true, remedy: "the server cannot write its " +
		"append-only file and refuses writes: look at its log and disk"},
	{prefix: "MISCONF", temporary: true, remedy: "the server cannot write its snapshot and refuses writes: look " +
		"at its log and disk"},
	{prefix: "NOREPLICAS", temporary: true, remedy: "too few replicas are connected (min-replicas-to-write): " +
		"bring them back"},
	{prefix: "NOGOODSLAVE", temporary: true,
		remedy: "too few replicas are connected (min-replicas-to-write): bring them back"},
	{prefix: "BUSY", temporary: true, remedy: "a script or function runs too long on the server: find it, and end " +
		"it with SCRIPT KILL or FUNCTION KILL"},
	{prefix: "UNKILLABLE", temporary: true, remedy: "a script runs too long on the server and has written: wait, " +
		"or SHUTDOWN NOSAVE"},
	{prefix: "Script killed", dirty: true, temporary: true,
		remedy: "SCRIPT KILL ended the script; it had taken too long"},
	{prefix: "WAIT cannot be used with replica", temporary: true,
		remedy: "the server has become a replica: let the client find the primary (Sentinel or Cluster)"},
	{prefix: "UNBLOCKED", temporary: true, remedy: "the server has become a replica: let the client find the " +
		"primary (Sentinel or Cluster)"},
	{prefix: "NOSCRIPT", temporary: true, remedy: "the server forgets its scripts at once: look for calls of SCRIPT " +
		"FLUSH, and for a proxy without SCRIPT LOAD"},
	{prefix: "max number of clients", temporary: true,
		remedy: "raise the server's maxclients, or find what leaks connections"},
	{prefix: "unknown command", remedy: "the server or a proxy before it lacks a command that mortise needs: " +
		"EVALSHA, SCRIPT LOAD, SUBSCRIBE"},
	{prefix: "Unknown Redis command", dirty: true,
		remedy: "the server lacks or renames a command that mortise's scripts call: exists, hexists, hset, hdel, " +
			"pexpire, pttl, del, publish, for semaphores get, set, incrby, zadd and their like, for fair locks " +
			"lindex, rpush, zadd and their like"},
	{prefix: "This Redis command is not allowed from script", dirty: true,
		remedy: "the server does not let scripts call a command that mortise needs"},
	{prefix: "DB index is out of range", remedy: remedyDatabase},
	{prefix: "invalid DB index", remedy: remedyDatabase},
	{prefix: "SELECT is not allowed in cluster mode", remedy: "a cluster has the database 0 only: take the number of " +
		"another one out of the Redis client's options"},
	{prefix: "NOPROTO", remedy: "the server speaks RESP2 only: set the Redis client's protocol to 2"},
}

const (
	remedyCluster  = "the server is a cluster: give mortise a cluster client"
	remedyLost     = "the connection broke or timed out before the reply"
	remedyDatabase = "the server has no database of this number: choose another one in the Redis client's options, or " +
		"raise the server's setting databases"
	remedyClient = "the Redis client, or one of its hooks or limiters, failed the command"
)

// fault returns the *backend.Fault for the error of a command; nil for nil. The reply of a replica also makes the
// session open its subscription connection again.
func (s *core) fault(err error) error { return s.faultOf(err, false) }

// faultOf is fault; fenced tells that the script draws a fencing token. Such a script may write before it finds a key
// of a wrong type.
func (s *core) faultOf(err error, fenced bool) error {
	if err == nil {
		return nil
	}
	var known *backend.Fault
	if errors.As(err, &known) {
		return err
	}
	f := s.classified(err, fenced)
	f.Err = s.located(f.Err)
	return f
}

// classified returns the fault for an error that is none yet.
func (s *core) classified(err error, fenced bool) *backend.Fault {
	if text, ok := s.adapter.ServerError(err); ok {
		f := serverFault(err, text)
		if strings.HasPrefix(text, "READONLY") {
			s.subs.Demoted()
		}
		if errors.Is(f, backend.ErrWrongKind) && !fenced {
			f.MayHaveRun = false
		}
		if f.Remedy == remedyCluster && s.adapter.Features().Cluster {
			f.Remedy, f.Temporary = "the cluster moves slots faster than the client follows: it passes", true
		}
		return f
	}
	if x, is := s.adapter.(Ender); is && x.Ended(err) {
		f := &backend.Fault{Err: err, Remedy: remedyClosed, MayHaveRun: !s.adapter.Unsent(err)}
		if f.MayHaveRun { // it may have been on its way
			f.Remedy = remedyClosedBefore
		}
		return f
	}
	switch {
	case errors.As(err, new(unsentError)), s.adapter.Unsent(err):
		remedy := unsentRemedy(err)
		if remedy == remedyPool {
			if full := s.exhausted(""); full != nil {
				err = fmt.Errorf("%w: %w", err, full)
			}
		}
		return &backend.Fault{Err: err, Remedy: remedy, Temporary: true}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &backend.Fault{Err: err, MayHaveRun: true, Temporary: true}
	case handshake(err):
		return &backend.Fault{Err: err, Remedy: remedyTLS, MayHaveRun: true, Temporary: true}
	case lost(err):
		return &backend.Fault{Err: err, Remedy: remedyLost, MayHaveRun: true, Temporary: true}
	default:
		return &backend.Fault{Err: err, Remedy: remedyClient, MayHaveRun: true, Temporary: true}
	}
}

// lost reports whether err is an error of the network.
func lost(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || Broke(err)
}

// answered reports whether err is an error reply of the server.
func (s *core) answered(err error) bool {
	_, answered := s.adapter.ServerError(err)
	return answered
}

// undone reports whether err says that certainly nothing was done.
func (s *core) undone(err error) bool { return !backend.FaultOf(s.fault(err)).MayHaveRun }

// serverFault classifies an error reply. An error that Redis returns for a command means that the command has not run.
// An error that was raised within a script may come after writes of the script.
func serverFault(err error, text string) *backend.Fault {
	r, raised := replyOf(text)
	if r == nil {
		return &backend.Fault{Err: err, MayHaveRun: raised}
	}
	f := &backend.Fault{Err: err, Remedy: r.remedy, Temporary: r.temporary, MayHaveRun: raised && r.dirty}
	if r.permission {
		f.Remedy = lacks(text)
	}
	if r.kind != nil {
		f.Err = &kindError{kind: r.kind, cause: err}
	}
	return f
}

// replyOf returns what is known of an error reply, nil if nothing is, and whether it was raised while a script ran.
func replyOf(text string) (r *reply, raised bool) {
	core, raised := unwrapScript(text)
	for i := range replies {
		if strings.HasPrefix(core, replies[i].prefix) {
			return &replies[i], raised
		}
	}
	return nil, raised
}

// unwrapScript returns the error text without ERR and without the script's position, and whether the error was raised
// while a script ran. Redis 7 appends " script: <sha>, on @user_script:12."; older servers write "ERR Error running
// script (call to f_<sha>): @user_script:12: WRONGTYPE ...". miniredis, a server for tests, writes "ERR Error compiling
// script (new function): :12: WRONGTYPE ...".
func unwrapScript(text string) (core string, raised bool) {
	const mark, miniredis = "@user_script:", "Error compiling script (new function): :"
	raised = strings.Contains(text, mark)
	core = strings.TrimPrefix(text, "ERR ")
	if inner, is := strings.CutPrefix(core, miniredis); is {
		return strings.TrimPrefix(strings.TrimLeft(inner, " 0123456789:"), "ERR "), true
	}
	if strings.HasPrefix(core, "Error running script") || strings.HasPrefix(core, "Error compiling script") {
		if i := strings.LastIndex(core, mark); i >= 0 {
			core = strings.TrimLeft(core[i+len(mark):], " 0123456789:-")
			core = strings.TrimPrefix(core, "ERR ")
		}
	}
	return core, raised
}

// kindError is an error that is kind, with the text of the server's reply.
type kindError struct{ kind, cause error }

func (e *kindError) Error() string   { return e.cause.Error() }
func (e *kindError) Unwrap() []error { return []error{e.kind, e.cause} }

// strange returns the fault for a reply that the script never gives.
func strange(script string, reply any) error {
	return &backend.Fault{
		Err:        fmt.Errorf("unexpected reply to script %s: %.200v", script, fmt.Sprint(reply)),
		Remedy:     "something that is not Redis answers here: look for a proxy between client and server",
		MayHaveRun: true,
	}
}

// Broke reports whether err says that the connection ended during a command.
func Broke(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	op, is := errors.AsType[*net.OpError](err)
	return is && op.Op != "dial" && !op.Timeout()
}
