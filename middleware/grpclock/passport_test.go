//go:build unix

package grpclock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/grpclock"
)

const testService = "grpc.testing.TestService"

func newRing(t testing.TB, id string) *delegation.Ring {
	t.Helper()
	return check.Value(delegation.NewRing(delegation.NewKey(id, []byte(id+": thirty-two bytes and more, of a test")))).In(t)
}

func newIssuer(t testing.TB, s delegation.Signer) *delegation.Issuer {
	t.Helper()
	return check.Value(delegation.NewIssuer(s)).In(t)
}

func newChecker(t testing.TB, v delegation.Verifier, audience string, opts ...delegation.Option) *delegation.Checker {
	t.Helper()
	return check.Value(delegation.NewChecker(v, audience, opts...)).In(t)
}

// memorySite is a site whose locks are in memory, beside another client of the same store.
func memorySite(t *testing.T) (s *site, caller *mortise.Client) {
	store := memory.New()
	client := func() *mortise.Client {
		c := check.Value(mortise.New(store)).In(t)
		t.Cleanup(func() { c.Close() })
		return c
	}
	return &site{T: t, locks: client()}, client()
}

func holding(t testing.TB, locks mortise.Locker, name string) *mortise.Lease {
	t.Helper()
	l := check.Value(locks.Lock(context.Background(), name)).In(t)
	t.Cleanup(func() { l.Unlock(context.Background()) })
	return l
}

func (s *site) adopting(ring *delegation.Ring, opts ...grpclock.Option) []grpc.ServerOption {
	c := newChecker(s, ring, "b")
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(grpclock.UnaryAdoptInterceptor(s.locks, c),
			grpclock.UnaryServerInterceptor(s.locks, grpclock.Methods{unary: order}, opts...)),
		grpc.ChainStreamInterceptor(grpclock.StreamAdoptInterceptor(s.locks, c),
			grpclock.StreamServerInterceptor(s.locks, grpclock.Methods{
				output: byMetadata, input: byMetadata, duplex: byMetadata}, opts...)),
	}
}

// told is a client whose calls tell services.
func (s *site) told(ring *delegation.Ring, services grpclock.Services, opts ...grpc.ServerOption) pb.TestServiceClient {
	return s.serveTo([]grpc.DialOption{
		grpc.WithUnaryInterceptor(grpclock.UnaryClientInterceptor(newIssuer(s, ring), services)),
		grpc.WithStreamInterceptor(grpclock.StreamClientInterceptor(newIssuer(s, ring), services)),
	}, opts...)
}

func TestACalleeEntersItsCallersLock(t *testing.T) {
	s, caller := memorySite(t)
	ring := newRing(t, "k1")
	s.onUnary = func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		check.ErrorIf(t, len(md[grpclock.MetadataKey]) != 0, "the handler sees %v", md)
		if l := grpclock.Lease(ctx); l.Name() != "orders:42" || l.Err() != nil {
			t.Errorf("%q, %v", l.Name(), l.Err())
		}
		return new(pb.SimpleResponse), nil
	}
	s.onDuplex = func(ss pb.TestService_FullDuplexCallServer) error {
		md, _ := metadata.FromIncomingContext(ss.Context())
		check.ErrorIf(t, len(md[grpclock.MetadataKey]) != 0 || md.Get("order-id")[0] != "42", "the handler sees %v", md)
		for {
			if _, err := ss.Recv(); err != nil {
				return nil
			}
			if err := ss.Send(&pb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
		}
	}
	lease := holding(t, caller, "orders:42")
	ctx, cancel := context.WithTimeout(lease.Context(), patience)
	defer cancel()
	stream := func(c pb.TestServiceClient) error {
		ss, err := c.FullDuplexCall(metadata.AppendToOutgoingContext(ctx, "order-id", "42"))
		if err != nil {
			return err
		}
		if err := ss.Send(&pb.StreamingOutputCallRequest{}); err != nil {
			return err
		}
		if _, err := ss.Recv(); err != nil {
			return err
		}
		return ss.CloseSend()
	}
	told := s.told(ring, grpclock.Services{testService: "b"}, s.adopting(ring)...)
	for range 3 {
		check.NoError(t, check.Err(told.UnaryCall(ctx, request("42"))))
	}
	check.NoError(t, stream(told))
	untold := s.told(ring, grpclock.Services{}, s.adopting(ring)...)
	_, err := untold.UnaryCall(ctx, request("42"))
	s.want(err, codes.Aborted, grpclock.ReasonLocked)
	s.want(stream(untold), codes.Aborted, grpclock.ReasonLocked)
	check.Done(t, lease.Err())
}

