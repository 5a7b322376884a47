//go:build linux

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// What ./peers has built.
const (
	redissonVersion = "4.7.0"
	javaClasses     = "target/java"
	javaClasspath   = "../interop/java/target/" + redissonVersion + "/classpath"
)

// javas are virtual machines with Worker.java. They are kept from run to run, so that their
// compilers have seen the code; between runs they have no client and nothing to do.
//
// One that is alone has both of Java's compilers. Several on a few cores would spend most of
// their time in the second one, for minutes, and hand over a fifth as often meanwhile: they have the first.
type javas struct {
	classpath string
	alone     *member
	crowd     []*member
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

func (j *javas) start(options ...string) (*member, error) {
	options = append(options, "-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", j.classpath, "Worker")
	m, err := startMember(exec.Command("java", options...))
	if err == nil {
		j.all = append(j.all, m)
	}
	return m, err
}

// crew are n of them, the same ones each time. One whose run was broken off is not used again.
func (j *javas) crew(n int) (crew []*member, release func(), err error) {
	if n == 1 {
		if j.alone == nil {
			if j.alone, err = j.start(); err != nil {
				return nil, func() {}, err
			}
		}
		crew = []*member{j.alone}
	} else {
		for len(j.crowd) < n {
			m, err := j.start("-XX:TieredStopAtLevel=1")
			if err != nil {
				return nil, func() {}, err
			}
			j.crowd = append(j.crowd, m)
		}
		crew = slices.Clone(j.crowd[:n])
	}
	return crew, func() {
		for _, m := range crew {
			if !m.busy {
				continue
			}
			m.dismiss()
			if m == j.alone {
				j.alone = nil
			}
			j.crowd = slices.DeleteFunc(j.crowd, func(x *member) bool { return x == m })
		}
	}, nil
}

// warm has those that list needs compile what they will run. What these runs tell is not shown.
func (j *javas) warm(t testing.TB, h *hosts, list []workload) {
	t.Helper()
	c := harness.Must(find("Redisson"))(t)
	most, one := 0, false
	for _, w := range list {
		one = one || w.processes == 1
		most = max(most, w.processes)
	}
	var warming []workload
	if most > 1 {
		warming = append(warming, workload{name: "warming up", processes: most, goroutines: 8}, workload{name: "warming up", processes: most, goroutines: 2, shared: true})
	}
	if one {
		warming = append(warming, workload{name: "warming up", processes: 1, goroutines: 32}, workload{name: "warming up", processes: 1, goroutines: 32, shared: true})
	}
	for _, w := range warming {
		if _, err := w.run(t, h, c, 3*time.Second, nothing); err != nil {
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
