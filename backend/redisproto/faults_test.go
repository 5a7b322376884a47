package redisproto

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto/pubsub"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/scripts"
)

// lineOf returns the number of the first line of a script with a text.
func lineOf(source, text string) string {
	before, _, _ := strings.Cut(source, text)
	return strconv.Itoa(1 + strings.Count(before, "\n"))
}

// The texts are what Redis 6.2, 7.0 and 8 answer, word for word.
func TestEveryServerReplyIsClassified(t *testing.T) {
	for _, c := range []struct {
		text       string
		remedy     string // a part of it
		temporary  bool
		mayHaveRun bool
		wrongKind  bool
	}{
		{text: "NOAUTH Authentication required.", remedy: "password"},
		{text: "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> " +
			"AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol " +
			"version at the same time", remedy: "password"},
		{text: "ERR Protocol error: unauthenticated multibulk length", remedy: "password"}, // ten arguments and more
		{text: "ERR Protocol error: unauthenticated bulk length", remedy: "password"},
		{text: "WRONGPASS invalid username-password pair or user is disabled.", remedy: "password"},
		{text: "ERR AUTH <password> called without any password configured for the default user. Are you sure " +
			"your configuration is correct?", remedy: "has no password"},
		{text: "ERR invalid password", remedy: "password is wrong"},
		{text: "NOPERM this user has no permissions to run the 'evalsha' command", remedy: "lacks +evalsha: "},
		{text: "NOPERM User alice has no permissions to run the 'subscribe' command", remedy: "lacks +subscribe: "},
		{text: "NOPERM No permissions to access a channel", remedy: "lacks a channel, "},
		{text: "NOPERM No permissions to access a key", remedy: "lacks a key, "},
		{text: "NOPERM", remedy: "lacks a permission, "},
		{text: "ERR ACL failure in script: User alice has no permissions to run the 'publish' command script: " +
			"7adc, on @user_script:9.", remedy: "lacks +publish: ", mayHaveRun: true},
		{text: "NOPERM User alice has no permissions to run the 'pexpire' command script: 3942, on @user_script:3.",
			remedy: "lacks +pexpire: ", mayHaveRun: true},
		{text: "ERR Error running script (call to f_3942): @user_script:3: The user executing the script can't " +
			"run this command or subcommand", remedy: "lacks a command, ", mayHaveRun: true},
		{text: "ERR The user executing the script can't run this command or subcommand script: " + scripts.AcquireSHA +
			", on @user_script:" + lineOf(scripts.AcquireSource, "redis.call('pttl'") + ".", remedy: "lacks +pttl: ",
			mayHaveRun: true},
		{text: "ERR The user executing the script can't run this command or subcommand script: " + scripts.ReleaseSHA +
			", on @user_script:" + lineOf(scripts.ReleaseSource, "redis.call(ARGV[3]") + ".",
			remedy: "lacks +publish or +spublish: ", mayHaveRun: true},
		{text: "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments " +
			"script: 46bb, on @user_script:1.", remedy: "lacks a key, ", mayHaveRun: true},
		{text: "WRONGTYPE Operation against a key holding the wrong kind of value", wrongKind: true,
			remedy: "another name"},
		{text: "WRONGTYPE Operation against a key holding the wrong kind of value script: 3942, on @user_script:9.",
			wrongKind: true, remedy: "another name"},
		{text: "ERR Error running script (call to f_3942): @user_script:9: WRONGTYPE Operation against a key " +
			"holding the wrong kind of value", wrongKind: true, remedy: "another name"},
		{text: "ERR Error running script (call to f_3942): @user_script:9: @user_script: 9: WRONGTYPE Operation " +
			"against a key holding the wrong kind of value", wrongKind: true, remedy: "another name"},
		{text: "ERR DB index is out of range", remedy: "no database of this number"},
		{text: "ERR invalid DB index", remedy: "no database of this number"},
		{text: "ERR SELECT is not allowed in cluster mode", remedy: "database 0 only"},
		{text: "ERR Error compiling script (new function): :9: WRONGTYPE Operation against a key holding the wrong kind " +
			"of value stack traceback:  [G]: in function 'call'  :9: in main chunk  [G]: ?", wrongKind: true,
			remedy: "another name"}, // miniredis
		{text: "WRONGKIND the key holds a read-write lock", wrongKind: true, remedy: "use Client.RW"},
		{text: "WRONGKIND the key holds a lock that is no read-write lock", wrongKind: true,
			remedy: "Lock, Inspect and ForceUnlock"},
		{text: "WRONGKIND the counter of tokens has reached 2^53", wrongKind: true, remedy: "below 2^53"},
		{text: "WRONGKIND the key holds no count", wrongKind: true, remedy: "another name"},
		{text: "READONLY You can't write against a read only replica.", temporary: true, remedy: "primary"},
		{text: "READONLY You can't write against a read only replica. script: 3942, on @user_script:2.",
			temporary: true, remedy: "primary"},
		{text: "ERR Error running script (call to f_3942): @user_script:2: @user_script: 2: -READONLY You can't " +
			"write against a read only replica.", temporary: true, remedy: "primary"},
		{text: "LOADING Redis is loading the dataset in memory", temporary: true, remedy: "wait"},
		{text: "CLUSTERDOWN Hash slot not served", temporary: true, remedy: "slot"},
		{text: "CLUSTERDOWN The cluster is down", temporary: true, remedy: "cluster"},
		{text: "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", temporary: true,
			remedy: "failover"},
		{text: "TRYAGAIN Multiple keys request during rehashing of slot", temporary: true, remedy: "passes"},
		{text: "CROSSSLOT Keys in request don't hash to the same slot", remedy: "hash tag"},
		{text: "MOVED 3999 127.0.0.1:6381", remedy: "cluster client"},
		{text: "ASK 3999 127.0.0.1:6381", remedy: "cluster client"},
		{text: "OOM command not allowed when used memory > 'maxmemory'.", temporary: true, remedy: "maxmemory"},
		{text: "OOM command not allowed when used memory > 'maxmemory'. script: 3942, on @user_script:2.",
			temporary: true, remedy: "maxmemory"},
		{text: "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. " +
			"Commands that may modify the data set are disabled.", temporary: true, remedy: "disk"},
		{text: "MISCONF Errors writing to the AOF file: No space left on device", temporary: true,
			remedy: "append-only file"},
		{text: "NOREPLICAS Not enough good replicas to write.", temporary: true, remedy: "replicas"},
		{text: "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
			temporary: true, remedy: "SCRIPT KILL"},
		{text: "UNKILLABLE Sorry the script already executed write commands against the dataset.", temporary: true,
			remedy: "SHUTDOWN"},
		{text: "ERR Error running script (call to f_3942): @user_script:1: Script killed by user with SCRIPT KILL...",
			temporary: true, mayHaveRun: true, remedy: "SCRIPT KILL"},
		{text: "NOSCRIPT No matching script. Please use EVAL.", temporary: true, remedy: "SCRIPT FLUSH"},
		{text: "ERR max number of clients reached", temporary: true, remedy: "maxclients"},
		{text: "ERR max number of clients + cluster connections reached", temporary: true, remedy: "maxclients"},
		{text: "ERR unknown command 'evalsha', with args beginning with: '3942' ", remedy: "EVALSHA"},
		{text: "ERR unknown command `EVALSHA`, with args beginning with: `3942`", remedy: "EVALSHA"},
		{text: "ERR unknown command 'subscribe', with args beginning with: 'c' ", remedy: "SUBSCRIBE"},
		{text: "ERR Unknown Redis command called from script script: 3942, on @user_script:3.", mayHaveRun: true,
			remedy: "pexpire"},
		{text: "DENIED Redis is running in protected mode because protected mode is enabled", remedy: "protected mode"},
		{text: "NOPROTO unsupported protocol version", remedy: "RESP2"},
		{text: "ERR something not seen yet"},
		{text: "ERR something raised in a script script: 3942, on @user_script:4.", mayHaveRun: true},
	} {
		s := &core{adapter: &fakeAdapter{}, subs: pubsub.New(pubsub.Config{})}
		err := s.fault(serverError(c.text))
		var f *backend.Fault
		check.FatalIf(t, !errors.As(err, &f), "%q: %T", c.text, err)
		check.ErrorIf(t, f.Temporary != c.temporary || f.MayHaveRun != c.mayHaveRun, "%q: temporary %v, may have run %v",
			c.text, f.Temporary, f.MayHaveRun)
		check.ErrorIf(t, errors.Is(err, backend.ErrWrongKind) != c.wrongKind, "%q: wrong kind %v", c.text, !c.wrongKind)
		check.ErrorIf(t, !strings.Contains(f.Remedy, c.remedy) || c.remedy == "" != (f.Remedy == ""), "%q: remedy %q", c.text,
			f.Remedy)
		check.ErrorIf(t, len(f.Remedy) > 250, "%q: a remedy of %d characters: %s", c.text, len(f.Remedy), f.Remedy)
		check.ErrorIf(t, !strings.Contains(err.Error(), c.text), "%q: the server's words are lost: %v", c.text, err)
	}
}

