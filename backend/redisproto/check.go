package redisproto

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
)

//go:embed check.lua
var checkSource string

// Check implements [backend.CheckStore]. It sends HELLO and EVAL to each master.
func (s checks) Check(ctx context.Context, prefix string) ([]backend.Finding, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	asker, can := s.adapter.(Asker)
	if !can {
		return []backend.Finding{{Name: "server", State: backend.FindingUnknown, Text: "the server answers",
			Remedy: "the adapter cannot ask for more: implement redisproto.Asker"}}, nil
	}
	nodes, err := s.masters(ctx, asker)
	if err != nil {
		return nil, err
	}
	questions := s.questions(prefix)
	args := []string{"eval", checkSource, "0"}
	for _, q := range questions {
		args = q.append(args)
	}
	sent := time.Now()
	answers, err := asker.AskEach(ctx, args...)
	received := time.Now()
	if err != nil {
		return nil, s.fault(err)
	}
	replies := map[string]Answer{}
	for _, a := range answers {
		replies[a.Node] = a
	}
	found := make([][]backend.Finding, len(nodes))
	for i, n := range nodes {
		found[i] = n.findings()
		reply, ok := replies[n.addr]
		if !ok {
			continue // the client has just learned of another master
		}
		seen, err := readSeen(reply)
		if err != nil {
			fault := backend.FaultOf(s.fault(err))
			if fault.Temporary {
				return nil, &fault
			}
			found[i] = append(found[i], backend.Finding{Name: "permissions", State: backend.FindingProblem,
				Text: err.Error(), Remedy: fault.Remedy})
			continue
		}
		found[i] = append(found[i], judge(prefix, questions, seen.permitted)...)
		found[i] = append(found[i], seen.eviction(), seen.clock(sent, received))
	}
	return merge(nodes, found), nil
}

// node is what HELLO told of a server.
type node struct {
	addr  string // empty for a single server
	hello map[string]string
}

// masters returns the masters of a cluster, or the single server, whatever its role is.
func (s checks) masters(ctx context.Context, asker Asker) (masters []node, err error) {
	answers, err := asker.AskEach(ctx, "hello")
	if err != nil {
		return nil, s.fault(err)
	}
	var all []node
	for _, a := range answers {
		if _, replied := s.adapter.ServerError(a.Err); a.Err != nil && !replied { // otherwise there is no HELLO here
			return nil, s.fault(a.Err)
		}
		n := node{a.Node, fieldsOf(a.Reply)}
		if all = append(all, n); !n.replica() {
			masters = append(masters, n)
		}
	}
	if len(masters) == 0 || len(all) == 1 {
		masters = all
	}
	return masters, nil
}

func (n node) replica() bool { return n.hello["role"] == "replica" || n.hello["role"] == "slave" }

// findings returns what HELLO tells.
func (n node) findings() []backend.Finding {
	if n.hello["version"] == "" {
		return []backend.Finding{{Name: "server", State: backend.FindingUnknown, Text: "the server does not tell its version",
			Remedy: "mortise needs Redis 7.0 or newer, or Valkey"}}
	}
	server := backend.Finding{Name: "server", State: backend.FindingOK,
		Text: fmt.Sprintf("%.40s %.40s, %.40s", n.hello["server"], n.hello["version"], n.hello["mode"])}
	role := backend.Finding{Name: "role", State: backend.FindingOK, Text: "the server is a master"}
	switch {
	case n.replica():
		role = backend.Finding{Name: "role", State: backend.FindingProblem,
			Text:   "the server is a replica, and refuses writes",
			Remedy: "give the client the primary's address, or let the client find the primary (Sentinel or Cluster)"}
	case n.hello["role"] == "":
		role = backend.Finding{Name: "role", State: backend.FindingUnknown, Text: "the server does not tell its role",
			Remedy: "see that it is no replica"}
	}
	return []backend.Finding{server, role}
}

