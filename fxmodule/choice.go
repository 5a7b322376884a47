package fxmodule

import (
	"fmt"
	"strings"

	"github.com/mortise-go/mortise"
)

// choice is the one of several types that a graph has.
type choice[T any] struct {
	asked, there []string
	make         func() T
	ours         bool
}

// offer tells whether the graph has a value of a type, and what to make of it. ours tells that what is
// made is to be closed by the module.
func (c *choice[T]) offer(of string, there, ours bool, make func() T) {
	c.asked = append(c.asked, of)
	if there {
		c.there = append(c.there, of)
		c.make, c.ours = make, ours
	}
}

func (c *choice[T]) made(m *config) (v T, ours bool, err error) {
	under := ""
	if m.name != "" {
		under = fmt.Sprintf(` under the name %q`, m.name)
	}
	switch len(c.there) {
	case 0:
		return v, false, fmt.Errorf("fxmodule: %w: %s have no store: fx.Supply or fx.Provide one of %s%s",
			mortise.ErrInvalid, m.subject(), strings.Join(c.asked, ", "), under)
	case 1:
		return c.make(), c.ours, nil
	}
	return v, false, fmt.Errorf("fxmodule: %w: %s could be on more than one store, for the graph has %s%s: "+
		"leave one, or use Named and put it under that name",
		mortise.ErrInvalid, m.subject(), strings.Join(c.there, " and "), under)
}
