package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortise-go/mortise"
)

// The bounds of bench: it ends by itself, and is a small load.
const (
	benchLongest = time.Minute
	benchCallers = 256
	benchSamples = 1 << 20 // of all callers: a row that has as many ends
)

func benchCommand(s *settings) *cobra.Command {
	var each time.Duration
	var callers int
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure locks on the store from here, for some seconds, with names of its own",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if each <= 0 || each > benchLongest || callers < 1 || callers > benchCallers {
				return &coded{codeUsage, fmt.Errorf("--time is more than 0 and at most %v, --callers 1 to %d",
					benchLongest, benchCallers)}
			}
			if err := s.mayChange(); err != nil {
				return err
			}
			return untilInterrupted(s, func(ctx context.Context, locks *mortise.Client) error {
				fmt.Fprintln(c.OutOrStdout(), s.inForce())
				err := bench(ctx, locks, c.OutOrStdout(), each, callers)
				if ctx.Err() != nil { // interrupted: the rows so far are there
					return nil
				}
				return err
			})
		},
	}
	c.Flags().DurationVar(&each, "time", 2*time.Second, "how long each row is measured")
	c.Flags().IntVar(&callers, "callers", 8, "how many callers there are")
	return c
}

// bench writes a table: how often a second a thing was done, and how long it took.
func bench(ctx context.Context, locks *mortise.Client, w io.Writer, each time.Duration, callers int) error {
	const name = "mortise-bench" // the same each time: a store may keep something of each name
	turn := func(ctx context.Context, name string) (time.Duration, error) {
		begun := time.Now()
		lease, err := locks.Lock(ctx, name)
		took := time.Since(begun)
		if err != nil {
			return 0, err
		}
		return took, lease.Unlock(context.WithoutCancel(ctx))
	}
	ping := func(ctx context.Context, _ int) (time.Duration, error) {
		begun := time.Now()
		err := locks.Ping(ctx)
		return time.Since(begun), err
	}
	shared := func(ctx context.Context, _ int) (time.Duration, error) { return turn(ctx, name) }
	own := func(ctx context.Context, caller int) (time.Duration, error) {
		return turn(ctx, fmt.Sprint(name, ":", caller))
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "WORK\tA SECOND\tMEDIAN\tP99\tLONGEST")
	for _, row := range []struct {
		what    string
		callers int
		do      work
	}{
		{"a ping", 1, ping},
		{"Lock and Unlock, 1 caller", 1, shared},
		{fmt.Sprintf("Lock and Unlock, %d callers, a name each", callers), callers, own},
		{fmt.Sprintf("Lock and Unlock, %d callers, one name", callers), callers, shared},
	} {
		took, lasted, err := measured(ctx, each, row.callers, row.do)
		if err != nil {
			return errors.Join(err, t.Flush())
		}
		slices.Sort(took)
		at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))].Round(time.Microsecond) }
		fmt.Fprintf(t, "%s\t%.0f\t%v\t%v\t%v\n", row.what, float64(len(took))/lasted.Seconds(), at(.5), at(.99), at(1))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nThe times are those of a ping, and of Lock: with one name it waits for the others. "+
		"All callers are in this process,\nwhere one hands the lock to the next, mostly without the store.")
	return err
}

// work is what a caller does once; it returns how long the part took that is measured.
type work func(ctx context.Context, caller int) (time.Duration, error)

// measured has callers do work again and again, for a time, and at least once each. It returns how long each took.
func measured(
	ctx context.Context, each time.Duration, callers int, do work,
) (took []time.Duration, lasted time.Duration, failed error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	begun := time.Now()
	for i := range callers {
		wg.Go(func() {
			var mine []time.Duration
			var err error
			most := max(1, benchSamples/callers)
			for d := time.Duration(0); err == nil && len(mine) < most && (mine == nil || time.Since(begun) < each); {
				if d, err = do(ctx, i); err == nil {
					mine = append(mine, d)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
			if err != nil && failed == nil {
				failed = err
				cancel() // the others end, too
			}
		})
	}
	wg.Wait()
	return took, time.Since(begun), failed
}
