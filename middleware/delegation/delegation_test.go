package delegation_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/semaphore"
)

var ctx = context.Background()

func key(id string) delegation.Key {
	secret := make([]byte, delegation.MinSecret)
	for i := range secret {
		secret[i] = byte(i)
	}
	copy(secret, id)
	return delegation.NewKey(id, secret)
}

func ring(t testing.TB, primary string, others ...string) *delegation.Ring {
	t.Helper()
	var more []delegation.Key
	for _, id := range others {
		more = append(more, key(id))
	}
	return check.Value(delegation.NewRing(key(primary), more...)).In(t)
}

// valid is an entry that stock accepts now.
func valid() delegation.Entry {
	now := time.Now().UTC().Truncate(time.Millisecond)
	expires := now.Add(20 * time.Second)
	return delegation.Entry{
		Key: "k1", Audience: "stock", Issued: now, Expires: expires,
		Delegations: []delegation.Delegation{
			{Name: "orders:42", Owner: "web-1/4711/abc:7", Hold: 2, Token: 17, Expires: expires},
			{Name: "ordern:\u00fc{x}", Owner: "web-1/4711/abc:8", Hold: 1, Expires: expires},
		},
	}
}

func sign(t testing.TB, p delegation.Entry, s delegation.Signer) string {
	t.Helper()
	return check.Value(p.Sign(ctx, s)).In(t)
}

func TestAnEntrySaysWhatWasSigned(t *testing.T) {
	r, p := ring(t, "k1"), valid()
	entry := sign(t, p, r)
	got, err := middle.Checker(t, r, "stock").Check(ctx, entry)
	check.ErrorIf(t, err != nil || !reflect.DeepEqual(got, p), "got %+v, %v; want %+v", got, err, p)
	seen, err := delegation.Decode(entry)
	check.ErrorIf(t, err != nil || !reflect.DeepEqual(seen, p), "Decode: %+v, %v", seen, err)
	check.ErrorIf(t, sign(t, p, r) != entry, "two entries of one Entry differ")
	for _, c := range entry {
		check.ErrorIf(t, c <= ' ' || c >= 127 || strings.ContainsRune("\",;\\", c), "%q does not belong into a header", c)
	}
}

// watchedIssued and watchedChecked keep what an observer is told.
func watchedIssued(events *[]delegation.IssuedEvent) delegation.Option {
	return delegation.WithObserver(delegation.Observer{
		Issued: func(e delegation.IssuedEvent) { *events = append(*events, e) },
	})
}

func watchedChecked(events *[]delegation.CheckedEvent) delegation.Option {
	return delegation.WithObserver(delegation.Observer{
		Checked: func(e delegation.CheckedEvent) { *events = append(*events, e) },
	})
}

// raw is what base64 hides, and back.
func raw(t testing.TB, entry string) []byte {
	t.Helper()
	return check.Value(base64.RawURLEncoding.DecodeString(strings.TrimPrefix(entry, "m1."))).In(t)
}

func text(raw []byte) string { return "m1." + base64.RawURLEncoding.EncodeToString(raw) }

