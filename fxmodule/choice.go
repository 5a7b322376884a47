package fxmodule

import (
	"fmt"
	"strings"

	"github.com/mortise-go/mortise"
)

// choice picks a value: a graph may have values of several types, and exactly one is to be there.
type choice[T any] struct {
	asked, there []string
	make         func() T
	ours         bool
}

// offer adds a type. There reports whether the graph has a value of the type; make then makes the result. Ours says
// that the module closes the result.
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
