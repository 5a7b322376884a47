package once_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	goruedis "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/once"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
)

// fleet is processes that run one schedule. It runs in a synctest bubble, whose clock begins with
// the year 2000.
type fleet struct {
	t     *testing.T
	store *memory.Store
	mu    sync.Mutex
	runs  []run
	errs  []error
}

// run is one call of a process's function.
type run struct {
	process     int
	at, started time.Time
}

func newFleet(t *testing.T) *fleet { return &fleet{t: t, store: memory.New()} }

// every runs a process until ctx ends; each of its runs takes so long.
func (f *fleet) every(ctx context.Context, process int, interval, takes time.Duration, opts ...once.Option) (
	result <-chan error) {
	client := check.Value(mortise.New(f.store)).In(f.t)
	done := make(chan error, 1)
	opts = append(opts, once.OnError(func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.errs = append(f.errs, err)
	}))
	go func() {
		defer client.Close()
		done <- once.Every(ctx, client, "n", interval, func(_ context.Context, at time.Time) {
			f.mu.Lock()
			f.runs = append(f.runs, run{process, at, time.Now()})
			f.mu.Unlock()
			time.Sleep(takes)
		}, opts...)
	}()
	return done
}

// ticks are the seconds since the fleet began of the ticks that were started, in the order of their
// starts.
func (f *fleet) ticks(begin time.Time) (all []float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.runs {
		all = append(all, r.at.Sub(begin).Seconds())
	}
	return all
}

func TestEachTickIsStartedOnceInTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, begin := newFleet(t), time.Now()
		ctx, stop := context.WithCancel(t.Context())
		var done []<-chan error
		for p := range 3 {
			done = append(done, f.every(ctx, p, time.Second, 10*time.Millisecond))
		}
		time.Sleep(100*time.Second + time.Second/2)
		stop()
		for _, d := range done {
			if err := <-d; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `every "n"`) {
				t.Error(err)
			}
		}
		var want []float64
		for i := range 100 { // the first tick is the one after the fleet began
			want = append(want, float64(i+1))
		}
		if got := f.ticks(begin); !slices.Equal(got, want) {
			t.Errorf("ticks %v were started, want each of the first 100 seconds once", got)
		}
		for _, r := range f.runs {
			if late := r.started.Sub(r.at); late < 0 || late > 10*time.Millisecond {
				t.Errorf("the tick at %v was started %v late", r.at, late)
			}
		}
	})
}

func TestTheOffsetMovesTheTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		ctx, stop := context.WithCancel(t.Context())
		done := f.every(ctx, 1, 24*time.Hour, 0, once.Offset(3*time.Hour))
		time.Sleep(50 * time.Hour)
		stop()
		<-done
		if len(f.runs) != 2 || f.runs[0].at.UTC().Format("15:04:05.000") != "03:00:00.000" {
			t.Errorf("%v, want two runs at 03:00", f.runs)
		}
	})
}

func TestARunThatTakesLongerThanTheInterval(t *testing.T) {
	const takes = 2500 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		f, begin := newFleet(t), time.Now()
		ctx, stop := context.WithTimeout(t.Context(), 8*time.Second)
		defer stop()
		<-f.every(ctx, 1, time.Second, takes)
		// The newest tick is started when the run before it is over, and those between them are dropped.
		if got := f.ticks(begin); !slices.Equal(got, []float64{1, 3, 6}) {
			t.Errorf("a process alone started %v, want 1, 3 and 6", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f, begin := newFleet(t), time.Now()
		ctx, stop := context.WithTimeout(t.Context(), 8100*time.Millisecond)
		defer stop()
		var done []<-chan error
		for p := range 3 {
			done = append(done, f.every(ctx, p, time.Second, takes))
		}
		for _, d := range done {
			<-d
		}
		if got := f.ticks(begin); !slices.Equal(got, []float64{1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("three processes started %v, want each tick: one runs while the others are busy", got)
		}
		free := make(map[int]time.Time)
		for _, r := range f.runs {
			if r.started.Before(free[r.process]) {
				t.Errorf("runs overlap in process %d: %v", r.process, f.runs)
			}
			free[r.process] = r.started.Add(takes)
		}
	})
}

func TestTicksOfAnOutage(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []once.Option
		want []float64
	}{
		{"the newest is started, those before are dropped", nil, []float64{10, 20, 80, 90, 100}},
		{"three are made up", []once.Option{once.CatchUp(3)}, []float64{10, 20, 50, 60, 70, 80, 90, 100}},
		{"all are made up", []once.Option{once.CatchUp(100)}, []float64{10, 20, 30, 40, 50, 60, 70, 80, 90, 100}},
		{"late ones are dropped", []once.Option{once.MaxLate(500 * time.Millisecond)}, []float64{10, 20, 90, 100}},
		{"those are made up that are not too late", []once.Option{once.CatchUp(100), once.MaxLate(30 * time.Second)},
			[]float64{10, 20, 60, 70, 80, 90, 100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, begin := newFleet(t), time.Now()
				ctx, stop := context.WithTimeout(t.Context(), 105*time.Second)
				defer stop()
				done := f.every(ctx, 1, 10*time.Second, 0, c.opts...)
				time.Sleep(25 * time.Second)
				f.store.SetDown(errors.New("gone"))
				time.Sleep(56 * time.Second) // a process that found it down asks again within 5 s
				f.store.SetDown(nil)
				<-done
				if got := f.ticks(begin); !slices.Equal(got, c.want) {
					t.Errorf("%v were started, want %v", got, c.want)
				}
				if len(f.errs) == 0 || !errors.Is(f.errs[0], mortise.ErrUnavailable) || len(f.errs) > 40 {
					t.Errorf("%d errors were told: %v", len(f.errs), f.errs)
				}
			})
		})
	}
}