// Each refusal by its own error, and by no other's.
func TestRefusals(t *testing.T) {
	r := ring(t, "k1", "k0")
	entry := sign(t, valid(), r)
	altered := func(change func(*delegation.Entry)) []string {
		p := valid()
		change(&p)
		return []string{sign(t, p, r)}
	}
	whole := raw(t, entry)
	issuedAt := 2 + len("k1") + 2 + len("stock") // then expires, eight bytes each, and the delegations
	ownerAt, signatureAt := bytes.Index(whole, []byte("abc:7"))+5, len(whole)-32
	edited := func(change func([]byte) []byte) []string { return []string{text(change(slices.Clone(whole)))} }
	replaced := func(old, new string) []string {
		return []string{text(bytes.Replace(whole, []byte(old), []byte(new), 1))}
	}
	written := func(at int, what ...byte) []string {
		return edited(func(b []byte) []byte { copy(b[at:], what); return b })
	}
	flipped := func(at int) []string { return written(at, whole[at]^1) }
	all := []error{
		delegation.ErrDuplicated, delegation.ErrOversize, delegation.ErrVersion, delegation.ErrMalformed,
		delegation.ErrUnknownKey,
		delegation.ErrTampered,
		delegation.ErrUnverified, delegation.ErrWrongAudience, delegation.ErrLifetime, delegation.ErrNotYetValid,
		delegation.ErrExpired, delegation.ErrForbidden,
	}
	for _, test := range []struct {
		name    string
		entries []string
		want    error
	}{
		{"none", nil, delegation.ErrMalformed},
		{"empty", []string{""}, delegation.ErrVersion},
		{"two entries", []string{entry, entry}, delegation.ErrDuplicated},
		{"two entries, the first is nothing", []string{"", entry}, delegation.ErrDuplicated},
		{"two entries in one field", []string{entry + ", " + entry}, delegation.ErrDuplicated},
		{"too long", []string{entry + strings.Repeat("A", delegation.MaxEntry)}, delegation.ErrOversize},
		{"far too long", []string{strings.Repeat(entry+",", 1000)}, delegation.ErrOversize},
		{"a name beyond its bound", written(0, 0xff, 0xff), delegation.ErrOversize},
		{"too many delegations", written(issuedAt+16, 0, delegation.MaxDelegations+1), delegation.ErrOversize},
		{"it expires as it is issued", written(issuedAt+8, whole[issuedAt:issuedAt+8]...), delegation.ErrMalformed},
		{"no delegations", written(issuedAt+16, 0, 0), delegation.ErrMalformed},
		{"another version", []string{"m2" + entry[2:]}, delegation.ErrVersion},
		{"a token of somebody else's", []string{"eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0."}, delegation.ErrVersion},
		{"cut off", []string{text(whole[:60])}, delegation.ErrMalformed},
		{"without its signature", []string{text(whole[:signatureAt-2])}, delegation.ErrMalformed},
		{"an empty signature", []string{text(append(whole[:signatureAt-2:signatureAt-2], 0, 0))}, delegation.ErrMalformed},
		{"something after the signature", []string{text(append(whole, 0))}, delegation.ErrMalformed},
		{"line breaks, which base64 decoders skip", []string{entry[:40] + "\r\n" + entry[40:]}, delegation.ErrMalformed},
		{"padded", []string{entry + "="}, delegation.ErrMalformed},
		{"the other alphabet", []string{entry[:40] + "+" + entry[41:]}, delegation.ErrMalformed},
		{"not UTF-8", written(bytes.Index(whole, []byte("orders")), 0xff), delegation.ErrMalformed},
		{"another lock's name", replaced("orders:42", "orders:43"), delegation.ErrTampered},
		{"another owner", replaced("abc:7", "abc:9"), delegation.ErrTampered},
		{"another hold", flipped(ownerAt + 7), delegation.ErrTampered},
		{"another token", flipped(ownerAt + 8 + 7), delegation.ErrTampered},
		{"another audience", replaced("stock", "stack"), delegation.ErrTampered},
		{"a longer life", edited(func(b []byte) []byte {
			expires := b[issuedAt+8 : issuedAt+16]
			binary.BigEndian.PutUint64(expires, binary.BigEndian.Uint64(expires)+1000)
			return b
		}), delegation.ErrTampered},
		{"another key of the ring", replaced("k1", "k0"), delegation.ErrTampered},
		{"another signature", flipped(len(whole) - 1), delegation.ErrTampered},
		{"half a signature", edited(func(b []byte) []byte { b[signatureAt-1] = 16; return b[:signatureAt+16] }),
			delegation.ErrTampered},
		{"a key that was made up", []string{sign(t, valid(), ring(t, "k2"))}, delegation.ErrUnknownKey},
		{"a key's id that would be a field of the log", []string{sign(t, valid(), ring(t, `k" level=ERROR msg="forged`))},
			delegation.ErrUnknownKey},
		{"a key's id of two lines", replaced("k1", "k\n"), delegation.ErrMalformed},
		{"an audience of two lines", replaced("stock", "st\nck"), delegation.ErrMalformed},
		{"an owner of two lines", replaced("abc:7", "a\nc:7"), delegation.ErrMalformed},
		{"a key's id with another secret", []string{sign(t, valid(), func() delegation.Signer {
			k := key("k2")
			k.ID = "k1"
			return check.Value(delegation.NewRing(k)).In(t)
		}())}, delegation.ErrTampered},
		{"made out to another service", altered(func(p *delegation.Entry) { p.Audience = "billing" }),
			delegation.ErrWrongAudience},
		{"made out to one whose name is as long", altered(func(p *delegation.Entry) { p.Audience = "stack" }),
			delegation.ErrWrongAudience},
		{"made out to one whose name begins so", altered(func(p *delegation.Entry) { p.Audience = "stock2" }),
			delegation.ErrWrongAudience},
		{"expired", altered(func(p *delegation.Entry) {
			p.Issued, p.Expires = p.Issued.Add(-time.Minute), p.Issued.Add(-delegation.DefaultSkew-time.Second)
		}), delegation.ErrExpired},
		{"from the future", altered(func(p *delegation.Entry) {
			p.Issued, p.Expires = p.Issued.Add(time.Minute), p.Expires.Add(time.Minute)
		}), delegation.ErrNotYetValid},
		{"for a year", altered(func(p *delegation.Entry) { p.Expires = p.Issued.AddDate(1, 0, 0) }),
			delegation.ErrLifetime},
		{"not allowed", []string{entry}, delegation.ErrForbidden},
		{"a verifier that fails", []string{entry}, delegation.ErrUnverified},
	} {
		t.Run(test.name, func(t *testing.T) {
			var (
				events []delegation.CheckedEvent
				log    strings.Builder
			)
			via, opts := delegation.Verifier(r), []delegation.Option{
				watchedChecked(&events),
				delegation.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			}
			switch test.want {
			case delegation.ErrUnverified:
				via = middle.Away{}
			case delegation.ErrForbidden:
				opts = append(opts, delegation.WithPolicy(func(_ context.Context, p delegation.Entry) error {
					return fmt.Errorf("key %s may not name %s", p.Key, p.Delegations[0].Name)
				}))
			}
			p, err := middle.Checker(t, via, "stock", opts...).Check(ctx, test.entries...)
			check.FatalIf(t, !errors.Is(err, test.want) || !reflect.DeepEqual(p, delegation.Entry{}),
				"got %+v, %v; want %v", p, err, test.want)
			for _, other := range all {
				check.ErrorIf(t, other != test.want && errors.Is(err, other), "it is %v as well: %v", other, err)
			}
			check.ErrorIf(t, len(events) != 1 || !errors.Is(events[0].Err, test.want), "observed: %+v", events)
			reason := delegation.Reason(err)
			check.ErrorIf(t, reason == "error" || !strings.Contains(log.String(), "reason="+reason) ||
				strings.Count(log.String(), "\n") != 1,
				"logged: %s", log.String())
			check.ErrorIf(t, len(log.String()) > 600 || strings.Contains(log.String(), entry[3:40]),
				"the log shows the entry: %s", log.String())
		})
	}
}

