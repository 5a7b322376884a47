package clienttest

import (
	"errors"
	"strings"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
)

func TestOpenKnowsTheStoresThatAreImported(t *testing.T) {
	open := func(url string) *mortise.Client {
		t.Helper()
		c, err := mortise.Open(url, mortise.WithPrefix("app:"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	a, b, other, alone := open("memory:one"), open("memory:one"), open("memory:two"), open("memory:")
	lease, err := a.Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	if lease.Name() != "app:n" {
		t.Errorf("the name is %q", lease.Name())
	}
	if _, err := b.TryLock(t.Context(), "n"); !errors.Is(err, mortise.ErrNotAcquired) {
		t.Errorf("a client of the same URL: %v", err)
	}
	for _, c := range []*mortise.Client{other, alone} {
		l, err := c.TryLock(t.Context(), "n")
		if err != nil {
			t.Fatalf("a client of another store: %v", err)
		}
		must(t, l.Unlock(t.Context()))
	}
	must(t, lease.Unlock(t.Context()))
}

func TestOpenSaysWhatIsWrongWithAURLAndNotItsPassword(t *testing.T) {
	for url, want := range map[string]string{
		"":                             "begins with a scheme",
		"localhost":                    "begins with a scheme",
		":x":                           "begins with a scheme",
		"mongodb://u:secret@h":         "the program knows",
		"sqlite:/tmp/secret.db":        `import _ "github.com/mortise-go/mortise/backend/sqlite"`,
		"redis://u:secret@h:port":      "redis",
		"redis://u:secret@h/x":         "redis",
		"redis://u:secret@h?no_such":   "redis",
		"redis://u:secret@h:6379/\x7f": "redis",
	} {
		c, err := mortise.Open(url)
		if c != nil || !errors.Is(err, mortise.ErrInvalid) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want ErrInvalid with %q and no password", url, err, want)
		}
	}
	if _, err := mortise.Open("memory:", mortise.WithWatchdogTimeout(-1)); !errors.Is(err, mortise.ErrInvalid) {
		t.Errorf("a wrong option: %v", err)
	}
}

func TestASchemeIsRegisteredOnce(t *testing.T) {
	never := func(string) (backend.Backend, error) { return nil, errors.New("never") }
	for name, register := range map[string]func(){
		"twice":       func() { backend.Register("memory", never) },
		"no scheme":   func() { backend.Register("", never) },
		"no function": func() { backend.Register("x", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: it did not panic", name)
				}
			}()
			register()
		}()
	}
}
