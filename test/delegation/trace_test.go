//go:build linux

package delegation

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/grpclock"
	"github.com/mortise-go/mortise/middleware/httplock"
	"github.com/mortise-go/mortise/middleware/telemetry"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// traced is a caller that holds orders:42, under a span and with baggage, and a callee which locks it.
type traced struct {
	*testing.T
	issuer   *delegation.Issuer
	checker  *delegation.Checker
	callee   *mortise.Client
	spans    *tracetest.SpanRecorder
	provider *sdk.TracerProvider
	ctx      context.Context // the lease's
	root     trace.SpanContext
	w3c      propagation.TextMapPropagator
}

func newTraced(t *testing.T) *traced {
	s := &traced{T: t, spans: tracetest.NewSpanRecorder(),
		w3c: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})}
	s.provider = sdk.NewTracerProvider(sdk.WithSpanProcessor(s.spans))
	observer := harness.Must(telemetry.New(telemetry.WithTracerProvider(s.provider)))(t)
	store := memory.New()
	client := func() *mortise.Client { return harness.Client(t, store, mortise.WithObserver(observer)) }
	s.callee = client()
	ring := harness.Must(delegation.NewRing(key("k1")))(t)
	s.issuer = harness.Must(delegation.NewIssuer(ring))(t)
	s.checker = harness.Must(delegation.NewChecker(ring, "b"))(t)
	member := harness.Must(baggage.NewMember("tenant", "7"))(t)
	bag := harness.Must(baggage.New(member))(t)
	ctx, span := s.provider.Tracer("test").Start(baggage.ContextWithBaggage(context.Background(), bag),
		"the caller's work")
	lease := harness.Must(client().Lock(ctx, "orders:42"))(t)
	t.Cleanup(func() { lease.Unlock(context.Background()); span.End() })
	s.ctx, s.root = lease.Context(), span.SpanContext()
	return s
}

// handle is the callee's work: it locks what its caller holds.
func (s *traced) handle(ctx context.Context) {
	if sc := trace.SpanContextFromContext(ctx); sc.TraceID() != s.root.TraceID() || sc.SpanID() == s.root.SpanID() {
		s.Errorf("the callee's span is %v of trace %v, the caller's trace is %v", sc.SpanID(), sc.TraceID(), s.root.TraceID())
	}
	got := baggage.FromContext(ctx).Member("tenant").Value()
	harness.ErrorIf(s, got != "7", "baggage %q", got)
	lease, err := s.callee.TryLock(ctx, "orders:42")
	if err != nil {
		s.Error("the callee locks:", err)
		return
	}
	harness.Check(s, lease.Unlock(ctx))
}

// check looks for one trace: the callee's hold within what it served, that within the call, that within the
// caller's work.
func (s *traced) check() {
	s.Helper()
	spans := make(map[trace.SpanID]sdk.ReadOnlySpan)
	var hold sdk.ReadOnlySpan
	for _, span := range s.spans.Ended() {
		if span.SpanContext().TraceID() == s.root.TraceID() {
			spans[span.SpanContext().SpanID()] = span
			if span.Name() == "mortise.hold" {
				hold = span
			}
		}
	}
	harness.FatalIf(s, hold == nil, "no hold among %v", spans)
	served := spans[hold.Parent().SpanID()]
	harness.FatalIf(s, served == nil || served.SpanKind() != trace.SpanKindServer, "the hold is within %v", served)
	call := spans[served.Parent().SpanID()]
	harness.ErrorIf(s, call == nil || call.SpanKind() != trace.SpanKindClient || call.Parent().SpanID() != s.root.SpanID(),
		"what was served is within %v", call)
}

// Over HTTP, with OpenTelemetry's transport within ours and around it.
func TestTraceContextGoesAlongOverHTTP(t *testing.T) {
	for _, order := range []string{"otelhttp within", "otelhttp around"} {
		t.Run(order, func(t *testing.T) {
			s := newTraced(t)
			opts := []otelhttp.Option{otelhttp.WithTracerProvider(s.provider), otelhttp.WithPropagators(s.w3c)}
			srv := httptest.NewServer(otelhttp.NewHandler(httplock.AcceptDelegations(s.callee, s.checker)(http.HandlerFunc(
				func(_ http.ResponseWriter, r *http.Request) { s.handle(r.Context()) })), "callee", opts...))
			defer srv.Close()
			origins := httplock.Origins{srv.URL: "b"}
			var tr http.RoundTripper
			if order == "otelhttp within" {
				tr = httplock.NewTransport(otelhttp.NewTransport(nil, opts...), s.issuer, origins)
			} else {
				tr = otelhttp.NewTransport(httplock.NewTransport(nil, s.issuer, origins), opts...)
			}
			req := harness.Must(http.NewRequestWithContext(s.ctx, "POST", srv.URL, nil))(t)
			resp := harness.Must((&http.Client{Transport: tr}).Do(req))(t)
			resp.Body.Close()
			harness.ErrorIf(t, resp.StatusCode != http.StatusOK, "%s", resp.Status)
			srv.Close() // its span has ended
			s.check()
		})
	}
}

type tracedServer struct {
	pb.UnimplementedTestServiceServer
	*traced
}

func (s tracedServer) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	s.handle(ctx)
	return new(pb.SimpleResponse), nil
}

func TestTraceContextGoesAlongOverGRPC(t *testing.T) {
	s := newTraced(t)
	opts := []otelgrpc.Option{otelgrpc.WithTracerProvider(s.provider), otelgrpc.WithPropagators(s.w3c)}
	l := harness.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	srv := grpc.NewServer(grpc.StatsHandler(otelgrpc.NewServerHandler(opts...)),
		grpc.UnaryInterceptor(grpclock.UnaryDelegationInterceptor(s.callee, s.checker)))
	pb.RegisterTestServiceServer(srv, tracedServer{traced: s})
	go srv.Serve(l)
	defer srv.Stop()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(opts...)),
		grpc.WithUnaryInterceptor(grpclock.UnaryClientInterceptor(s.issuer,
			grpclock.Services{"grpc.testing.TestService": "b"})))
	harness.OK(t, err)
	defer conn.Close()
	harness.Must(pb.NewTestServiceClient(conn).UnaryCall(s.ctx, new(pb.SimpleRequest)))(t)
	srv.GracefulStop()
	s.check()
}