// Any one bit that is changed, and any cut.
func TestNoBitCanBeChanged(t *testing.T) {
	r := ring(t, "k1", "k0")
	c, whole := middle.Checker(t, r, "stock"), raw(t, sign(t, valid(), ring(t, "k1")))
	for i := range len(whole) * 8 {
		b := slices.Clone(whole)
		b[i/8] ^= 1 << (i % 8)
		p, err := c.Check(ctx, text(b))
		check.ErrorIf(t, err == nil, "bit %d: accepted as %+v", i, p)
	}
	for n := range whole {
		p, err := c.Check(ctx, text(whole[:n]))
		check.ErrorIf(t, err == nil, "cut to %d: accepted as %+v", n, p)
	}
}

// There is one text of an entry, whatever its length: no line break that decoders skip, no bits after
// the last that they ignore.
func TestThereIsOneText(t *testing.T) {
	r := ring(t, "k1")
	c := middle.Checker(t, r, "stock")
	for n := range 4 { // the lengths' remainders
		p := valid()
		p.Delegations[0].Name += strings.Repeat("x", n)
		entry := sign(t, p, r)
		check.NoError(t, check.Err(c.Check(ctx, entry)))
		for _, at := range []int{0, 1, 2, 3, 4, 50, len(entry) - 1, len(entry)} {
			for _, skipped := range []string{"\n", "\r", "\r\n", " ", "\x00", "="} {
				_, err := c.Check(ctx, entry[:at]+skipped+entry[at:])
				check.ErrorIf(t, err == nil, "with %q at %d of %d: accepted", skipped, at, len(entry))
			}
		}
		for _, last := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
			other := entry[:len(entry)-1] + string(last)
			_, err := c.Check(ctx, other)
			check.ErrorIf(t, other != entry && err == nil, "with %c at its end: accepted", last)
		}
	}
}

// Each field is bounded by its own limit, before anything else is known of it.
func TestBounds(t *testing.T) {
	field := func(n int) []byte { return append([]byte{byte(n >> 8), byte(n)}, bytes.Repeat([]byte{'x'}, n)...) }
	build := func(key, audience, name, owner, signature int) string {
		b := append(field(key), field(audience)...)
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1)
		b = append(append(b, field(name)...), field(owner)...)
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
		return text(append(b, field(signature)...))
	}
	most := [5]int{delegation.MaxKeyID, delegation.MaxAudience, delegation.MaxName, delegation.MaxOwner,
		delegation.MaxSignature}
	p, err := delegation.Decode(build(most[0], most[1], most[2], most[3], most[4]))
	check.ErrorIf(t, err != nil || len(p.Delegations) != 1, "all at their bounds: %v", err)
	for i := range most {
		for n, want := range map[int]error{most[i] + 1: delegation.ErrOversize, 0: delegation.ErrMalformed} {
			x := [5]int{1, 1, 1, 1, 1}
			x[i] = n
			_, err := delegation.Decode(build(x[0], x[1], x[2], x[3], x[4]))
			check.ErrorIf(t, !errors.Is(err, want), "field %d of %d bytes: %v, want %v", i, n, err, want)
		}
	}
}

func TestClocksMayDifferByTheSkew(t *testing.T) {
	for _, skew := range []time.Duration{0, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := ring(t, "k1")
			c := middle.Checker(t, r, "stock", delegation.WithSkew(skew))
			p := valid()
			at := func(issued time.Duration) error {
				p := p
				p.Expires = p.Issued.Add(issued + 10*time.Second)
				p.Issued = p.Issued.Add(issued)
				_, err := c.Check(ctx, sign(t, p, r))
				return err
			}
			const tick = time.Millisecond
			for _, test := range []struct {
				issued time.Duration
				want   error
			}{
				{skew, nil},
				{skew + tick, delegation.ErrNotYetValid},
				{-10*time.Second - skew + tick, nil},
				{-10*time.Second - skew, delegation.ErrExpired},
			} {
				err := at(test.issued)
				check.ErrorIf(t, !errors.Is(err, test.want) || test.want == nil && err != nil,
					"skew %v, issued %v from now: %v, want %v", skew, test.issued, err, test.want)
			}
		})
	}
}

func TestRotation(t *testing.T) {
	a, b := ring(t, "k1"), ring(t, "k1")
	c := middle.Checker(t, b, "stock")
	passes := func(when string) {
		t.Helper()
		_, err := c.Check(ctx, sign(t, valid(), a))
		check.ErrorIf(t, err != nil, "%s: %v", when, err)
	}
	old := sign(t, valid(), a)
	passes("before")
	rotate(t, b, "k1", "k2")
	passes("the new key verifies at b")
	rotate(t, a, "k2", "k1")
	passes("the new key signs at a")
	p, err := delegation.Decode(sign(t, valid(), a))
	check.ErrorIf(t, err != nil || p.Key != "k2", "signed by %q, %v", p.Key, err)
	rotate(t, b, "k2", "k1")
	_, err = c.Check(ctx, old)
	check.ErrorIf(t, err != nil, "an entry from before: %v", err)
	rotate(t, b, "k2")
	passes("the old key is gone")
	_, err = c.Check(ctx, old)
	check.ErrorIf(t, !errors.Is(err, delegation.ErrUnknownKey), "an entry of a retired key: %v", err)
}

