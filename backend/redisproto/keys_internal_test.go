package redisproto

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/backend"
)

// companions are the keys of mortise's own that stand beside a name's record, each built for a
// name. Redisson's are Redisson's: n and {n} share those. So do they share nestKey, whose entries
// are each one owner's; see there.
var companions = map[string]func(name string) string{
	"next":   entriesKey,
	"writer": claimKey,
	"once": func(name string) string {
		return onceKey(backend.CountRequest{Topic: backend.Topic{Kind: backend.KindCountingSemaphore, Name: name}, ID: "id"})
	},
}

func TestTwoNamesNeverShareACompanionKeyOfOurs(t *testing.T) {
	var names []string
	for _, before := range []string{"", ":", "x", "{n}", "mortise:1:next:"} {
		for _, tag := range []string{"n", "{n}", "{{n}", "{n}}", "{n}{n}", "{n:}", "n:"} {
			for _, after := range []string{"", ":", "::", ":id", "::id", "x", "{n}"} {
				names = append(names, before+tag+after)
			}
		}
	}
	seen := map[string]bool{}
	owner := map[string]string{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		for kind, key := range companions {
			k := key(name)
			if other, taken := owner[k]; taken {
				t.Errorf("%s: %q is the key of %q and of %q", kind, k, other, name)
			}
			owner[k] = fmt.Sprint(kind, " ", name)
			if before, rest, _ := strings.Cut(k, "{"); !strings.HasPrefix(before, "mortise:1:") || rest == "" {
				t.Errorf("%s of %q is %q", kind, name, k)
			}
		}
	}
}

// Their slot is the name's, and a list of permissions that fits a prefix of names fits them.
func TestCompanionKeysStandInTheSlotAndUnderThePrefixOfTheirName(t *testing.T) {
	all := maps.Clone(companions)
	all["nest"] = nestKey
	for kind, key := range all {
		for _, name := range []string{"n", "orders:7", "{orders:7}", "{orders:7}:x", "orders:{7}", "orders:{7}{8}",
			"a b"} {
			k := key(name)
			if Slot(k) != Slot(name) {
				t.Errorf("%s of %q, %q, is in slot %d, the name in %d", kind, name, k, Slot(k), Slot(name))
			}
			if !strings.Contains(name, "{") {
				name = "{" + name
			}
			if prefix := "mortise:1:" + kind + ":" + name; !strings.HasPrefix(k, prefix) {
				t.Errorf("%q does not begin with %s", k, prefix)
			}
		}
	}
}
