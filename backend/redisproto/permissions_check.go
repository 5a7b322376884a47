package redisproto

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/scripts"
)

// checkedName stands for the names of a client, behind its prefix.
const checkedName = "mortise-check"

// question is what the check script is asked about a feature: see check.lua.
type question struct {
	scripts.Feature
	keyed, plain, told []string // commands: with a key, without one, with a channel
	// keys and channels are what is accessed, for a name of the client: of Keys, MayKeys and Channels; and then what
	// other features access, to try commands with.
	keys, channels []string
}

// toldOn are the commands whose argument is a channel, and unkeyed those without a key.
var (
	toldOn  = []string{"publish", "spublish", "subscribe", "ssubscribe"}
	unkeyed = []string{"time", "info", "wait", "eval", "evalsha", "ping", "role", "asking", "command", "discard", "scan",
		"unsubscribe", "punsubscribe", "sunsubscribe"}
)

// questions returns the questions about all features that concern the session's server. What the client libraries can
// do without is not asked: which of it they send differs.
func (s checks) questions(prefix string) (all []question) {
	name := prefix + checkedName
	keys, channels := map[string][]string{}, []string(nil)
	for _, f := range scripts.Features {
		q := question{Feature: f}
		switch f.Name {
		case "newer", "sentinel":
			continue
		case "client":
			q.May = nil
			if s.sharded.Load() {
				q.Must = slices.DeleteFunc(slices.Clone(q.Must), func(c string) bool { return strings.HasSuffix(c, "subscribe") })
			}
		case "cluster":
			if !s.sharded.Load() {
				continue
			}
			q.May = nil
		}
		q.Must, q.May = s.sent(q.Must), s.sent(q.May)
		for _, c := range slices.Concat(q.Must, q.May) {
			switch {
			case slices.Contains(toldOn, c):
				q.told = append(q.told, c)
			case slices.Contains(unkeyed, c), strings.Contains(c, "|") && c != "memory|usage":
				q.plain = append(q.plain, c)
			default:
				q.keyed = append(q.keyed, c)
			}
		}
		for _, pattern := range slices.Concat(q.Keys, q.MayKeys) {
			q.keys = append(q.keys, accessed(pattern, name))
		}
		for _, pattern := range q.Channels {
			q.channels = append(q.channels, accessed(pattern, name))
		}
		channels = append(channels, q.channels...)
		q.keys = append(q.keys, keys[q.Besides]...)
		keys[q.Name] = q.keys
		all = append(all, q)
	}
	for i := range all {
		if len(all[i].told) == 0 && len(all[i].channels) > 0 { // the other feature has the command
			all[i].told = append(all[i].told, s.publish())
		}
		if len(all[i].channels) == 0 && len(all[i].told) > 0 { // any will do, if one of these commands is permitted
			all[i].channels, all[i].told = channels, append(all[i].told, s.publish())
		}
	}
	return all
}

// sent returns the commands that scripts send where pub/sub is as it is here.
func (s checks) sent(commands []string) []string {
	if !s.sharded.Load() {
		return commands
	}
	out := slices.Clone(commands)
	for i, c := range out {
		switch c {
		case commandPublish:
			out[i] = commandSPublish
		case "pubsub|numsub":
			out[i] = "pubsub|shardnumsub"
		}
	}
	return out
}

// accessed returns a key or channel of a name by its pattern: see scripts.Needs.
func accessed(pattern, name string) string {
	before, _, named := strings.Cut(pattern, "{NAME")
	switch {
	case named:
		return tagged(before, name)
	case strings.HasSuffix(pattern, "NAME"):
		return strings.TrimSuffix(pattern, "NAME") + name
	}
	return pattern
}

// append adds the question to the arguments of the check script.
func (q question) append(args []string) []string {
	for _, list := range [][]string{q.keyed, q.plain, q.told, q.keys, q.channels} {
		args = append(append(args, strconv.Itoa(len(list))), list...)
	}
	return args
}

