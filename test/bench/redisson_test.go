//go:build linux

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What ./peers has built.
const (
	redissonVersion = "4.7.0"
	javaClasses     = "target/java"
	javaClasspath   = "../interop/java/target/" + redissonVersion + "/classpath"
)

// javas are virtual machines with Worker.java. They are kept from run to run, so that their
// compilers have seen the code; between runs they have no client and nothing to do.
type javas struct {
	classpath string
	idle      []*member
	all       []*member
}

// findJava returns nil where Worker.java is not built.
func findJava(t testing.TB) *javas {
	t.Helper()
	jars, err := os.ReadFile(javaClasspath)
	if err != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(javaClasses, "Worker.class")); err != nil {
		return nil
	}
	if _, err := exec.LookPath("java"); err != nil {
		return nil
	}
	j := &javas{classpath: javaClasses + string(os.PathListSeparator) + strings.TrimSpace(string(jars))}
	t.Cleanup(func() {
		for _, m := range j.all {
			m.dismiss()
		}
	})
	return j
}

func (j *javas) start() (*member, error) {
	m, err := startMember(exec.Command("java", "-Xmx256m", "-XX:+UseSerialGC",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", j.classpath, "Worker"))
	if err == nil {
		j.all = append(j.all, m)
	}
	return m, err
}

// crew are n of them, the same ones first each time. One that has ended is not used again.
func (j *javas) crew(n int) (crew []*member, release func(), err error) {
	for len(j.idle) < n {
		m, err := j.start()
		if err != nil {
			return nil, func() {}, err
		}
		j.idle = append(j.idle, m)
	}
	crew, rest := j.idle[:n:n], j.idle[n:]
	release = func() {
		j.idle = nil
		for _, m := range crew {
			if m.busy { // of a run that was broken off
				m.dismiss()
			} else {
				j.idle = append(j.idle, m)
			}
		}
		j.idle = append(j.idle, rest...)
	}
	return crew, release, nil
}

// warm has n machines compile what they will run. What this run tells is not shown.
func (j *javas) warm(t testing.TB, h *hosts, n int) {
	t.Helper()
	c, err := find("Redisson")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []workload{
		{name: "warming up", processes: n, goroutines: 16},
		{name: "warming up", processes: 1, goroutines: 32},
	} {
		if _, err := w.runOnce(t, h, c, 3*time.Second, false); err != nil {
			t.Logf("Redisson: %v", err)
		}
	}
}

// javaVersion is what `java -version` says first.
func javaVersion() string {
	out, err := exec.Command("java", "-version").CombinedOutput()
	if err != nil {
		return fmt.Sprint(err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}