func TestAReplayAfterTheRelease(t *testing.T) {
	s, caller := memorySite(t)
	ring := newRing(t, "k1")
	s.onUnary = func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		return new(pb.SimpleResponse), nil
	}
	client := s.serve(s.adopting(ring)...)
	lease := holding(t, caller, "orders:42")
	entry, err := newIssuer(t, ring).Issue(lease.Context(), "b")
	check.NoError(t, err)
	ctx := metadata.AppendToOutgoingContext(s.ctx(), grpclock.MetadataKey, entry)
	check.NoError(t, check.Err(client.UnaryCall(ctx, request("42"))))
	s.unlock(lease)
	_, err = client.UnaryCall(ctx, request("42"))
	s.want(err, codes.FailedPrecondition, grpclock.ReasonClaimEnded)
	holding(t, caller, "orders:42")
	_, err = client.UnaryCall(ctx, request("42"))
	s.want(err, codes.FailedPrecondition, grpclock.ReasonClaimEnded)
}

func TestParallelCalleesTakeTurns(t *testing.T) {
	s, caller := memorySite(t)
	ring := newRing(t, "k1")
	var (
		mu           sync.Mutex
		inside, most int
	)
	s.onUnary = func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		mu.Lock()
		inside++
		most = max(most, inside)
		mu.Unlock()
		time.Sleep(time.Millisecond) // the work, during which another may be let in wrongly
		mu.Lock()
		inside--
		mu.Unlock()
		return new(pb.SimpleResponse), nil
	}
	client := s.told(ring, grpclock.Services{testService: "b"}, s.adopting(ring, grpclock.WithWait(patience))...)
	lease := holding(t, caller, "orders:42")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { check.Done(t, check.Err(client.UnaryCall(lease.Context(), request("42")))) })
	}
	wg.Wait()
	check.ErrorIf(t, most != 1, "%d at once", most)
}