// The store remembers the last tick while the whole fleet is stopped.
func TestTicksAfterAStopOfTheFleet(t *testing.T) {
	for _, c := range []struct {
		name string
		stop time.Duration
		opts []once.Option
		want []float64 // days
	}{
		{"over a weekend: the newest is started", 3 * 24 * time.Hour, nil, []float64{1, 4}},
		{"longer than what can be made up: that much is", 9 * 24 * time.Hour, []once.Option{once.CatchUp(2)},
			[]float64{1, 8, 9, 10}},
		{"longer than the name is known: as a new name", 33 * 24 * time.Hour, nil, []float64{1, 35}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const day = 24 * time.Hour
				f, begin := newFleet(t), time.Now()
				run := func(d time.Duration) {
					ctx, stop := context.WithTimeout(t.Context(), d)
					defer stop()
					<-f.every(ctx, 1, day, 0, c.opts...)
				}
				run(day + time.Hour)
				time.Sleep(c.stop)
				run(time.Hour)
				if len(f.ticks(begin)) == 1 {
					run(day)
				}
				got := f.ticks(begin)
				for i := range got {
					got[i] /= day.Seconds()
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("the ticks of days %v were started, want %v", got, c.want)
				}
			})
		})
	}
}

func TestAProcessThatBeginsLaterTakesPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, begin := newFleet(t), time.Now()
		first, stop := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer stop()
		<-f.every(first, 1, time.Second, 0)
		time.Sleep(3 * time.Second)
		second, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		<-f.every(second, 2, time.Second, 0)
		if got := f.ticks(begin); !slices.Equal(got, []float64{1, 2, 5, 6, 7}) {
			t.Errorf("%v were started, want 1, 2, and from 5 on, whose time was not over", got)
		}
	})
}

func TestAChangedIntervalStartsLaterTicksOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, begin := newFleet(t), time.Now()
		ctx, stop := context.WithTimeout(t.Context(), 12500*time.Millisecond)
		defer stop()
		quick := f.every(ctx, 1, 2*time.Second, 0)
		slow := f.every(ctx, 2, 3*time.Second, 0)
		<-quick
		<-slow
		if got := f.ticks(begin); !slices.Equal(got, []float64{2, 3, 4, 6, 8, 9, 10, 12}) {
			t.Errorf("%v were started, want the ticks of both, each once", got)
		}
	})
}

// A claim whose outcome is unknown is repeated as it is, and one that was answered never is.
func TestAClaimIsRepeatedWithItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var ids []string
		at := time.UnixMilli(5000)
		started := 0
		err := once.EveryBy(ctx, func(r once.TickRequest) (once.Tick, error) {
			switch ids = append(ids, r.ID); len(ids) {
			case 1, 2:
				return once.Tick{}, mortise.ErrUnavailable
			case 3:
				return once.Tick{Claimed: true, At: at, Next: time.Second}, nil
			case 4:
				return once.Tick{Next: time.Second}, nil
			}
			stop()
			return once.Tick{}, mortise.ErrUnavailable
		}, time.Second, func(_ context.Context, a time.Time) {
			if started++; !a.Equal(at) {
				t.Errorf("the tick's time is %v", a)
			}
		})
		if !errors.Is(err, context.Canceled) || started != 1 {
			t.Errorf("%v; started %d times", err, started)
		}
		if ids[0] != ids[1] || ids[1] != ids[2] || ids[2] == ids[3] || ids[3] == ids[4] {
			t.Errorf("the claims' IDs were %q", ids)
		}
	})
}

// clocked is a store of one schedule of seconds, whose clock is ahead of the bubble's by skew.
type clocked struct {
	mu   sync.Mutex
	last int64 // the last started tick, in seconds; zero before the first request
	skew time.Duration
}

