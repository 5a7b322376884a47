//go:build linux

package delegation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/grpclock"
	"github.com/mortise-go/mortise/middleware/httplock"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// serviceEnv tells this binary to be a service.
const serviceEnv = "MORTISE_DELEGATION_SERVICE"

// config is that of a service. It listens for HTTP on descriptor 3, for gRPC on 4.
type config struct {
	Name     string
	Redis    string
	Client   string // go-redis, rueidis
	Witness  string
	Watchdog time.Duration
	Keys     []string // their ids: the tests' secrets are made of them
	Peers    map[string]peer
}

// peer is where a service is.
type peer struct{ HTTP, GRPC string }

// job is what a service is to do within a lock.
type job struct {
	Lock    string
	Visit   string   // names this visit; those of its callees begin so
	Parent  string   // the visit that it comes from
	Path    []string // which to call next, with the rest; "b|c": of several calls, b and c in turns
	Fan     int      // how many calls at once; 0: one
	Via     string   // http, grpc
	Told    bool     // whether callees are told
	Park    bool     // the last one stands still until the witness lets it go
	Outlive bool     // go on though the caller has gone
	Again   bool     // lock again when the callees have answered
	Lose    bool     // do not leave before the lock is lost
	Wait    time.Duration
}

// result is what came of it, and of what it called.
type result struct {
	Visits int    // how many were inside
	Err    string // the first error
	Kind   string // its sentinel: "lost", "delegation ended" ...
}

func TestMain(m *testing.M) {
	harness.Worker(serviceEnv, serve)
	os.Exit(m.Run())
}

type service struct {
	pb.UnimplementedTestServiceServer
	config
	locks       *mortise.Client
	ring        *delegation.Ring
	plain, told *http.Client
	conns       map[bool]map[string]pb.TestServiceClient // by told, peer
	last        atomic.Pointer[string]                   // the last entry that was sent
	witness     *http.Client
}

// here is the service's process: what fails here ends it, and shows on standard error.
var here harness.InWorker

// serve ends with standard input.
func serve(c config) error {
	s := &service{config: c, witness: new(http.Client), plain: new(http.Client)}
	store, below, err := harness.At(c.Redis).Open(c.Client)
	harness.OK(here, err)
	defer below()
	s.locks = harness.Must(mortise.New(store, mortise.WithWatchdogTimeout(c.Watchdog)))(here)
	defer s.locks.Close()
	s.ring = harness.Must(delegation.NewRing(key(c.Keys[0]), keysOf(c.Keys[1:])...))(here)
	checker := harness.Must(delegation.NewChecker(s.ring, c.Name))(here)
	s.connect(harness.Must(delegation.NewIssuer(s.ring))(here))

	mux := http.NewServeMux()
	accept := httplock.AcceptDelegations(s.locks, checker)
	mux.Handle("POST /job", accept(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var j job
		if err := json.NewDecoder(r.Body).Decode(&j); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		json.NewEncoder(w).Encode(s.do(r.Context(), j))
	})))
	mux.HandleFunc("POST /keys", func(w http.ResponseWriter, r *http.Request) {
		var keys []string
		err := json.NewDecoder(r.Body).Decode(&keys)
		if err == nil {
			err = s.ring.Rotate(key(keys[0]), keysOf(keys[1:])...)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	mux.HandleFunc("GET /last", func(w http.ResponseWriter, r *http.Request) {
		if last := s.last.Load(); last != nil {
			io.WriteString(w, *last)
		}
	})
	srv := &http.Server{Handler: mux}
	rpc := grpc.NewServer(grpc.UnaryInterceptor(grpclock.UnaryDelegationInterceptor(s.locks, checker)))
	pb.RegisterTestServiceServer(rpc, s)
	failed := make(chan error, 2)
	for fd, accept := range map[uintptr]func(net.Listener) error{3: srv.Serve, 4: rpc.Serve} {
		l := harness.Must(net.FileListener(os.NewFile(fd, "listener")))(here)
		go func() { failed <- accept(l) }()
	}
	fmt.Println("ready")
	go func() {
		io.Copy(io.Discard, os.Stdin)
		failed <- nil
	}()
	err = <-failed
	srv.Close()
	rpc.Stop()
	return err
}

// connect makes the clients of all services: one that tells, one that does not.
func (s *service) connect(issuer *delegation.Issuer) {
	origins := httplock.Origins{}
	s.conns = map[bool]map[string]pb.TestServiceClient{true: {}, false: {}}
	for name, p := range s.Peers {
		origins[p.HTTP] = name
		for _, told := range []bool{true, false} {
			opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
			if told {
				opts = append(opts, grpc.WithUnaryInterceptor(grpclock.UnaryClientInterceptor(issuer,
					grpclock.Services{"grpc.testing.TestService": name})))
			}
			s.conns[told][name] = pb.NewTestServiceClient(harness.Must(grpc.NewClient(p.GRPC, opts...))(here))
		}
	}
	s.told = &http.Client{Transport: httplock.NewTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
		if entry := r.Header.Get(delegation.Header); entry != "" {
			s.last.Store(&entry)
		}
		return http.DefaultTransport.RoundTrip(r)
	}), issuer, origins)}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (s *service) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	var j job
	if err := json.Unmarshal(r.GetPayload().GetBody(), &j); err != nil {
		return nil, err
	}
	body, err := json.Marshal(s.do(ctx, j))
	return &pb.SimpleResponse{Payload: &pb.Payload{Body: body}}, err
}