func TestBadKeys(t *testing.T) {
	long := key("k")
	long.ID = strings.Repeat("k", delegation.MaxKeyID+1)
	short := delegation.NewKey("k", make([]byte, delegation.MinSecret-1))
	nameless := key("")
	r := ring(t, "k1")
	for name, keys := range map[string][]delegation.Key{
		"short":        {short},
		"short, other": {key("k1"), short},
		"zeros":        {delegation.NewKey("k", make([]byte, 64))},
		"no secret":    {{ID: "k"}},
		"no id":        {nameless},
		"two lines":    {key("k\n")},
		"long id":      {long},
		"not UTF-8":    {key("\xff")},
		"twice":        {key("k1"), key("k1")},
	} {
		got, err := delegation.NewRing(keys[0], keys[1:]...)
		check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid) || got != nil, "%s: %v, %v", name, got, err)
		if err := r.Rotate(keys[0], keys[1:]...); !errors.Is(err, mortise.ErrInvalid) || r.Current() != "k1" {
			t.Errorf("%s: Rotate: %v, the primary is %q", name, err, r.Current())
		}
	}
	secret := []byte("a secret of a test: thirty-two bytes and more")
	kept := delegation.NewKey("k1", secret)
	theirs := check.Value(delegation.NewRing(delegation.NewKey("k1", secret))).In(t)
	clear(secret) // a caller that clears its own
	mine := check.Value(delegation.NewRing(kept)).In(t)
	check.Done(t, check.Err(middle.Checker(t, theirs, "stock").Check(ctx, sign(t, valid(), mine))))
}

func TestOptionsThatDoNotApply(t *testing.T) {
	r := ring(t, "k1")
	for name, opt := range map[string]delegation.Option{
		"WithLongest": delegation.WithLongest(time.Minute), "WithSkew": delegation.WithSkew(0),
		"WithPolicy":             delegation.WithPolicy(func(context.Context, delegation.Entry) error { return nil }),
		"a lifetime too short":   delegation.WithLifetime(time.Second - 1),
		"a lifetime too long":    delegation.WithLifetime(delegation.MaxLifetime + 1),
		"no function":            delegation.WithNameFilter(nil),
		"no logger":              delegation.WithLogger(nil),
		"the zero value, issuer": {},
	} {
		i, err := delegation.NewIssuer(r, opt)
		check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid) || i != nil, "NewIssuer, %s: %v", name, err)
	}
	for name, opt := range map[string]delegation.Option{
		"WithLifetime":      delegation.WithLifetime(time.Minute),
		"WithNameFilter":    delegation.WithNameFilter(func(_, _ string) bool { return true }),
		"a skew below zero": delegation.WithSkew(-1), "a skew too long": delegation.WithSkew(delegation.MaxLifetime + 1),
		"too short": delegation.WithLongest(0), "no policy": delegation.WithPolicy(nil),
		"no logger": delegation.WithLogger(nil),
	} {
		c, err := delegation.NewChecker(r, "stock", opt)
		check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid) || c != nil, "NewChecker, %s: %v", name, err)
	}
	_, err := delegation.NewIssuer(nil)
	check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid), "%v", err)
	for _, audience := range []string{"", "\xff", strings.Repeat("a", delegation.MaxAudience+1)} {
		_, err := delegation.NewChecker(r, audience)
		check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid), "%v", err)
	}
	_, err = delegation.NewChecker(nil, "stock")
	check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid), "%v", err)
}

func lock(t testing.TB, c mortise.Locker, ctx context.Context, name string, opts ...mortise.Option) *mortise.Lease {
	t.Helper()
	l := check.Value(c.Lock(ctx, name, opts...)).In(t)
	t.Cleanup(func() { l.Unlock(context.Background()) })
	return l
}

func TestAnIssuerClaimsWhatTheContextHolds(t *testing.T) {
	r := ring(t, "k1")
	var events []delegation.IssuedEvent
	i := middle.Issuer(t, r, watchedIssued(&events))
	if entry, err := i.Issue(ctx, "stock"); entry != "" || err != nil || len(events) != 0 {
		t.Fatalf("of a context that holds nothing: %q, %v, %v", entry, err, events)
	}
	c := middle.InMemory(t, memory.New())
	outer := lock(t, c, ctx, "tenants:7")
	inner := lock(t, c, outer.Context(), "orders:42")
	entry, err := i.Issue(inner.Context(), "stock")
	check.NoError(t, err)
	p, err := middle.Checker(t, r, "stock").Check(ctx, entry)
	check.FatalIf(t, err != nil || len(p.Delegations) != 2 || p.Delegations[0].Name != "orders:42" ||
		p.Delegations[1].Name != "tenants:7" || p.Delegations[0].Hold != 1,
		"%+v, %v", p, err)
	state, err := c.Inspect(ctx, "orders:42")
	check.ErrorIf(t, err != nil || p.Delegations[0].Owner != state.Owner,
		"the delegation's owner is %q, the store's %q, %v", p.Delegations[0].Owner, state.Owner, err)
	check.ErrorIf(t, len(events) != 1 || events[0].Delegations != 2 || events[0].LeftOut != 0 ||
		events[0].Bytes != len(entry) || events[0].Err != nil,
		"%+v", events)
	check.NoError(t, inner.Unlock(ctx))
	if entry, err := i.Issue(outer.Context(), "stock"); err != nil || entry == "" {
		t.Error("the outer lease's context:", entry, err)
	}
	if entry, err := i.Issue(inner.Context(), "stock"); err != nil {
		t.Error(entry, err)
	} else if p, err := delegation.Decode(entry); err != nil || len(p.Delegations) != 1 ||
		p.Delegations[0].Name != "tenants:7" {
		t.Errorf("of a context whose lease has ended: %+v, %v", p, err)
	}
}

