package main

import (
	"fmt"
	"strings"
	"testing"
)

// run is the output of a suite in which every rule's test ended with action.
func run(pkg, variant, action string, but map[int]string) string {
	var b strings.Builder
	for i := range titles {
		a := action
		if x, ok := but[i+1]; ok {
			a = x
		}
		if a == "" {
			continue
		}
		test := fmt.Sprintf("TestConformance/%sRule%02d_X", variant, i+1)
		fmt.Fprintf(&b, `{"Action":"run","Package":%q,"Test":%q}`+"\n", pkg, test)
		if a != "run" {
			fmt.Fprintf(&b, `{"Action":%q,"Package":%q,"Test":%q}`+"\n", a, pkg, test)
		}
	}
	return b.String()
}

func TestOnlyAMatrixWithoutHolesIsWhole(t *testing.T) {
	const pkg = "example.com/mortise/redisgo"
	whole := run(pkg, "", "pass", nil)
	for name, c := range map[string]struct {
		in    string
		whole bool
		text  string
	}{
		"all passed": {whole, true, " 1"},
		"two variants": {
			run(pkg, "cache/", "pass", nil) + run(pkg, "nocache/", "pass", nil),
			true, "redisgo/nocache",
		},
		"a rule without tests": {run(pkg, "", "pass", map[int]string{7: ""}), false, "NONE"},
		"one variant lacks it": {whole + run(pkg, "cache/", "pass", map[int]string{7: ""}), false, "NONE"},
		"failed":               {run(pkg, "", "pass", map[int]string{3: "fail"}), false, "1 FAILED"},
		"skipped":              {run(pkg, "", "pass", map[int]string{3: "skip"}), false, "1 SKIPPED"},
		"lacks something": {run(pkg, "", "pass", nil) + `{"Action":"output","Package":"` + pkg +
			`","Test":"TestConformance/Rule03_Y","Output":"    x.go:7: the backend lacks fair locks\n"}` + "\n" +
			strings.ReplaceAll(run(pkg, "", "", map[int]string{3: "skip"}), "_X", "_Y"), true, "redisgo lacks fair locks"},
		"did not end":          {run(pkg, "", "pass", map[int]string{3: "run"}), false, "1 UNFINISHED"},
		"failed, passed again": {run(pkg, "", "pass", map[int]string{3: "fail"}) + whole, false, "1 FAILED"},
		"package failed":       {whole + `{"Action":"fail","Package":"p"}` + "\n", false, "p failed"},
		"package did not run":  {whole + `{"Action":"skip","Package":"p"}` + "\n", false, "p has no tests"},
		"another test failed":  {whole + `{"Action":"fail","Package":"p","Test":"TestX"}` + "\n", false, "TestX: fail"},
		"what a failed one said": {`{"Action":"output","Package":"p","Test":"TestX","Output":"x_test.go:7: no\n"}` + "\n" +
			whole + `{"Action":"fail","Package":"p","Test":"TestX"}` + "\n", false, "TestX: fail\nx_test.go:7: no\n"},
		"nothing": {"", false, "no test"},
	} {
		m, err := read(strings.NewReader(c.in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var out strings.Builder
		if got := m.write(&out); got != c.whole || !strings.Contains(out.String(), c.text) {
			t.Errorf("%s: whole %v, want %v, with %q in\n%s", name, got, c.whole, c.text, out.String())
		}
	}
}

func TestAPageHasTheTableBetweenItsMarks(t *testing.T) {
	const lacks = `{"Action":"output","Package":"p/sqlite","Test":"TestConformance/Rule03_Y",` +
		`"Output":"    x.go:7: the backend lacks replicas\n"}` + "\n"
	m, err := read(strings.NewReader(run("p/rueidis", "cache/", "pass", nil) + run("p/rueidis", "nocache/", "pass", nil) +
		run("p/sqlite", "", "pass", nil) + lacks +
		strings.ReplaceAll(run("p/sqlite", "", "", map[int]string{3: "skip"}), "_X", "_Y")))
	if err != nil {
		t.Fatal(err)
	}
	page, err := m.into([]byte("before\n" + begins + "stale\n" + ends + "after\n"))
	got := string(page)
	if err != nil || !strings.HasPrefix(got, "before\n"+begins+"| rule | `rueidis` | `sqlite` |\n|---|---|---|\n") ||
		!strings.Contains(got, "\n| 3 watchdog | 2 | 1 |\n") || strings.Contains(got, "stale") ||
		!strings.HasSuffix(got, "\n| lacks |  | replicas |\n"+ends+"after\n") {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := m.into([]byte("no marks")); err == nil {
		t.Error("a page without marks was written")
	}
}

func TestWhatIsNoTestOutputIsAnError(t *testing.T) {
	for _, in := range []string{"ok  example.com 0.1s\n", `{"Action":"pass","Test":"TestConformance/Rule16_X"}` + "\n"} {
		if _, err := read(strings.NewReader(in)); err == nil {
			t.Errorf("%q was read", in)
		}
	}
}
