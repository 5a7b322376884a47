package record

import "github.com/mortise-go/mortise/backend"

// Said is the proclamation of a lock's owner. Its Text is empty once it was removed. The zero Said is none.
type Said struct {
	Owner, Text   string
	Token, Number int64
	// Until is when it is forgotten.
	Until Time
}

// Proclaim is [backend.ProclamationStore].Proclaim for the owner of the lock. It reports whether that was a change.
func (p *Said) Proclaim(s *Step, q backend.ProclaimRequest) (changed bool) {
	was := *p
	if was.Owner == q.Owner && was.Number > q.Number {
		return false
	}
	*p = Said{q.Owner, q.Text, q.Token, q.Number, s.Now + q.Keep}
	same := was.Text == q.Text && (q.Text == "" || was.Owner == q.Owner && was.Token == q.Token)
	if !same {
		s.announce(s.topic(backend.KindProclamation))
	}
	return !same
}
