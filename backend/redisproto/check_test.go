package redisproto

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestClocksThatDifferByASecondAreAWarning(t *testing.T) {
	sent := time.UnixMicro(1_700_000_000_000_000)
	received := sent.Add(300 * time.Millisecond)
	for _, c := range []struct {
		server string
		state  string
		text   string // a part of it
	}{
		{"1700000000100000", backend.FindingOK, "agree"},
		{"1700000001200000", backend.FindingOK, "agree"}, // .9 s after the reply
		{"1700000001400000", backend.FindingWarning, "1s ahead of"},
		{"1699999999100000", backend.FindingOK, "agree"},
		{"1699999880000000", backend.FindingWarning, "2m0s behind"},
		{"", backend.FindingUnknown, "may not see"},
	} {
		f := seen{time: c.server}.clock(sent, received)
		check.ErrorIf(t, f.State != c.state || !strings.Contains(f.Text, c.text) || (f.Remedy == "") != (f.State == "ok"),
			"%s: %+v", c.server, f)
	}
}

func TestFindingsOfAllNodesAreToldOnce(t *testing.T) {
	same := backend.Finding{Name: "role", State: backend.FindingOK, Text: "a master"}
	other := backend.Finding{Name: "channels", State: backend.FindingProblem, Text: "none", Remedy: "permit them"}
	nodes := []node{{addr: "a:1"}, {addr: "b:2"}, {addr: "c:3"}}
	got := merge(nodes, [][]backend.Finding{{same}, {same, other}, {same, other}})
	want := []backend.Finding{same, {Name: "channels", State: backend.FindingProblem, Text: "at b:2, c:3: none",
		Remedy: "permit them"}}
	check.ErrorIf(t, !slices.Equal(got, want), "got  %+v\nwant %+v", got, want)
	alone := merge([]node{{}}, [][]backend.Finding{{other}})
	check.ErrorIf(t, !slices.Equal(alone, []backend.Finding{other}), "a single server: %+v", alone)
}

// A reply that is no reply of the script, and a server without redis.acl_check_cmd, make permissions unknown.
func TestStrangeRepliesToACheckAreUnknown(t *testing.T) {
	s, _ := open(t, &fakeAdapter{})
	questions := checks{s.core}.questions("orders:")
	blank := make([]string, len(questions))
	for i, q := range questions {
		blank[i] = strings.Repeat("-", len(q.keyed)+len(q.plain)+len(q.told)+len(q.keys)+len(q.channels))
	}
	for name, replies := range map[string][]string{"none": nil, "one": {"111"}, "empty": make([]string, len(questions)),
		"nothing is known": blank} {
		for _, f := range judge("orders:", questions, replies) {
			check.ErrorIf(t, f.State != backend.FindingUnknown, "%s: %+v", name, f)
		}
	}
	found, err := checks{s.core}.Check(t.Context(), "")
	check.ErrorIf(t, err != nil || len(found) != 1 || found[0].State != backend.FindingUnknown, "no Asker: %+v %v", found,
		err)
}

// For a name in braces, keys and channels have no braces of their own.
func TestPatternsOfAPrefixWithBraces(t *testing.T) {
	for _, c := range [][4]string{
		{"redisson_lock_token:{NAME", "orders:", "redisson_lock_token:{orders:7}", "~redisson_lock_token:{orders:*"},
		{"redisson_lock_token:{NAME", "{o}:", "redisson_lock_token:{o}:7", "~redisson_lock_token:{o}:*"},
		{"NAME", "orders:", "orders:7", "~orders:*"},
		{"{NAME", "orders:", "{orders:7}", "~{orders:*"},
		{"mortise:1:since", "orders:", "mortise:1:since", "~mortise:1:since"},
	} {
		check.ErrorIf(t, accessed(c[0], c[1]+"7") != c[2], "%s of %s: %s", c[0], c[1], accessed(c[0], c[1]+"7"))
		check.ErrorIf(t, rule("~", c[0], c[1]) != c[3], "%s of %s: %s", c[0], c[1], rule("~", c[0], c[1]))
	}
}
