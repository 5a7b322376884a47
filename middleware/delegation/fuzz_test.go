package delegation

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

func fuzzRing(f *testing.F) *Ring {
	f.Helper()
	return check.Value(NewRing(NewKey("k1", []byte("a secret of the fuzz test: thirty-two bytes and more")))).In(f)
}

func fuzzEntry(delegations ...Delegation) Entry {
	issued := time.UnixMilli(1_790_000_000_000).UTC()
	p := Entry{Key: "k1", Audience: "stock", Issued: issued, Expires: issued.Add(DefaultLifetime),
		Delegations: delegations}
	for i := range p.Delegations {
		p.Delegations[i].Expires = p.Expires
	}
	return p
}

// Whatever comes: no panic, one of three errors, bounded work; and what can be read has exactly one text, so that
// it cannot be read in another way. It is authentic only if its issuer would have written the same.
func FuzzDecode(f *testing.F) {
	r := fuzzRing(f)
	for _, p := range []Entry{
		fuzzEntry(Delegation{Name: "orders:42", Owner: "web-1/4711/abc:7", Hold: 1}),
		fuzzEntry(Delegation{Name: "{t}:ü", Owner: "w/1/a:1", Hold: 3, Token: 1 << 40},
			Delegation{Name: "b", Owner: "w/1/a:2", Hold: 1}),
	} {
		entry := check.Value(p.Sign(context.Background(), r)).In(f)
		f.Add(entry)
		f.Add(entry[:len(entry)/2])
		f.Add(entry + ", " + entry)
	}
	f.Add("")
	f.Add("m1.")
	f.Add("m1." + strings.Repeat("_", 4093))
	f.Add("m1.\r\n")
	f.Fuzz(func(t *testing.T, entry string) {
		p, message, signature, err := decode(entry)
		if err != nil {
			check.FatalIf(t, !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrOversize) && !errors.Is(err, ErrVersion),
				"neither malformed, oversize nor of another version: %v", err)
			check.FatalIf(t, !reflect.DeepEqual(p, Entry{}) || message != nil || signature != nil || len(err.Error()) > 200,
				"with an error: %+v, %v", p, err)
			return
		}
		if err := p.check(); err != nil {
			t.Fatalf("read, but could not have been written: %v", err)
		}
		check.FatalIf(t, len(p.Delegations) > MaxDelegations || len(entry) > MaxEntry, "beyond the bounds")
		got := domain + string(p.encode(nil))
		check.FatalIf(t, got != string(message), "what was read is written as\n%x\nit was\n%x", got, message)
		again := prefix + base64url.EncodeToString(appendText([]byte(message[len(domain):]), string(signature)))
		check.FatalIf(t, again != entry, "a second text of the same:\n%s\n%s", entry, again)
		mine, err := p.Sign(context.Background(), r)
		authentic := r.Verify(context.Background(), p.Key, message, signature) == nil
		check.FatalIf(t, authentic != (err == nil && mine == entry),
			"authentic: %v; its issuer writes %q, %v", authentic, mine, err)
	})
}

// What is written is read as it was, or is refused where it is written.
func FuzzDecodeOfEncoded(f *testing.F) {
	r := fuzzRing(f)
	f.Add("stock", "orders:42", "web-1/4711/abc:7", int64(1), int64(0), "b", uint8(1), int64(0), int64(30_000))
	f.Add("s", "a\x00b", "o:1", int64(2147483647), int64(1)<<62, "a", uint8(16), int64(253402300700000), int64(99_999))
	f.Fuzz(func(t *testing.T, audience, name, owner string, hold, token int64, second string, delegations uint8, issued,
		life int64) {
		p := Entry{Key: "k1", Audience: audience, Issued: time.UnixMilli(issued).UTC()}
		p.Expires = time.UnixMilli(issued + life).UTC()
		for i := range int(delegations) {
			c := Delegation{Name: name, Owner: owner, Hold: int(hold), Token: token, Expires: p.Expires}
			if i%2 == 1 {
				c.Name = second
			}
			p.Delegations = append(p.Delegations, c)
		}
		entry, err := p.Sign(context.Background(), r)
		if err != nil {
			check.FatalIf(t, !errors.Is(err, mortise.ErrInvalid) && !errors.Is(err, ErrOversize) && !errors.Is(err, ErrExpired),
				"%v", err)
			return
		}
		got, message, signature, err := decode(entry)
		check.FatalIf(t, err != nil || !reflect.DeepEqual(got, p), "written %+v, read %+v, %v", p, got, err)
		check.NoError(t, r.Verify(context.Background(), got.Key, message, signature))
	})
}