// An entry lives for as long as its lifetime, and never longer than the lease as it stands.
func TestAnEntryExpiresWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := ring(t, "k1"), middle.InMemory(t, memory.New())
		for _, test := range []struct {
			lease, lifetime, want time.Duration
		}{
			{time.Minute, 30 * time.Second, 30 * time.Second},
			{time.Minute, 10 * time.Second, 10 * time.Second},
			{4 * time.Second, 30 * time.Second, 4 * time.Second},
		} {
			l := lock(t, c, ctx, "orders:42", mortise.WithLease(test.lease))
			entry, err := middle.Issuer(t, r, delegation.WithLifetime(test.lifetime)).Issue(l.Context(), "stock")
			check.NoError(t, err)
			p, err := delegation.Decode(entry)
			life := p.Expires.Sub(p.Issued)
			check.ErrorIf(t, err != nil || life > test.want || life < test.want-test.want/50, "%+v: %v, %v", test, life, err)
			l.Unlock(ctx)
		}
		c.Close()
		synctest.Wait()
	})
}

// A service that locks nothing itself hands on what it was told, for as long as that was good.
func TestADelegationThatIsHandedOnLivesNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := ring(t, "k1"), memory.New()
		client := func() *mortise.Client { return check.Value(mortise.New(store)).In(t) }
		a, b, c := client(), client(), client()
		l := lock(t, a, ctx, "orders:42")
		toB := check.Value(middle.Issuer(t, r).Issue(l.Context(), "b")).In(t)
		first := check.Value(delegation.Decode(toB)).In(t)
		within := check.Value(middle.Checker(t, r, "b").Accept(ctx, b, toB)).In(t)
		time.Sleep(10 * time.Second)
		toC := check.Value(middle.Issuer(t, r).Issue(within, "c")).In(t)
		p, err := delegation.Decode(toC)
		check.ErrorIf(t, err != nil || !p.Expires.Equal(first.Expires),
			"it expires %v, %v; that which came, %v", p.Expires, err, first.Expires)
		entered := check.Value(middle.Checker(t, r, "c").Accept(ctx, c, toC)).In(t)
		check.Done(t, check.Value(c.TryLock(entered, "orders:42")).In(t).Unlock(ctx))
		time.Sleep(time.Until(first.Expires))
		late, err := middle.Issuer(t, r).Issue(within, "c")
		check.ErrorIf(t, late != "" || err != nil, "after its time: %q, %v", late, err)
		check.Done(t, l.Unlock(ctx))
		for _, x := range []*mortise.Client{a, b, c} {
			x.Close()
		}
		synctest.Wait()
	})
}

// The format is frozen: an entry of this version, byte by byte.
func TestTheFormat(t *testing.T) {
	r := check.Value(delegation.NewRing(delegation.NewKey("k", []byte("0123456789abcdef0123456789abcdef")))).In(t)
	p := delegation.Entry{Audience: "b", Issued: time.UnixMilli(1_000), Expires: time.UnixMilli(31_000),
		Delegations: []delegation.Delegation{{Name: "x", Owner: "w:1", Hold: 2, Token: 3}}}
	const want = "m1.AAFrAAFiAAAAAAAAA-gAAAAAAAB5GAABAAF4AAN3OjEAAAAAAAAAAgAAAAAAAAADACCvqB62x9XZK" +
		"07Q2VIfM3i4xnqm3JpRtYTsNHblYOVaTg"
	check.Equal(t, "got %s", sign(t, p, r), want)
	message, signature, _ := strings.Cut(string(raw(t, want)), "\x00\x20")
	h := hmac.New(sha256.New, []byte("0123456789abcdef0123456789abcdef"))
	io.WriteString(h, "github.com/mortise-go/mortise/middleware/delegation m1\x00"+message)
	check.ErrorIf(t, !hmac.Equal(h.Sum(nil), []byte(signature)), "the signature is not of what the documentation says")
}

func TestWhatDoesNotFitIsLeftOut(t *testing.T) {
	r, c := ring(t, "k1"), middle.InMemory(t, memory.New())
	var (
		events []delegation.IssuedEvent
		log    strings.Builder
	)
	i := middle.Issuer(t, r, watchedIssued(&events), delegation.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	long := strings.Repeat("n", delegation.MaxName)
	in := lock(t, c, ctx, "the outermost")
	for n := range 6 {
		in = lock(t, c, in.Context(), fmt.Sprint(long[:delegation.MaxName-1], n))
	}
	in = lock(t, c, in.Context(), long+"n")
	in = lock(t, c, in.Context(), "orders:42")
	entry, err := i.Issue(in.Context(), "stock")
	if err != nil || len(entry) > delegation.MaxEntry {
		t.Fatal(len(entry), err)
	}
	p, err := middle.Checker(t, r, "stock").Check(ctx, entry)
	check.FatalIf(t, err != nil || p.Delegations[0].Name != "orders:42" ||
		p.Delegations[1].Name != long[:delegation.MaxName-1]+"5",
		"%+v, %v", p, err)
	e := events[0]
	check.ErrorIf(t, e.Delegations != len(p.Delegations) || e.Delegations+e.LeftOut != 9 || e.LeftOut < 4,
		"%d delegations, %d left out", e.Delegations, e.LeftOut)
	check.ErrorIf(t, !strings.Contains(log.String(), "left_out=") || strings.Contains(log.String(), "nnnn"),
		"logged: %s", log.String())
}

// nested locks names, each under the one before, and returns the innermost lease's context.
func nested(t *testing.T, c *mortise.Client, names ...string) context.Context {
	t.Helper()
	in := ctx
	for _, n := range names {
		in = lock(t, c, in, n).Context()
	}
	return in
}

// numbered returns n names.
func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	return names
}