func (c *clocked) claim(once.TickRequest) (once.Tick, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().Add(c.skew)
	claimed := c.last > 0 && now.Unix() > c.last
	if claimed || c.last == 0 {
		c.last = now.Unix()
	}
	return once.Tick{Claimed: claimed, At: time.Unix(c.last, 0), Next: time.Unix(c.last+1, 0).Sub(now)}, nil
}

func (c *clocked) set(skew time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew = skew
}

// The store's clock is half a minute behind for two seconds, and right again.
func TestTicksGoOnOnceTheStoresClockIsRightAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 12500*time.Millisecond)
		defer stop()
		begin, store := time.Now(), new(clocked)
		var (
			mu   sync.Mutex
			runs []float64
			errs []error
		)
		var done sync.WaitGroup
		for range 3 {
			done.Go(func() {
				once.EveryBy(ctx, store.claim, time.Second, func(_ context.Context, at time.Time) {
					mu.Lock()
					defer mu.Unlock()
					runs = append(runs, at.Sub(begin).Seconds())
				}, once.OnError(func(err error) {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				}))
			})
		}
		time.Sleep(4500 * time.Millisecond)
		store.set(-30 * time.Second)
		time.Sleep(2 * time.Second)
		store.set(0)
		done.Wait()
		if want := []float64{1, 2, 3, 4, 7, 8, 9, 10, 11, 12}; !slices.Equal(runs, want) {
			t.Errorf("ticks %v were started, want %v", runs, want)
		}
		if len(errs) != 6 || !strings.Contains(errs[0].Error(), "29s ahead of the store's clock") {
			t.Errorf("told %v, want the clock's error each second by each process", errs)
		}
	})
}

// The store's clock was ahead for a while, so the last started tick is in its future for an hour.
func TestTheStoreIsAskedWithinSecondsWhileTheLastTickIsAhead(t *testing.T) {
	for interval, want := range map[time.Duration]int{ // claims in a minute
		10 * time.Millisecond: 61, time.Second: 61, 3 * time.Second: 21, time.Minute: 13,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), time.Minute+time.Second/2)
			defer stop()
			asked, told := 0, []error(nil)
			once.EveryBy(ctx, func(once.TickRequest) (once.Tick, error) {
				asked++
				return once.Tick{Next: time.Hour}, nil
			}, interval, func(context.Context, time.Time) { t.Error("started") },
				once.OnError(func(err error) { told = append(told, err) }))
			if asked != want || len(told) != want || !errors.Is(told[0], mortise.ErrNotAcquired) ||
				!strings.Contains(told[0].Error(), fmt.Sprintf("%v ahead of the store's clock", time.Hour-interval)) {
				t.Errorf("every %v: asked %d times in a minute, want %d; told %v", interval, asked, want, told[:1])
			}
		})
	}
}

// A program that starts Every with go, and gives no OnError, sees in the client's log and metrics that no tick starts.
func TestAnOutageIsLoggedAndCountedWithoutOnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		w := new(witness)
		client := check.Value(mortise.New(store, w.options()...)).In(t)
		ctx, stop := context.WithTimeout(t.Context(), 40*time.Second)
		defer stop()
		time.AfterFunc(3500*time.Millisecond, func() { store.SetDown(errors.New("gone")) })
		time.AfterFunc(28500*time.Millisecond, func() { store.SetDown(nil) })
		once.Every(ctx, client, "n", time.Second, func(context.Context, time.Time) {})
		client.Close()
		// Three ticks before; and after the outage the 29th at the latest 5 s late, and the others until the 39th.
		if failed := w.count(mortise.ErrUnavailable); failed < 7 || w.granted < 9 || w.granted > 15 {
			t.Errorf("the observer was told of %d ticks and %d failures", w.granted, failed)
		}
		lines := strings.Split(strings.TrimSpace(w.log.String()), "\n")
		if len(lines) < 3 || len(lines) > 4 ||
			!strings.Contains(lines[0], `level=WARN msg="mortise: claim of a tick failed`) ||
			!strings.Contains(lines[0], "name=n") || !strings.Contains(lines[1], "claims=") {
			t.Errorf("the log of an outage of 25 s: %q", lines)
		}
	})
}

// witness keeps what a client tells its logger and its observer about ticks.
type witness struct {
	log strings.Builder

	mu      sync.Mutex
	granted int
	refused []error
}

func (w *witness) options() []mortise.ClientOption {
	return []mortise.ClientOption{
		mortise.WithLogger(slog.New(slog.NewTextHandler(&w.log, nil))),
		mortise.WithObserver(mortise.Observer{
			Acquired: func(e mortise.Event) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if e.Kind == "tick" && e.Name == "n" {
					w.granted++
				}
			},
			NotAcquired: func(e mortise.Event) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if e.Kind == "tick" && e.Name == "n" {
					w.refused = append(w.refused, e.Err)
				}
			},
		}),
	}
}

