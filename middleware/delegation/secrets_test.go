package delegation_test

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// However a key, or what has one, is printed, logged or encoded, its secret is not among it.
func TestSecretsAppearNowhere(t *testing.T) {
	secret := []byte("Kq7-hX2_mZ9+wB4/tR6=pL1!nV8?jD3&")
	part := secret[9:24]
	base := base64.StdEncoding.EncodeToString(part) // at 9, as in that of the whole
	shows := []string{
		string(part), base[:20], hex.EncodeToString(part), strings.ToUpper(hex.EncodeToString(part)),
		strings.Trim(fmt.Sprint(part), "[]"),                               // 122 57 43
		strings.TrimSuffix(fmt.Sprintf("%#v", part)[len("[]byte{"):], "}"), // 0x7a, 0x39
		strings.Trim(fmt.Sprintf("%#x", part), "[]"), strings.Trim(fmt.Sprintf("%o", part), "[]"),
		strings.Trim(fmt.Sprintf("%b", part), "[]"), strings.Trim(fmt.Sprintf("%c", part), "[]"),
		strings.Trim(fmt.Sprintf("%U", part), "[]"),
	}
	key := delegation.NewKey("2026-11", secret)
	ring := check.Value(delegation.NewRing(key)).In(t)
	issuer := check.Value(delegation.NewIssuer(ring)).In(t)
	type config struct {
		Name string
		key  delegation.Key
		ring *delegation.Ring
	}
	values := map[string]any{
		"a key": key, "a pointer": &key, "several": []delegation.Key{key}, "a map": map[string]delegation.Key{"k": key},
		"a field": struct{ Key delegation.Key }{key}, "an embedded one": struct{ delegation.Key }{key},
		"an unexported field": config{"c", key, ring}, "a pointer to it": &config{"c", key, ring},
		"an unexported pointer": struct{ key *delegation.Key }{&key},
		"a ring":                ring, "an issuer": issuer, "an option": delegation.WithSignerFor("stock", ring),
		"an error": fmt.Errorf("with %v", key),
	}
	for what, v := range values {
		texts := make(map[string]string)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%#x", "%d", "%o", "%b", "%c", "%U", "%t"} {
			texts[verb] = fmt.Sprintf(verb, v)
		}
		b, _ := json.Marshal(v)
		texts["json"] = string(b)
		b, _ = xml.Marshal(v)
		texts["xml"] = string(b)
		var out bytes.Buffer
		gob.NewEncoder(&out).Encode(v)
		texts["gob"] = out.String()
		for name, handler := range map[string]func(*strings.Builder) slog.Handler{
			"slog JSON": func(w *strings.Builder) slog.Handler { return slog.NewJSONHandler(w, nil) },
			"slog text": func(w *strings.Builder) slog.Handler { return slog.NewTextHandler(w, nil) },
		} {
			var w strings.Builder
			slog.New(handler(&w)).Info("m", "v", v)
			texts[name] = w.String()
		}
		for how, text := range texts {
			for _, s := range shows {
				if strings.Contains(text, s) {
					t.Errorf("%s, %s shows the secret: %.200s", what, how, text)
					break
				}
			}
		}
	}
	check.Equal(t, "a key prints as %q", fmt.Sprintf("%v %+v %s", key, key, key), "key 2026-11 key 2026-11 key 2026-11")
	got, err := json.Marshal(key)
	check.ErrorIf(t, string(got) != `{"ID":"2026-11"}` || err != nil, "a key in JSON is %s, %v", got, err)
}

// What a holder of a key writes into an entry is in the log if it is refused: quoted, and bounded.
func TestALineAboutAKeyHoldersEntryIsBounded(t *testing.T) {
	r := ring(t, "k1")
	unprintable := strings.Repeat("\U000e0001", 63) // four bytes each, and ten when quoted
	for what, alter := range map[string]func(*delegation.Entry){
		"audience": func(p *delegation.Entry) { p.Audience = unprintable },
		"owner":    func(p *delegation.Entry) { p.Delegations[0].Owner = unprintable },
		"name":     func(p *delegation.Entry) { p.Delegations[0].Name = "}" + strings.Repeat(unprintable, 4) },
	} {
		p := valid()
		alter(&p)
		locks := check.Value(mortise.New(memory.New())).In(t)
		defer locks.Close()
		var w strings.Builder
		c := middle.Checker(t, r, "stock", delegation.WithLogger(slog.New(slog.NewTextHandler(&w, nil))))
		_, err := c.Accept(ctx, locks, sign(t, p, r))
		check.ErrorIf(t, err == nil, "%s: accepted", what)
		t.Logf("%s: %d bytes", what, w.Len())
		check.ErrorIf(t, w.Len() < 400 || w.Len() > 2048 || strings.Count(w.String(), "\n") != 1,
			"%s: a line of %d bytes: %s", what, w.Len(), w.String())
	}
}
