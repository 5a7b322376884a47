package redisproto

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// permissionsPage is the section with what a Redis user must be permitted.
const permissionsPage = "https://github.com/mortise-go/mortise/blob/main/docs/reference/deployments.md#permissions"

var (
	deniedCommand = regexp.MustCompile(`to run the '([^']+)' command`)
	// deniedAt is where a script was denied something. Redis tells the script's SHA-1, Valkey does not.
	deniedAt = regexp.MustCompile(`script: ([0-9a-f]{40}), on @user_script:(\d+)`)
	// calledAt finds the commands of a line of a script.
	calledAt = regexp.MustCompile(`redis\.p?call\((?:'([a-z]+)'|ARGV)`)
)

// lacks returns the remedy for an error reply that says that the user lacks a permission.
func lacks(text string) string {
	const logged = ", which ACL LOG on the server names"
	what := "a permission" + logged
	switch {
	case deniedCommand.MatchString(text):
		what = "+" + strings.ToLower(deniedCommand.FindStringSubmatch(text)[1])
	case strings.Contains(text, "channel"):
		what = "a channel" + logged
	case strings.Contains(text, "key"):
		what = "a key" + logged
	case strings.Contains(text, "can't run this command"): // Redis 7.0, in a script
		what = "a command" + logged
		if at := deniedAt.FindStringSubmatch(text); at != nil {
			what = cmp.Or(calledBy(at[1], at[2]), what)
		}
	}
	return "the Redis user lacks " + what + ": see " + permissionsPage
}

// calledBy returns the commands that a line of a script calls, as rules of an ACL; "" if it calls none.
func calledBy(sha, line string) string {
	n, _ := strconv.Atoi(line)
	lines := strings.Split(Source(sha), "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	var rules []string
	for _, call := range calledAt.FindAllStringSubmatch(lines[n-1], -1) {
		rule := "+" + call[1]
		if call[1] == "" { // what a script is told by an argument
			rule = "+publish or +spublish"
		}
		if !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	return strings.Join(rules, " or ")
}