// verdict is what a user lacks of a feature, as rules of an ACL.
type verdict struct {
	question
	commands, keys, channels []string // that are needed
	quiet                    []string // that scripts can do without
	had                      []string // the commands and patterns that the user has
	unknown                  bool
}

// verdict reads the reply to a question.
func (q question) verdict(prefix, reply string) verdict {
	v := verdict{question: q}
	if words := len(q.keyed) + len(q.plain) + len(q.told) + len(q.keys) + len(q.channels); len(reply) != words ||
		!strings.ContainsAny(reply, "01") && words > 0 {
		v.unknown = true
		return v
	}
	next := func(list []string) (part string) {
		part, reply = reply[:len(list)], reply[len(list):]
		return part
	}
	keyed, plain, told, keys, channels := next(q.keyed), next(q.plain), next(q.told), next(q.keys), next(q.channels)
	noKey, noChannel := !strings.Contains(keys, "1"), !strings.Contains(channels, "1")
	lack := func(command string, found byte, excused bool) {
		switch {
		case found == '1':
			v.had = append(v.had, command)
		case excused: // nothing is known of the command: the key or channel is missing
		case slices.Contains(q.Must, command):
			v.commands = append(v.commands, "+"+command)
		case found == '0' && slices.Contains(q.May, command):
			v.quiet = append(v.quiet, "+"+command)
		}
	}
	for i, c := range q.keyed {
		lack(c, keyed[i], noKey && len(q.keys) > 0)
	}
	for i, c := range q.plain {
		lack(c, plain[i], false)
	}
	for i, c := range q.told {
		lack(c, told[i], noChannel)
	}
	for i, pattern := range slices.Concat(q.Keys, q.MayKeys) {
		switch {
		case keys[i] == '1':
			v.had = append(v.had, pattern)
		case i < len(q.Keys):
			v.keys = append(v.keys, rule("~", pattern, prefix))
		default:
			v.quiet = append(v.quiet, rule("~", pattern, prefix))
		}
	}
	for i, pattern := range q.Channels {
		if channels[i] != '1' {
			v.channels = append(v.channels, rule("&", pattern, prefix))
		}
	}
	v.unknown = prefix == "" && noKey && slices.ContainsFunc(q.Keys, named)
	return v
}

// named reports whether a pattern is of keys that are made of a lock's name.
func named(pattern string) bool { return strings.Contains(pattern, "NAME") }

// rule returns the rule of an ACL for names that begin with prefix.
func rule(sign, pattern, prefix string) string {
	word := accessed(pattern, prefix)
	if !named(pattern) {
		return sign + word
	}
	if strings.HasSuffix(word, "{"+prefix+"}") {
		word = strings.TrimSuffix(word, "}")
	}
	return sign + word + "*"
}

func (v verdict) usable() bool { return v.missing() == 0 && !v.unknown }

