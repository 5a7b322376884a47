//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

// The program and its image, as units and manifests name them.
const (
	installed = "/usr/bin/mortise"
	image     = "ghcr.io/mortise-go/mortise:"
)

// examplesIn are the files with an ending in a directory of examples.
func examplesIn(t *testing.T, dir, ending string) []string {
	t.Helper()
	all := check.Value(filepath.Glob("../../examples/" + dir + "/*" + ending)).In(t)
	check.FatalIf(t, len(all) == 0, "no examples in %s", dir)
	return all
}

// works runs the program as an example does, in memory and with another command.
func works(t *testing.T, env []string, args []string) {
	t.Helper()
	at := slices.Index(args, "--")
	check.ErrorIf(t, args[0] == "run" && (at < 0 || at == len(args)-1), "%q: no command", args)
	if at >= 0 {
		args = append(slices.Clone(args[:at+1]), "echo", "ran")
	}
	text, said, code := output(t, append(env, "MORTISE_STORE=memory:", "MORTISE_CONTEXT="), args...)
	check.ErrorIf(t, code != 0, "%q: exit code %d; %s", args, code, said)
	ran, tick := text == "ran\n", slices.Contains(args, "--every") // whose first is not run
	check.ErrorIf(t, args[0] == "run" && ran == tick, "%q: %q; %s", args, text, said)
}

// container is what a manifest says of a container.
type container struct {
	Name, Image   string
	Command, Args []string
	Env           []struct{ Name, Value string }
}

// containers are those in a manifest, wherever they are.
func containers(t *testing.T, in any) (all []container) {
	t.Helper()
	switch in := in.(type) {
	case []any:
		for _, x := range in {
			all = append(all, containers(t, x)...)
		}
	case map[string]any:
		for key, x := range in {
			if key != "containers" && key != "initContainers" {
				all = append(all, containers(t, x)...)
				continue
			}
			var some []container
			check.NoError(t, yaml.Unmarshal(check.Value(yaml.Marshal(x)).In(t), &some))
			all = append(all, some...)
		}
	}
	return all
}

func TestManifestsOfKubernetesRunTheProgram(t *testing.T) {
	check.Long(t)
	for _, path := range examplesIn(t, "kubernetes", ".yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			began := 0
			d := yaml.NewDecoder(bytes.NewReader(check.Value(os.ReadFile(path)).In(t)))
			for {
				var m map[string]any
				err := d.Decode(&m)
				if errors.Is(err, io.EOF) {
					break
				}
				check.NoError(t, err)
				check.ErrorIf(t, m["apiVersion"] == nil || m["kind"] == nil || m["metadata"] == nil, "no object: %v", m)
				for _, c := range containers(t, m) {
					ours := strings.HasPrefix(c.Image, image)
					if !ours && !slices.Equal(c.Command, []string{installed}) {
						continue
					}
					check.ErrorIf(t, ours && c.Command != nil, "%s: the image has its entry point", c.Name)
					var env []string
					for _, e := range c.Env {
						env = append(env, e.Name+"="+e.Value)
					}
					check.ErrorIf(t, !slices.Contains(env, "MORTISE_STORE="), "%s: no store, from a secret: %q", c.Name, env)
					works(t, env, c.Args)
					began++
				}
			}
			check.ErrorIf(t, began == 0, "the program is not run")
		})
	}
}

func TestUnitsOfSystemdRunTheProgram(t *testing.T) {
	check.Long(t)
	dir := t.TempDir()
	program := dir + "/mortise"
	check.NoError(t, os.Symlink(check.Value(os.Executable()).In(t), program))
	var units []string
	for _, path := range append(examplesIn(t, "systemd", ".service"), examplesIn(t, "systemd", ".timer")...) {
		text := string(check.Value(os.ReadFile(path)).In(t))
		began := 0
		for line := range strings.Lines(text) {
			if start, ok := strings.CutPrefix(line, "ExecStart="+installed+" "); ok {
				works(t, nil, strings.Fields(start))
				began++
			}
		}
		check.ErrorIf(t, strings.HasSuffix(path, ".service") != (began == 1), "%s starts the program %d times", path, began)
		unit := dir + "/" + filepath.Base(path)
		check.NoError(t, os.WriteFile(unit, []byte(strings.ReplaceAll(text, installed, program)), 0o600))
		units = append(units, unit)
	}
	t.Run("verify", func(t *testing.T) {
		if _, err := exec.LookPath("systemd-analyze"); err != nil {
			t.Skip("systemd-analyze is not installed")
		}
		c := exec.Command("systemd-analyze", append([]string{"verify", "--man=no"}, units...)...)
		said, err := c.CombinedOutput()
		check.ErrorIf(t, err != nil || len(said) > 0, "%v: %s", err, said)
	})
}

// What the packages are to contain is there.
func TestPackagesHaveManualAndCompletions(t *testing.T) {
	check.Long(t)
	manual := t.TempDir()
	said, err := exec.Command("../../.ci/manual", manual).CombinedOutput()
	check.FatalIf(t, err != nil, "%v: %s", err, said)
	var config struct {
		Archives []struct{ Files []struct{ Src string } }
		Nfpms    []struct {
			Contents []struct{ Src, Dst string }
		}
	}
	check.NoError(t, yaml.Unmarshal(check.Value(os.ReadFile("../../.goreleaser.yaml")).In(t), &config))
	var sources []string
	for _, f := range config.Archives[0].Files {
		sources = append(sources, f.Src)
	}
	for _, c := range config.Nfpms[0].Contents {
		sources = append(sources, c.Src)
	}
	check.ErrorIf(t, len(sources) < 10, "%q", sources)
	for _, src := range sources {
		path := "../../" + src
		if rest, ok := strings.CutPrefix(src, "bin/manual/"); ok {
			path = manual + "/" + rest
		}
		found := check.Value(filepath.Glob(path)).In(t)
		check.ErrorIf(t, len(found) == 0, "%s: nothing is there", src)
	}
	f := check.Value(os.Open(manual + "/man1/mortise-top.1.gz")).In(t)
	defer f.Close()
	page := check.Value(io.ReadAll(check.Value(gzip.NewReader(f)).In(t))).In(t)
	check.ErrorIf(t, !bytes.Contains(page, []byte("most waiters first")), "%s", page)
	script := `source "$1"; complete -p mortise`
	said, err = exec.Command("bash", "--norc", "-c", script, "-", manual+"/completions/mortise.bash").CombinedOutput()
	check.ErrorIf(t, err != nil || !bytes.Contains(said, []byte("mortise")), "%v: %s", err, said)
	left := check.Value(filepath.Glob(manual + "/*")).In(t)
	check.Equal(t, "%d directories", len(left), 2)
}

func TestThePackagesVersionGoesFirst(t *testing.T) {
	defer func(was string) { version = was }(version)
	built := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}
	for _, x := range []struct {
		linked string
		ok     bool
		want   string
	}{{"", true, "v1.2.3"}, {"", false, "unknown"}, {"v4.5.6", true, "v4.5.6"}, {"v4.5.6", false, "v4.5.6"}} {
		version = x.linked
		check.Equal(t, "version %s", versionOf(built, x.ok), x.want)
	}
	text, said, code := output(t, nil, "--version")
	check.ErrorIf(t, code != 0 || !strings.HasPrefix(text, "mortise version "), "%d, %q, %q", code, text, said)
}