// Holds beyond MaxDelegations are left out as others are: counted, and logged.
func TestHoldsBeyondMaxDelegationsAreCountedAndLogged(t *testing.T) {
	c := middle.InMemory(t, memory.New())
	all := check.Value(c.LockAll(ctx, numbered(20))).In(t)
	defer all.Unlock(ctx)
	for what, in := range map[string]context.Context{
		"nested":  nested(t, middle.InMemory(t, memory.New()), numbered(20)...),
		"LockAll": all.Context(),
	} {
		var (
			events []delegation.IssuedEvent
			log    strings.Builder
		)
		i := middle.Issuer(t, ring(t, "k1"), watchedIssued(&events),
			delegation.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		p := check.Value(delegation.Decode(check.Value(i.Issue(in, "stock")).In(t))).In(t)
		check.Equal(t, what+": %d delegations in the entry", len(p.Delegations), delegation.MaxDelegations)
		check.FatalIf(t, len(events) != 1, "%s: %d events", what, len(events))
		check.Equal(t, what+": %d delegations", events[0].Delegations, delegation.MaxDelegations)
		check.Equal(t, what+": %d left out", events[0].LeftOut, 4)
		check.ErrorIf(t, !strings.Contains(log.String(), "left_out=4 delegations=16"), "%s: logged: %s", what, log.String())
	}
}

// Holds of kinds without delegations are counted with each call, and logged once for an audience.
func TestHoldsWithoutDelegationsAreCountedAndLogged(t *testing.T) {
	c := middle.InMemory(t, memory.New())
	quorum := check.Value(quorum.New(c, middle.InMemory(t, memory.New()), middle.InMemory(t, memory.New()))).In(t)
	lock := func(l mortise.Locker) func(context.Context, *testing.T) context.Context {
		return func(ctx context.Context, t *testing.T) context.Context { return holding(ctx, t, l) }
	}
	for kind, take := range map[string]func(context.Context, *testing.T) context.Context{
		"read": lock(c.RW().Read), "write": lock(c.RW().Write), "quorum": lock(quorum),
		"permit": func(ctx context.Context, t *testing.T) context.Context {
			permit := check.Value(semaphore.New(c, "pool", 9).Acquire(ctx, 1)).In(t)
			t.Cleanup(func() { permit.Release(context.Background()) })
			return permit.Context()
		},
	} {
		for _, with := range []bool{false, true} { // a plain lock, which has a delegation
			t.Run(fmt.Sprintf("%s, with a plain lock: %v", kind, with), func(t *testing.T) {
				in := ctx
				if with {
					in = middle.Holding(t, c, "orders:42").Context()
				}
				in = take(in, t)
				var (
					events []delegation.IssuedEvent
					log    strings.Builder
				)
				i := middle.Issuer(t, ring(t, "k1"), watchedIssued(&events),
					delegation.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				for range 2 {
					entry := check.Value(i.Issue(in, "stock")).In(t)
					check.ErrorIf(t, (entry != "") != with, "the entry is %q", entry)
				}
				check.FatalIf(t, len(events) != 2, "%d events", len(events))
				check.ErrorIf(t, events[0].LeftOut != 1 || events[1].LeftOut != 1, "left out: %+v", events)
				check.Equal(t, "logged %d times", strings.Count(log.String(), "left_out=1"), 1)
			})
		}
	}
}

// A Locker of the program's own may use another context than it is given. Then the context of LockAll joins both, and
// the hold of Quorum is found twice.
func TestAHoldWithoutADelegationCountsOnceUnderLockAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := middle.InMemory(t, memory.New())
		quorum := check.Value(quorum.New(c, middle.InMemory(t, memory.New()), middle.InMemory(t, memory.New()))).In(t)
		in := holding(ctx, t, quorum)
		parts := mortise.Parts{}.And(c, "a").And(under{c, in}, "b")
		both := check.Value(parts.Lock(in)).In(t)
		var events []delegation.IssuedEvent
		_ = check.Value(middle.Issuer(t, ring(t, "k1"), watchedIssued(&events)).Issue(both.Context(), "stock")).In(t)
		check.Equal(t, "%d left out", events[0].LeftOut, 1)
	})
}

// under is a Locker whose leases' contexts are children of a context of its own.
type under struct {
	mortise.Locker
	ctx context.Context
}

func (u under) Lock(_ context.Context, name string, opts ...mortise.Option) (*mortise.Lease, error) {
	return u.Locker.Lock(u.ctx, name, opts...)
}

func (u under) TryLock(_ context.Context, name string, opts ...mortise.Option) (*mortise.Lease, error) {
	return u.Locker.TryLock(u.ctx, name, opts...)
}