// fieldsOf returns the fields of a reply to HELLO: a map, or a list of names and values.
func fieldsOf(reply any) map[string]string {
	fields := map[string]string{}
	switch r := reply.(type) {
	case map[any]any:
		for name, value := range r {
			fields[fmt.Sprint(name)] = fmt.Sprint(value)
		}
	case map[string]any:
		for name, value := range r {
			fields[name] = fmt.Sprint(value)
		}
	case []any:
		for i := 0; i+1 < len(r); i += 2 {
			fields[fmt.Sprint(r[i])] = fmt.Sprint(r[i+1])
		}
	}
	return fields
}

// seen is the reply of the check script.
type seen struct {
	time      string // of the server, in microseconds; empty if that is not permitted
	memory    string // INFO memory; likewise
	permitted []string
}

func readSeen(a Answer) (seen, error) {
	if a.Err != nil {
		return seen{}, a.Err
	}
	list, _ := a.Reply.([]any)
	words := make([]string, len(list))
	for i, x := range list {
		words[i], _ = x.(string)
	}
	if len(words) < 2 {
		return seen{}, strange("check", a.Reply)
	}
	return seen{words[0], words[1], words[2:]}, nil
}

// eviction judges the server's eviction policy.
func (s seen) eviction() backend.Finding {
	for line := range strings.Lines(s.memory) {
		name, policy, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name != "maxmemory_policy":
		case policy == "noeviction":
			return backend.Finding{Name: "eviction", State: backend.FindingOK, Text: "the server evicts nothing"}
		default:
			return backend.Finding{Name: "eviction", State: backend.FindingWarning,
				Text:   fmt.Sprintf("with the policy %.40s a full server removes locks that are held", policy),
				Remedy: "CONFIG SET maxmemory-policy noeviction, or a server of its own for locks"}
		}
	}
	return backend.Finding{Name: "eviction", State: backend.FindingUnknown,
		Text: "the user may not see the server's eviction policy", Remedy: "permit +info, or see that it is noeviction"}
}

// clockApart is a difference of clocks that a check tells of. Waiters of Redisson for a fair lock lose their places by
// it, and times of logs differ.
const clockApart = time.Second

// clock compares the server's clock with this process's clock, between sent and received.
func (s seen) clock(sent, received time.Time) backend.Finding {
	micros, err := strconv.ParseInt(s.time, 10, 64)
	if err != nil {
		return backend.Finding{Name: "clock", State: backend.FindingUnknown, Text: "the user may not see the server's clock",
			Remedy: "permit +time, or see that it agrees with the clients' clocks"}
	}
	server := time.UnixMicro(micros)
	apart, way := server.Sub(received), "ahead of"
	if behind := sent.Sub(server); behind > apart {
		apart, way = behind, "behind"
	}
	if apart < clockApart {
		return backend.Finding{Name: "clock", State: backend.FindingOK,
			Text: "the server's clock and this process's clock agree to a second"}
	}
	return backend.Finding{Name: "clock", State: backend.FindingWarning,
		Text: fmt.Sprintf("the server's clock is %v %s this process's clock", apart.Round(time.Second), way),
		Remedy: "synchronise both clocks by NTP: times of logs and ticks differ, and waiters of Redisson for fair locks " +
			"lose their places"}
}

// merge joins the findings of nodes: what was found at all of them is told once, without their addresses.
func merge(nodes []node, found [][]backend.Finding) (all []backend.Finding) {
	at := map[backend.Finding][]string{}
	var order []backend.Finding
	for i, list := range found {
		for _, f := range list {
			if at[f] == nil {
				order = append(order, f)
			}
			at[f] = append(at[f], nodes[i].addr)
		}
	}
	for _, f := range order {
		if len(at[f]) < len(nodes) {
			f.Text = "at " + strings.Join(at[f], ", ") + ": " + f.Text
		}
		all = append(all, f)
	}
	return all
}