// Each refusal: its code, its reason, its own error; no handler is reached.
func TestAdoptRefuses(t *testing.T) {
	ring := newRing(t, "k1")
	now := time.Now()
	entry := func(s delegation.Signer, change func(*delegation.Passport)) string {
		p := delegation.Passport{Audience: "b", Issued: now, Expires: now.Add(20 * time.Second),
			Claims: []mortise.Claim{{Name: "orders:42", Owner: "w/1/x:1", Hold: 1}}}
		if change != nil {
			change(&p)
		}
		return check.Value(p.Sign(context.Background(), s)).In(t)
	}
	good := entry(ring, nil)
	impostor, err := delegation.NewRing(delegation.NewKey("k1", []byte("a secret that the attacker made up, long enough")))
	check.NoError(t, err)
	var (
		mu     sync.Mutex
		causes []error
		log    strings.Builder
	)
	s, _ := memorySite(t)
	s.onUnary = func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		t.Error("the handler was reached")
		return new(pb.SimpleResponse), nil
	}
	s.onDuplex = func(pb.TestService_FullDuplexCallServer) error { t.Error("the handler was reached"); return nil }
	keep := grpclock.WithAnswer(func(_ context.Context, _ string, st *status.Status, cause error) error {
		mu.Lock()
		defer mu.Unlock()
		causes = append(causes, cause)
		return st.Err()
	})
	checker := newChecker(t, ring, "b", delegation.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	client := s.serve(grpc.UnaryInterceptor(grpclock.UnaryAdoptInterceptor(s.locks, checker, keep)),
		grpc.StreamInterceptor(grpclock.StreamAdoptInterceptor(s.locks, checker, keep)))
	for _, test := range []struct {
		name    string
		entries []string
		code    codes.Code
		want    error
	}{
		{"tampered", []string{entry(impostor, nil)}, codes.PermissionDenied, delegation.ErrTampered},
		{"unknown key", []string{entry(newRing(t, "k2"), nil)}, codes.PermissionDenied, delegation.ErrUnknownKey},
		{"wrong audience", []string{entry(ring, func(p *delegation.Passport) { p.Audience = "billing" })},
			codes.PermissionDenied, delegation.ErrWrongAudience},
		{"expired", []string{entry(ring,
			func(p *delegation.Passport) { p.Issued, p.Expires = now.Add(-time.Minute), now.Add(-10*time.Second) })},
			codes.PermissionDenied, delegation.ErrExpired},
		{"not yet valid", []string{entry(ring,
			func(p *delegation.Passport) { p.Issued, p.Expires = now.Add(time.Minute), now.Add(2*time.Minute) })},
			codes.PermissionDenied, delegation.ErrNotYetValid},
		{"for too long", []string{entry(ring, func(p *delegation.Passport) { p.Expires = now.Add(time.Hour) })},
			codes.PermissionDenied, delegation.ErrLifetime},
		{"oversize", []string{good + strings.Repeat("A", delegation.MaxEntry)}, codes.InvalidArgument, delegation.ErrOversize},
		{"duplicated", []string{good, good}, codes.InvalidArgument, delegation.ErrDuplicated},
		{"malformed", []string{good[:40]}, codes.InvalidArgument, delegation.ErrMalformed},
		{"of another version", []string{"m9" + good[2:]}, codes.InvalidArgument, delegation.ErrVersion},
		{"empty", []string{""}, codes.InvalidArgument, delegation.ErrVersion},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.T = t
			causes = nil
			log.Reset()
			ctx := context.Background()
			for _, e := range test.entries {
				ctx = metadata.AppendToOutgoingContext(ctx, grpclock.MetadataKey, e)
			}
			_, err := client.UnaryCall(ctx, request("42"))
			s.want(err, test.code, grpclock.ReasonBadPassport)
			ss, err := client.FullDuplexCall(ctx)
			if err == nil {
				_, err = ss.Recv()
			}
			s.want(err, test.code, grpclock.ReasonBadPassport)
			check.ErrorIf(t, !strings.HasSuffix(status.Convert(err).Message(), delegation.Reason(test.want)), "%v", err)
			mu.Lock()
			defer mu.Unlock()
			check.ErrorIf(t, len(causes) != 2 || !errors.Is(causes[0], test.want) || !errors.Is(causes[1], test.want) ||
				strings.Count(log.String(), "reason="+delegation.Reason(test.want)) != 2,
				"causes %v, logged %s", causes, log.String())
		})
	}
	s.T = t
	_, err = grpclock.UnaryAdoptInterceptor(s.locks, newChecker(t, awayVerifier{}, "b"))(
		metadata.NewIncomingContext(context.Background(), metadata.Pairs(grpclock.MetadataKey, good)), nil,
		&grpc.UnaryServerInfo{FullMethod: unary}, nil)
	if retry := s.want(err, codes.Unavailable, grpclock.ReasonUnverified); retry != time.Second {
		t.Error("retry after", retry)
	}
	_, err = grpclock.UnaryAdoptInterceptor(cannot{}, newChecker(t, ring, "b"))(
		metadata.NewIncomingContext(context.Background(), metadata.Pairs(grpclock.MetadataKey, good)), nil,
		&grpc.UnaryServerInfo{FullMethod: unary}, nil)
	s.want(err, codes.Internal, grpclock.ReasonInternal)
}

type awayVerifier struct{}

func (awayVerifier) Verify(context.Context, string, []byte, []byte) error {
	return errors.New("the key service is away")
}

type cannot struct{}

func (cannot) Adopt(context.Context, ...mortise.Claim) (context.Context, error) {
	return nil, mortise.ErrInvalid
}

type awaySigner struct{}

func (awaySigner) Current() string { return "k1" }
func (awaySigner) Sign(context.Context, string, []byte) ([]byte, error) {
	return nil, errors.New("the key service is away")
}