func TestATokenOfAWrongTypeMayHaveTakenTheLock(t *testing.T) {
	s := &core{adapter: &fakeAdapter{}, subs: pubsub.New(pubsub.Config{})}
	raised := serverError("WRONGTYPE Operation against a key holding the wrong kind of value script: 00f9, on " +
		"@user_script:12.")
	f := backend.FaultOf(s.faultOf(raised, true))
	check.ErrorIf(t, !f.MayHaveRun || f.Temporary, "%+v", f)
}

func TestASlotThatMovesPassesOnACluster(t *testing.T) {
	s := &core{adapter: &fakeAdapter{features: Features{Cluster: true}}}
	f := backend.FaultOf(s.fault(serverError("MOVED 3999 127.0.0.1:6381")))
	check.ErrorIf(t, !f.Temporary, "%+v", f)
}

func dial(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

func TestTransportFailuresMayHaveRunUnlessUnsent(t *testing.T) {
	refused := errors.New("dial tcp 127.0.0.1:1: connection refused")
	s := &core{adapter: &fakeAdapter{unsent: refused}, subs: pubsub.New(pubsub.Config{})}
	for _, c := range []struct {
		err        error
		mayHaveRun bool
		remedy     string
	}{
		{io.EOF, true, remedyLost},
		{fmt.Errorf("traced: %w", io.ErrUnexpectedEOF), true, remedyLost},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, true, remedyLost},
		{syscall.ECONNRESET, true, remedyLost},
		{context.DeadlineExceeded, true, ""},
		{context.Canceled, true, ""},
		{errors.New("circuit open"), true, remedyClient}, // a limiter or a hook
		{refused, false, remedyUnreachable},
		{unsentError{io.EOF}, false, remedyUnreachable},
		{unsentError{dial(&net.DNSError{Err: "no such host", Name: "redis", IsNotFound: true})}, false, remedyName},
		{unsentError{dial(os.NewSyscallError("connect", syscall.ECONNREFUSED))}, false, remedyNoListener},
		{unsentError{dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH))}, false, remedyNoRoute},
		{unsentError{dial(os.ErrDeadlineExceeded)}, false, remedyDialTimeout},
		{unsentError{errors.New("redis: connection pool timeout")}, false, remedyPool},
		{unsentError{errors.New("redis: client is closed")}, false, remedyClosed},
		{unsentError{x509.UnknownAuthorityError{}}, false, remedyTLS},
		{x509.HostnameError{Certificate: new(x509.Certificate), Host: "redis"}, true, remedyTLS},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, true, remedyTLS},
	} {
		f := backend.FaultOf(s.fault(c.err))
		check.ErrorIf(t, f.MayHaveRun != c.mayHaveRun || !f.Temporary || !errors.Is(f.Err, c.err) ||
			f.Remedy != c.remedy, "%v: %+v", c.err, f)
	}
}