// A delegation need not say when it ends: the store decides.
func TestADelegationWithoutAnEndIsHandedOn(t *testing.T) {
	c := middle.InMemory(t, memory.New())
	in := check.Value(delegation.NewContext(ctx, c, delegation.Delegation{Name: "orders:42", Owner: "w:1", Hold: 1})).In(t)
	check.Equal(t, "%d delegations", len(delegation.FromContext(in)), 1)
	p := check.Value(delegation.Decode(check.Value(middle.Issuer(t, ring(t, "k1")).Issue(in, "stock")).In(t))).In(t)
	check.Equal(t, "the entry lives for %v", p.Expires.Sub(p.Issued), delegation.DefaultLifetime)
}

// Inner holds that a service must not know of keep no outer hold out.
func TestAPermittedHoldIsToldThoughMaxDelegationsInnerOnesAreNot(t *testing.T) {
	var events []delegation.IssuedEvent
	i := middle.Issuer(t, ring(t, "k1"), watchedIssued(&events), delegation.WithNameFilter(
		func(_, name string) bool { return name == "orders:42" }))
	in := nested(t, middle.InMemory(t, memory.New()),
		append([]string{"orders:42"}, numbered(delegation.MaxDelegations)...)...)
	p := check.Value(delegation.Decode(check.Value(i.Issue(in, "stock")).In(t))).In(t)
	check.ErrorIf(t, len(p.Delegations) != 1 || p.Delegations[0].Name != "orders:42", "told of %+v", p.Delegations)
	check.Equal(t, "%d left out", events[0].LeftOut, delegation.MaxDelegations)
}

// One that does not fit keeps no shorter one out, though that is further out.
func TestAShortDelegationGoesWhereALongerOneDoesNotFit(t *testing.T) {
	c := middle.InMemory(t, memory.New())
	in := lock(t, c, ctx, "short")
	for _, n := range []string{"3", "2", "1"} {
		in = lock(t, c, in.Context(), n+strings.Repeat("n", 1000))
	}
	entry := check.Value(middle.Issuer(t, ring(t, "k1")).Issue(in.Context(), "stock")).In(t)
	p := check.Value(delegation.Decode(entry)).In(t)
	var told []string
	for _, d := range p.Delegations {
		told = append(told, d.Name[:1])
	}
	check.Equal(t, "told of %v", strings.Join(told, " "), "1 2 s")
}

// A service is told of nothing but what it may know of.
func TestWithNameFilter(t *testing.T) {
	r, c := ring(t, "k1"), middle.InMemory(t, memory.New())
	i := middle.Issuer(t, r, delegation.WithNameFilter(func(audience, name string) bool {
		return strings.HasPrefix(name, audience+":")
	}))
	outer := lock(t, c, ctx, "billing:7")
	inner := lock(t, c, outer.Context(), "stock:42")
	entry := check.Value(i.Issue(inner.Context(), "stock")).In(t)
	p, err := delegation.Decode(entry)
	check.ErrorIf(t, err != nil || len(p.Delegations) != 1 || p.Delegations[0].Name != "stock:42", "%+v, %v", p, err)
	if entry, err := i.Issue(inner.Context(), "mail"); entry != "" || err != nil {
		t.Errorf("%q, %v", entry, err)
	}
}

// A key for each pair of services: what one may sign for another, it may not for a third.
func TestWithSignerFor(t *testing.T) {
	c := middle.InMemory(t, memory.New())
	l := lock(t, c, ctx, "orders:42")
	i := middle.Issuer(t, ring(t, "a-stock"), delegation.WithSignerFor("billing", ring(t, "a-billing")))
	stock, billing := middle.Checker(t, ring(t, "b-stock", "a-stock"), "stock"), middle.Checker(t, ring(t, "a-billing"),
		"billing")
	for audience, c := range map[string]*delegation.Checker{"stock": stock, "billing": billing} {
		entry := check.Value(i.Issue(l.Context(), audience)).In(t)
		if p, err := c.Check(ctx, entry); err != nil || p.Key != "a-"+audience {
			t.Errorf("%s: %+v, %v", audience, p, err)
		}
	}
	p := valid()
	p.Audience = "billing"
	_, err := billing.Check(ctx, sign(t, p, ring(t, "a-stock")))
	check.ErrorIf(t, !errors.Is(err, delegation.ErrUnknownKey), "stock's keys at billing: %v", err)
	for _, o := range []delegation.Option{delegation.WithSignerFor("", ring(t, "k")), delegation.WithSignerFor("x", nil)} {
		_, err := delegation.NewIssuer(ring(t, "k"), o)
		check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid), "%v", err)
	}
}

// A signature that only one service can make.
type edKey struct {
	private ed25519.PrivateKey
}

func (k edKey) Current() string { return "orders-ed25519" }

func (k edKey) Sign(_ context.Context, _ string, message []byte) ([]byte, error) {
	return ed25519.Sign(k.private, message), nil
}

func (k edKey) Verify(_ context.Context, key string, message, signature []byte) error {
	switch {
	case key != k.Current():
		return delegation.ErrUnknownKey
	case !ed25519.Verify(k.private.Public().(ed25519.PublicKey), message, signature):
		return delegation.ErrTampered
	}
	return nil
}

func TestOtherSigners(t *testing.T) {
	k := edKey{ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}
	entry := sign(t, valid(), k)
	c := middle.Checker(t, k, "stock")
	p, err := c.Check(ctx, entry)
	check.ErrorIf(t, err != nil || p.Key != "orders-ed25519", "%+v, %v", p, err)
	b := raw(t, entry)
	b[len(b)-1] ^= 1
	_, err = c.Check(ctx, text(b))
	check.ErrorIf(t, !errors.Is(err, delegation.ErrTampered), "%v", err)
	_, err = c.Check(ctx, sign(t, valid(), ring(t, "k1")))
	check.ErrorIf(t, !errors.Is(err, delegation.ErrUnknownKey), "%v", err)
}

