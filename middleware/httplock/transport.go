package httplock

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/mortise-go/mortise/middleware/delegation"
)

// Origins names the services to send delegations to: the service's name by its origin, such as
// "https://stock.internal" or "http://127.0.0.1:8080". An origin is scheme, host and, if not the
// scheme's default, port. Any reader of a sent delegation can use the delegation: choose https on
// networks with other listeners.
type Origins map[string]string

// NewTransport makes a client's transport that tells the services of origins about the locks held
// by a request's context; the services then enter the locks instead of waiting for them (see
// package delegation, and [AcceptDelegations]). Requests to other origins go to base unchanged, and
// so does a request whose context holds nothing. A nil base is http.DefaultTransport.
//
//	origins := httplock.Origins{"https://stock.internal": "stock"}
//	client := &http.Client{Transport: httplock.NewTransport(nil, issuer, origins)}
//
// An existing [delegation.Header] of a request, also in its trailer, is removed, wherever the
// request goes: the header of an incoming request is never sent on. After a server's redirect to
// another origin, the other origin is told nothing, even if listed in origins; nor is a host other
// than the URL's: with an Opaque part, or a Host other than the URL's. A reverse proxy with
// delegations therefore has to clear the request's Host.
//
// RoundTrip fails, without sending, if the issuer's signer fails. RoundTrip may be called
// concurrently, as for any transport, and alters no request.
//
// NewTransport panics if issuer is nil, an origin is invalid (write an international domain name in
// its ASCII form, xn--...), or a service's name is empty or too long. Cost: no command, and a
// header of about 200 bytes.
func NewTransport(base http.RoundTripper, issuer *delegation.Issuer, origins Origins) http.RoundTripper {
	if issuer == nil {
		panic("httplock: NewTransport: the Issuer must not be nil")
	}
	if base == nil {
		base = http.DefaultTransport
	}
	t := &transport{base: base, issuer: issuer, audiences: make(map[string]string, len(origins))}
	for o, audience := range origins {
		u, err := url.Parse(o)
		if err != nil || originOf(u) == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
			panic(fmt.Sprintf("httplock: NewTransport: %q is no origin; it is one like https://stock.internal:8443", o))
		}
		if audience == "" || len(audience) > delegation.MaxAudience {
			panic(fmt.Sprintf("httplock: NewTransport: the service at %s needs a name, of %d bytes at most",
				o, delegation.MaxAudience))
		}
		if other, twice := t.audiences[originOf(u)]; twice && other != audience {
			panic(fmt.Sprintf("httplock: NewTransport: %s is both %q and %q", o, other, audience))
		}
		t.audiences[originOf(u)] = audience
	}
	return t
}

type transport struct {
	base      http.RoundTripper
	issuer    *delegation.Issuer
	audiences map[string]string // by origin
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var entry string
	if audience, ok := t.audiences[originOf(r.URL)]; ok && plain(r) && !redirected(r) {
		var err error
		if entry, err = t.issuer.Issue(r.Context(), audience); err != nil {
			if r.Body != nil {
				r.Body.Close()
			}
			return nil, err
		}
	}
	if has := carries(r.Header); entry != "" || has || r.Trailer != nil {
		copied := *r
		copied.Header = r.Header.Clone()
		if has {
			remove(copied.Header)
		}
		if entry != "" {
			if copied.Header == nil {
				copied.Header = make(http.Header, 1)
			}
			copied.Header[delegation.Header] = []string{entry}
		}
		cleanOutgoingTrailer(&copied)
		r = &copied
	}
	return t.base.RoundTrip(r)
}

// remove removes the delegation header, in upper or lower case.
func remove(h http.Header) {
	for name := range h {
		if strings.EqualFold(name, delegation.Header) {
			delete(h, name)
		}
	}
}

// cleanOutgoingTrailer makes r, a copy, send a trailer without the delegation header. The caller may fill in its own
// trailer until the body's end, so the values are copied then.
func cleanOutgoingTrailer(r *http.Request) {
	theirs := r.Trailer
	if theirs == nil {
		return
	}
	clean := theirs.Clone()
	remove(clean)
	r.Trailer = clean
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	r.Body = &endingBody{r.Body, func() {
		for name, values := range theirs {
			clean[name] = values
		}
		remove(clean)
	}}
}

// endingBody calls atEnd when a read reaches the body's end.
type endingBody struct {
	io.ReadCloser
	atEnd func()
}

func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.atEnd()
	}
	return n, err
}

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// carries reports whether h has a delegation header, in upper or lower case: net/http sends names as they stand in h.
func carries(h http.Header) bool {
	for name := range h {
		if len(name) == len(delegation.Header) && strings.EqualFold(name, delegation.Header) {
			return true
		}
	}
	return false
}

// redirected reports whether r follows a redirect by another, or an unknown, origin.
func redirected(r *http.Request) bool {
	to := originOf(r.URL)
	for by := r.Response; by != nil; by = by.Request.Response {
		if by.Request == nil || originOf(by.Request.URL) != to { // nil: some transports do not set it
			return true
		}
	}
	return false
}

// plain reports whether r goes to the host in its URL.
func plain(r *http.Request) bool {
	host := &url.URL{Scheme: r.URL.Scheme, Host: r.Host}
	return r.URL.Opaque == "" && (r.Host == "" || originOf(host) == originOf(r.URL))
}

// originOf returns scheme, host and port of u; "" if u is no http or https URL with a host. A host that is not ASCII
// counts as none: its lower case may be the name of another host, and the name that net/http dials is neither.
func originOf(u *url.URL) string {
	if u == nil || u.Hostname() == "" {
		return ""
	}
	for _, c := range []byte(u.Hostname()) {
		if c >= 0x80 {
			return ""
		}
	}
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	switch {
	case scheme != "http" && scheme != "https":
		return ""
	case port != "":
	case scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