func (w *witness) count(target error) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range w.refused {
		if errors.Is(err, target) {
			n++
		}
	}
	return n
}

// The record says what a server whose clock was ahead leaves behind: the last started tick is half a minute ahead.
func TestALastTickAheadOnAServer(t *testing.T) {
	check.Long(t)
	server := redistest.Start(t)
	single := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer single.Close()
	for name, b := range map[string]backend.Backend{
		"go-redis": redisgo.New(single),
		"rueidis":  rueidis.New(goruedis.ClientOption{InitAddress: []string{server.Addr()}}),
	} {
		t.Run(name, func(t *testing.T) {
			at := func(d time.Duration) {
				server.Must("SET", "mortise:1:tick:{n}", fmt.Sprint(time.Now().Add(d).UnixMilli(), ":an-id"))
			}
			at(30 * time.Second)
			w := new(witness)
			client := check.Value(mortise.New(b, w.options()...)).In(t)
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second) // far less than the half minute
			defer stop()
			var told atomic.Int32
			started := false
			once.Every(ctx, client, "n", 100*time.Millisecond, func(context.Context, time.Time) { started = true; stop() },
				once.OnError(func(error) {
					if told.Add(1) == 1 {
						at(-time.Second) // the clock is right again
					}
				}))
			client.Close()
			if !started || told.Load() != 1 || w.count(mortise.ErrNotAcquired) != 1 || w.granted != 1 {
				t.Errorf("a tick was started: %v; told %d times, the observer %d times", started, told.Load(), len(w.refused))
			}
			const line = `level=WARN msg="mortise: no tick starts: the last started tick is ahead of the store's clock" ` +
				`name=n ahead=`
			if !strings.Contains(w.log.String(), line) {
				t.Errorf("the log: %q", w.log.String())
			}
		})
	}
}

func TestWhatWillNotPassIsReturned(t *testing.T) {
	client := check.Value(mortise.New(memory.New())).In(t)
	fn := func(context.Context, time.Time) {}
	ctx := t.Context()
	var none context.Context
	for what, c := range map[string]struct {
		err  error
		want error
	}{
		"a nil function":  {once.Every(ctx, client, "n", time.Second, nil), mortise.ErrInvalid},
		"a nil client":    {once.Every(ctx, nil, "n", time.Second, fn), mortise.ErrInvalid},
		"a nil context":   {once.Every(none, client, "n", time.Second, fn), mortise.ErrInvalid},
		"a bad name":      {once.Every(ctx, client, "", time.Second, fn), mortise.ErrInvalidName},
		"no interval":     {once.Every(ctx, client, "n", 0, fn), mortise.ErrInvalid},
		"a zero MaxLate":  {once.Every(ctx, client, "n", time.Second, fn, once.MaxLate(0)), mortise.ErrInvalid},
		"a long Offset":   {once.Every(ctx, client, "n", time.Second, fn, once.Offset(time.Second)), mortise.ErrInvalid},
		"a CatchUp of -1": {once.Every(ctx, client, "n", time.Second, fn, once.CatchUp(-1)), mortise.ErrInvalid},
		"a zero Client":   {once.Every(ctx, new(mortise.Client), "n", time.Second, fn), mortise.ErrInvalid},
		"a nil option":    {once.Every(ctx, client, "n", time.Second, fn, nil), mortise.ErrInvalid},
		"a nil OnError":   {once.Every(ctx, client, "n", time.Second, fn, once.OnError(nil)), mortise.ErrInvalid},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", what, c.err, c.want)
		}
	}
	for want, opt := range map[string]once.Option{
		"MaxLate(0s): ": once.MaxLate(0), "MaxLate(-5s): ": once.MaxLate(-5 * time.Second),
		"a MaxLate of 1ns; whole milliseconds": once.MaxLate(1), "an offset of 1ns; whole milliseconds": once.Offset(1),
		"an offset of -1ns; 0 or more": once.Offset(-1),
	} {
		if err := once.Every(ctx, client, "n", time.Second, fn, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	client.Close()
	if err := once.Every(ctx, client, "n", time.Second, fn); !errors.Is(err, mortise.ErrClosed) {
		t.Errorf("of a closed client: %v", err)
	}
}

func TestAPanicIsTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := check.Value(mortise.New(memory.New())).In(t)
		defer client.Close()
		defer func() {
			if got := fmt.Sprint(recover()); got != "mine" {
				t.Errorf("recovered %q", got)
			}
		}()
		once.Every(t.Context(), client, "n", time.Second, func(context.Context, time.Time) { panic("mine") })
	})
}
