package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/console"
)

func consoleCommand(s *settings) *cobra.Command {
	var listen string
	var unlock, anywhere bool
	c := &cobra.Command{
		Use:   "console",
		Short: "Show the locks in a browser, live; by default only to this machine",
		Long: `Serve a page with the locks, live, until it is interrupted, and write its address. Each user who reaches the
address sees the page; so it is an address of this machine, unless --anywhere permits another. With --unlock each user
of this machine may free locks; --anywhere is refused then. Each unlock is a line on the standard error.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.resolve(); err != nil {
				return err
			}
			if unlock && s.readOnly {
				return errReadOnly
			}
			if unlock && anywhere {
				return &coded{codeUsage, errors.New("--unlock asks no user for a password; leave out --anywhere")}
			}
			o := console.Options{Prefix: s.prefix, About: s.inForce(), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
			if unlock {
				o.Authorize = startedBy
			}
			l, err := listenOn(listen, anywhere)
			if err != nil {
				return err
			}
			defer l.Close()
			return untilInterrupted(s, func(ctx context.Context, locks *mortise.Client) error {
				h := console.New(locks, o)
				defer h.Close()
				fmt.Fprintf(c.OutOrStdout(), "http://%s/\n", l.Addr())
				return servePages(ctx, l, h, anywhere)
			})
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:7780", "address to listen on; port 0 chooses one")
	c.Flags().BoolVar(&unlock, "unlock", false, "permit to free locks from the page")
	c.Flags().BoolVar(&anywhere, "anywhere", false, "permit an address that other machines reach; protect it")
	return c
}

// startedBy permits each user of this machine; the log names the user who started the program.
func startedBy(*http.Request, string) (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", err
	}
	return "console of " + u.Username, nil
}

// listenOn listens on a loopback address, or on any.
func listenOn(address string, anywhere bool) (net.Listener, error) {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, &coded{codeUsage, err}
	}
	if !anywhere && !a.IP.IsLoopback() {
		return nil, &coded{codeUsage, errors.New("other machines reach " + address + "; --anywhere permits it")}
	}
	return net.ListenTCP("tcp", a)
}

// headersWithin bounds the time for the headers of a request.
const headersWithin = 10 * time.Second

// servePages serves until ctx ends.
func servePages(ctx context.Context, l net.Listener, h *console.Handler, anywhere bool) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: headersWithin}
	if !anywhere {
		server.Handler = onlyLoopback(h)
	}
	ended := context.AfterFunc(ctx, func() { server.Close() })
	defer ended()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// onlyLoopback refuses requests to other names: a site whose name is made to resolve to this machine would be the
// same site as the page for a browser.
func onlyLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "this page is for the machine that it runs on", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