type badSigner struct {
	id        string
	signature []byte
	err       error
}

func (s badSigner) Current() string { return s.id }

func (s badSigner) Sign(context.Context, string, []byte) ([]byte, error) { return s.signature, s.err }

func TestSignersThatFail(t *testing.T) {
	c := middle.InMemory(t, memory.New())
	l := lock(t, c, ctx, "orders:42")
	away := errors.New("the key service is away")
	for _, test := range []struct {
		signer badSigner
		want   error
	}{
		{badSigner{id: "k", err: away}, away},
		{badSigner{id: "k"}, mortise.ErrInvalid},
		{badSigner{id: "k", signature: make([]byte, delegation.MaxSignature+1)}, mortise.ErrInvalid},
		{badSigner{signature: make([]byte, 32)}, mortise.ErrInvalid},
		{badSigner{id: "k", err: delegation.ErrUnknownKey}, delegation.ErrUnknownKey},
	} {
		var events []delegation.IssuedEvent
		i := middle.Issuer(t, test.signer, watchedIssued(&events))
		entry, err := i.Issue(l.Context(), "stock")
		check.ErrorIf(t, !errors.Is(err, test.want) || entry != "" || len(events) != 1 || events[0].Err != err,
			"%+v: %q, %v, %+v", test.signer, entry, err, events)
	}
	for _, audience := range []string{"", "\xff", strings.Repeat("a", delegation.MaxAudience+1)} {
		entry, err := middle.Issuer(t, ring(t, "k1")).Issue(l.Context(), audience)
		check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid) || entry != "", "audience %q: %q, %v", audience, entry, err)
	}
}

// rotating is a ring whose primary is retired between Current and Sign, once.
type rotating struct {
	*delegation.Ring
	t    testing.TB
	done bool
}

func (r *rotating) Sign(ctx context.Context, key string, message []byte) ([]byte, error) {
	if !r.done {
		r.done = true
		rotate(r.t, r.Ring, "k2")
	}
	return r.Ring.Sign(ctx, key, message)
}

func rotate(t testing.TB, r *delegation.Ring, primary string, others ...string) {
	t.Helper()
	var more []delegation.Key
	for _, id := range others {
		more = append(more, key(id))
	}
	check.NoError(t, r.Rotate(key(primary), more...))
}

func TestAKeyThatIsRotatedWhileItSigns(t *testing.T) {
	c := middle.InMemory(t, memory.New())
	l := lock(t, c, ctx, "orders:42")
	entry := check.Value(middle.Issuer(t, &rotating{Ring: ring(t, "k1"), t: t}).Issue(l.Context(), "stock")).In(t)
	p, err := middle.Checker(t, ring(t, "k2"), "stock").Check(ctx, entry)
	check.ErrorIf(t, err != nil || p.Key != "k2", "%+v, %v", p, err)
}

// What cannot be read is not written.
func TestNothingIsSignedThatCannotBeRead(t *testing.T) {
	r := ring(t, "k1")
	for name, change := range map[string]func(*delegation.Entry){
		"no delegations": func(p *delegation.Entry) { p.Delegations = nil },
		"too many": func(p *delegation.Entry) {
			p.Delegations = slices.Repeat(p.Delegations, delegation.MaxDelegations)
		},
		"a name too long": func(p *delegation.Entry) {
			p.Delegations[0].Name = strings.Repeat("n", delegation.MaxName+1)
		},
		"no name":             func(p *delegation.Entry) { p.Delegations[0].Name = "" },
		"no owner":            func(p *delegation.Entry) { p.Delegations[0].Owner = "" },
		"owner not UTF-8":     func(p *delegation.Entry) { p.Delegations[0].Owner = "\xff" },
		"hold 0":              func(p *delegation.Entry) { p.Delegations[0].Hold = 0 },
		"a token below 0":     func(p *delegation.Entry) { p.Delegations[0].Token = -1 },
		"before 1970":         func(p *delegation.Entry) { p.Issued = time.UnixMilli(-1) },
		"after the year 9999": func(p *delegation.Entry) { p.Expires = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"over at once":        func(p *delegation.Entry) { p.Expires = p.Issued },
		"all names longest": func(p *delegation.Entry) {
			p.Delegations[0].Name = strings.Repeat("n", delegation.MaxName)
			p.Delegations = slices.Repeat(p.Delegations[:1], 3)
			p.Delegations[0].Owner = strings.Repeat("o", delegation.MaxOwner)
		},
	} {
		p := valid()
		change(&p)
		entry, err := p.Sign(ctx, r)
		check.ErrorIf(t, err == nil || entry != "", "%s: %q", name, entry)
	}
}

func TestReasons(t *testing.T) {
	check.Equal(t, "%v", delegation.Reason(nil), "")
	check.Equal(t, "%v", delegation.Reason(errors.New("x")), "error")
	check.Equal(t, "%v", delegation.Reason(fmt.Errorf("x: %w", delegation.ErrTampered)), "tampered")
}

// holding is the context of a lock that is taken under ctx, until the end of the test.
func holding(ctx context.Context, t *testing.T, l mortise.Locker) context.Context {
	held := check.Value(l.Lock(ctx, "held")).In(t)
	t.Cleanup(func() { held.Unlock(context.Background()) })
	return held.Context()
}
