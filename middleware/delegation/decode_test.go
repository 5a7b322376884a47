package delegation

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

// Sign makes no such entry; a holder of the key can.
func TestDecodeRefusesANameThatStandsThereTwice(t *testing.T) {
	now := time.Now()
	one := Delegation{Name: "n", Owner: "a:1", Hold: 1}
	for n, want := range map[int]error{1: nil, 2: ErrMalformed} {
		p := Entry{Key: "k", Audience: "stock", Issued: now, Expires: now.Add(time.Second)}
		for range n {
			p.Delegations = append(p.Delegations, one)
		}
		whole := binary.BigEndian.AppendUint16(p.encode(nil), 1)
		_, _, _, err := decode(prefix + base64url.EncodeToString(append(whole, 's')))
		check.ErrorIf(t, !errors.Is(err, want), "%d delegations of one name: %v, want %v", n, err, want)
	}
}