// What a call of each service sends.
func TestOnlyNamedServicesAreTold(t *testing.T) {
	_, caller := memorySite(t)
	ring := newRing(t, "k1")
	held := holding(t, caller, "orders:42").Context()
	call := func(s delegation.Signer, ctx context.Context, method string) (md metadata.MD, err error) {
		services := grpclock.Services{testService: "b"}
		unaryErr := grpclock.UnaryClientInterceptor(newIssuer(t, s), services)(ctx, method, nil, nil, nil,
			func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				md, _ = metadata.FromOutgoingContext(ctx)
				return nil
			})
		_, err = grpclock.StreamClientInterceptor(newIssuer(t, s), services)(ctx, nil, nil, method,
			func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string,
				_ ...grpc.CallOption) (grpc.ClientStream, error) {
				other, _ := metadata.FromOutgoingContext(ctx)
				check.ErrorIf(t, len(other[grpclock.MetadataKey]) != len(md[grpclock.MetadataKey]) || len(other) != len(md),
					"a stream sends %v, a unary call %v", other, md)
				return nil, nil
			})
		check.ErrorIf(t, (err == nil) != (unaryErr == nil), "a stream: %v, a unary call: %v", err, unaryErr)
		return md, err
	}
	forged := func(ctx context.Context) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "Mortise-Passport", "forged", "mortise-passport", "forged again")
	}
	for _, test := range []struct {
		name, method string
		ctx          context.Context
		want         int
	}{
		{"named, holding", unary, held, 1},
		{"named, holding nothing", unary, context.Background(), 0},
		{"another", "/grpc.testing.TestService2/UnaryCall", held, 0},
		{"another that begins so", "/grpc.testing.TestServiceX/UnaryCall", held, 0},
		{"named, with somebody else's", unary, forged(held), 1},
		{"another, with somebody else's", "/other.Service/UnaryCall", forged(held), 0},
		{"holding nothing, with somebody else's", unary, forged(context.Background()), 0},
	} {
		ctx := metadata.AppendToOutgoingContext(test.ctx, "traceparent", "00-x")
		md, err := call(ring, ctx, test.method)
		got := md[grpclock.MetadataKey]
		check.ErrorIf(t, err != nil || len(got) != test.want || len(md["traceparent"]) != 1 ||
			strings.Contains(strings.Join(got, ""), "forged"),
			"%s: sent %v, %v", test.name, md, err)
		if test.want == 1 {
			p, err := newChecker(t, ring, "b").Check(ctx, got...)
			check.ErrorIf(t, err != nil || p.Claims[0].Name != "orders:42", "%s: %+v, %v", test.name, p, err)
		}
	}
	md, err := call(awaySigner{}, held, unary)
	check.ErrorIf(t, err == nil || md != nil, "a call that cannot be signed was sent: %v, %v", md, err)
}

func TestPassportMistakesPanicWhenTheProgramStarts(t *testing.T) {
	s, _ := memorySite(t)
	i, c := newIssuer(t, newRing(t, "k1")), newChecker(t, newRing(t, "k1"), "b")
	for name, f := range map[string]func(){
		"no issuer": func() { grpclock.UnaryClientInterceptor(nil, nil) },
		"a service misspelt": func() {
			grpclock.UnaryClientInterceptor(i, grpclock.Services{"grpc.testing.TestServices": "b"})
		},
		"a method":  func() { grpclock.StreamClientInterceptor(i, grpclock.Services{unary: "b"}) },
		"a message": func() { grpclock.StreamClientInterceptor(i, grpclock.Services{"grpc.testing.SimpleRequest": "b"}) },
		"no name":   func() { grpclock.UnaryClientInterceptor(i, grpclock.Services{testService: ""}) },
		"a long name": func() {
			grpclock.UnaryClientInterceptor(i, grpclock.Services{testService: strings.Repeat("x", 256)})
		},
		"no client":      func() { grpclock.UnaryAdoptInterceptor(nil, c) },
		"no checker":     func() { grpclock.StreamAdoptInterceptor(s.locks, nil) },
		"WithWait":       func() { grpclock.UnaryAdoptInterceptor(s.locks, c, grpclock.WithWait(time.Second)) },
		"WithClientWait": func() { grpclock.UnaryAdoptInterceptor(s.locks, c, grpclock.WithClientWait()) },
		"WithFailOpen":   func() { grpclock.UnaryAdoptInterceptor(s.locks, c, grpclock.WithFailOpen()) },
		"WithReaders":    func() { grpclock.StreamAdoptInterceptor(s.locks, c, grpclock.WithReaders(s.locks, unary)) },
		"WithLockOptions": func() {
			grpclock.UnaryAdoptInterceptor(s.locks, c, grpclock.WithLockOptions(mortise.WithLease(time.Second)))
		},
	} {
		func() {
			defer func() {
				p, _ := recover().(string)
				check.ErrorIf(t, !strings.HasPrefix(p, "grpclock: "), "%s: panicked with %q", name, p)
			}()
			f()
		}()
	}
}