// do is what a handler does: lock, work, call others, unlock.
func (s *service) do(ctx context.Context, j job) (r result) {
	if j.Outlive {
		ctx = context.WithoutCancel(ctx)
	}
	fail := func(err error) {
		if err != nil && r.Err == "" {
			r.Err, r.Kind = s.Name+": "+err.Error(), kind(err)
		}
	}
	var opts []mortise.Option
	if j.Wait > 0 {
		opts = append(opts, mortise.WithWait(j.Wait))
	}
	lease, err := s.locks.Lock(ctx, j.Lock, opts...)
	if err != nil {
		fail(err)
		return r
	}
	work, done := lease.Context(), context.WithoutCancel(ctx)
	fail(s.tell(done, "in", j))
	r.Visits = 1
	switch {
	case j.Park && len(j.Path) == 0:
		if s.tell(work, "park", j) != nil {
			fail(context.Cause(work))
		}
	case len(j.Path) > 0:
		var (
			wg sync.WaitGroup
			mu sync.Mutex
		)
		for i := range max(j.Fan, 1) {
			wg.Go(func() {
				next, names := j, strings.Split(j.Path[0], "|")
				name := names[i%len(names)]
				next.Parent, next.Visit, next.Path, next.Fan = j.Visit, fmt.Sprintf("%s>%s%d", j.Visit, name, i), j.Path[1:], 0
				got := s.call(work, name, next)
				mu.Lock()
				defer mu.Unlock()
				r.Visits += got.Visits
				if r.Err == "" {
					r.Err, r.Kind = got.Err, got.Kind
				}
			})
		}
		wg.Wait()
	}
	if j.Lose {
		select {
		case <-work.Done():
		case <-time.After(patience / 2):
		}
	}
	if j.Again && lease.Err() == nil {
		again := j
		again.Parent, again.Visit, again.Path, again.Again, again.Park = j.Visit, j.Visit+">again", nil, false, false
		got := s.do(work, again)
		r.Visits += got.Visits
		if r.Err == "" {
			r.Err, r.Kind = got.Err, got.Kind
		}
	}
	if err := lease.Err(); err != nil {
		r.Err = "" // the loss is what matters
		fail(err)
	}
	fail(s.tell(done, "out", j))
	fail(lease.Unlock(done))
	return r
}

func kind(err error) string {
	for _, k := range []struct {
		err  error
		name string
	}{
		{mortise.ErrLost, "lost"}, {delegation.ErrEnded, "delegation ended"},
		{mortise.ErrNotAcquired, "not acquired"}, {mortise.ErrUnavailable, "unavailable"},
		{context.DeadlineExceeded, "deadline"}, {context.Canceled, "cancelled"},
	} {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	return "other"
}

func (s *service) tell(ctx context.Context, what string, j job) error {
	q := url.Values{"visit": {j.Visit}, "parent": {j.Parent}, "process": {s.Name}}
	req, err := http.NewRequestWithContext(ctx, "POST", s.Witness+"/"+what+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := s.witness.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (s *service) call(ctx context.Context, name string, j job) (r result) {
	if j.Via == "grpc" {
		body := harness.Must(json.Marshal(j))(here)
		resp, err := s.conns[j.Told][name].UnaryCall(ctx, &pb.SimpleRequest{Payload: &pb.Payload{Body: body}})
		if err == nil {
			err = json.Unmarshal(resp.GetPayload().GetBody(), &r)
		}
		return r.failed(err)
	}
	client := s.plain
	if j.Told {
		client = s.told
	}
	return post(ctx, client, s.Peers[name].HTTP, j)
}

// failed is r, unless the call failed.
func (r result) failed(err error) result {
	if err != nil {
		return result{Err: "calling: " + err.Error(), Kind: "call"}
	}
	return r
}

func post(ctx context.Context, client *http.Client, to string, j job) (r result) {
	body := harness.Must(json.Marshal(j))(here)
	req := harness.Must(http.NewRequestWithContext(ctx, "POST", to+"/job", bytes.NewReader(body)))(here)
	resp, err := client.Do(req)
	if err != nil {
		return r.failed(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(answer, &r)
	} else if err == nil {
		err = fmt.Errorf("%d %s", resp.StatusCode, strings.TrimSpace(string(answer)))
	}
	return r.failed(err)
}
