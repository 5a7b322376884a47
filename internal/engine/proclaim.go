package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/campaign"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// proclaimed is how long the store keeps a text at most. It remembers the removal of a text for backend.Remembered.
const proclaimed = time.Hour

// Proclaim sets the text that the store keeps for the hold's owner. An empty text removes it.
func Proclaim(ctx context.Context, h *lease.Hold, text string) error {
	err := proclaim(ctx, h, text)
	if campaign.Is(ctx) {
		of(h).engine.logCampaign(h.Name(), err)
	}
	if err != nil {
		return fail.New("proclaim", h.Name(), err)
	}
	return nil
}

func proclaim(ctx context.Context, h *lease.Hold, text string) error {
	t := of(h)
	e := t.engine
	can := e.store.can.Proclamations
	if topicOf(t.family, "").Kind != backend.KindLock || t.family == backend.KindDelegated {
		return fail.Invalidf("Proclaim is for plain, fenced and fair locks that this client took itself")
	}
	if text != "" {
		if err := CheckID("Proclaim", text); err != nil {
			return err
		}
	}
	e.lock()
	h.Marks.Texts = true
	h.Marks.Proclaims = h.Marks.Proclaims || text != "" // without proclamations, too: a leader's hold is long
	t.hasText = t.hasText || text != "" && can != nil
	e.unlock()
	if err := e.Can(can != nil, "proclamations"); err != nil {
		return err
	}
	if err := h.Err(); err != nil {
		return err
	}
	r := proclaimRequest(h, text)
	e.Hold()
	defer e.End()
	held := new(bool)
	err := e.SendOff(ctx, func() error {
		return e.asking().Do(ctx, func() (err error) {
			*held, err = can.Proclaim(e.base, r)
			return err
		})
	}, nil)
	switch {
	case err != nil:
		return e.Explain(err)
	case !*held:
		return fmt.Errorf("%w: the store has no record of this owner; the lease ends when its renewal finds that",
			fail.Lost)
	}
	return nil
}

func proclaimRequest(h *lease.Hold, text string) backend.ProclaimRequest {
	t := of(h)
	token, _ := h.Token()
	r := backend.ProclaimRequest{Name: t.Key.Name, Owner: t.Owner, Token: token, Text: text, Keep: proclaimed}
	if r.Number = t.engine.ids.texts.Add(1); text == "" {
		r.Keep = backend.Remembered
	}
	return r
}

// removeText removes the owner's text. If that fails, followers learn of the release when the lease would have ended.
func removeText(t *tenure) {
	e, r := t.engine, proclaimRequest(&t.First, "")
	_ = e.retry.Do(e.base, func() error {
		_, err := e.store.can.Proclamations.Proclaim(e.base, r)
		return err
	})
}