// judge returns findings about a user's permissions.
func judge(prefix string, questions []question, replies []string) (all []backend.Finding) {
	if len(replies) != len(questions) {
		return []backend.Finding{{Name: "permissions", State: backend.FindingUnknown,
			Text: "the server answered something else", Remedy: "look for a proxy between client and server"}}
	}
	verdicts := make([]verdict, len(questions))
	usable := map[string]bool{"": true}
	for i, q := range questions {
		verdicts[i] = q.verdict(prefix, replies[i])
		usable[q.Name] = verdicts[i].usable() && usable[q.Besides]
	}
	withheld := withheld(verdicts, usable)
	var may, not, unknown []string
	for _, v := range verdicts {
		switch {
		case usable[v.Name]:
			if v.Name != "client" && v.Name != "cluster" {
				may = append(may, v.Name)
			}
			if len(v.quiet) > 0 {
				all = append(all, backend.Finding{Name: "permissions", State: backend.FindingWarning,
					Text: fmt.Sprintf("%s: the server denies, and writes into ACL LOG, what scripts try and can do without: %s",
						v.Name, strings.Join(v.quiet, " ")),
					Remedy: setUser(v.quiet)})
			}
		case v.unknown:
			unknown = append(unknown, v.Name)
		case !usable[v.Besides], withheld[v.Name]:
			not = append(not, v.Name)
		default:
			all = append(all, v.problem())
		}
	}
	if len(unknown) > 0 {
		all = append(all, backend.Finding{Name: "permissions", State: backend.FindingUnknown,
			Text: fmt.Sprintf("the user may not use a name such as %q, so nothing is known of %s", checkedName,
				strings.Join(unknown, ", ")),
			Remedy: "give the client WithPrefix, with what the user's names begin with; see " + permissionsPage})
	}
	if text := strings.Join(may, ", "); len(may) > 0 {
		if len(not) > 0 {
			text += "; not " + strings.Join(not, ", ")
		}
		all = append(all, backend.Finding{Name: "permissions", State: backend.FindingOK, Text: "the user may use " + text})
	} else if len(not) > 0 && len(unknown) == 0 && !slices.ContainsFunc(all, isProblem) {
		all = append(all, backend.Finding{Name: "permissions", State: backend.FindingProblem,
			Text: "the user may use no kind of lock", Remedy: "permit what is needed: see " + permissionsPage})
	}
	return all
}

func isProblem(f backend.Finding) bool { return f.State == backend.FindingProblem }

// withheld returns the features that the user was not made for. A program uses some kinds of locks, and its user may
// be made for these. So a kind of which the user has nothing that only this kind needs is withheld, which is no
// problem; of another kind, the user has a part, and something is missing. What other kinds need is known best of
// those of which the user has most.
func withheld(verdicts []verdict, usable map[string]bool) map[string]bool {
	var others []string
	rest := slices.Clone(verdicts)
	rest = slices.DeleteFunc(rest, func(v verdict) bool {
		if usable[v.Name] {
			others = append(others, v.had...)
		}
		return usable[v.Name] || v.Name == "client" || v.Name == "cluster"
	})
	slices.SortStableFunc(rest, func(a, b verdict) int { return a.missing() - b.missing() })
	out := map[string]bool{}
	for _, v := range rest {
		own := func(word string) bool { // of no other kind, nor of a channel or of all clients of clusters
			return !slices.Contains(others, word) && !slices.Contains(toldOn, word) && !strings.Contains(word, "|")
		}
		only := slices.DeleteFunc(slices.Concat(v.Must, v.May), func(word string) bool { return !own(word) })
		if len(only) == 0 {
			only = slices.DeleteFunc(slices.Concat(v.Keys, v.MayKeys), func(word string) bool { return !own(word) })
		}
		has := slices.ContainsFunc(only, func(word string) bool { return slices.Contains(v.had, word) })
		if out[v.Name] = len(only) > 0 && !has; !out[v.Name] {
			others = slices.Concat(others, v.Must, v.May, v.Keys, v.MayKeys)
		}
	}
	return out
}

func (v verdict) missing() int { return len(v.commands) + len(v.keys) + len(v.channels) }

// problem returns the finding for what a user lacks.
func (v verdict) problem() backend.Finding {
	name, missing := "permissions", slices.Concat(v.keys, v.channels, v.commands)
	if len(v.keys)+len(v.commands) == 0 {
		name = "channels"
	}
	return backend.Finding{Name: name, State: backend.FindingProblem,
		Text:   fmt.Sprintf("%s: the user lacks %s", v.Name, strings.Join(missing, " ")),
		Remedy: setUser(append(missing, v.quiet...))}
}

// setUser returns the remedy for missing rules.
func setUser(rules []string) string {
	return "ACL SETUSER <user> " + strings.Join(rules, " ") + ": see " + permissionsPage
}
