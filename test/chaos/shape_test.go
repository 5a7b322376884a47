//go:build linux

package chaos

// shape is which kind of lock a name is: so many may be inside at once, and so much of that does each take.
type shape int

const (
	plain shape = iota
	fair
	readWrite
	permits
	shapesThere
)

func (s shape) String() string { return [...]string{"plain", "fair", "read-write", "permits"}[s] }

// Names are of these in turn.
var shapes = [...]shape{plain, plain, fair, readWrite, permits}

func shapeOf(name int64) shape { return shapes[name%generation%int64(len(shapes))] }

const (
	permitsMade = 2
	crowd       = 1 << 20 // more than there are readers
)

// room is how much there is for those inside.
func (s shape) room() int {
	switch s {
	case readWrite:
		return crowd
	case permits:
		return permitsMade
	}
	return 1
}

// fenced tells whether it gives out tokens.
func (s shape) fenced() bool { return s == plain || s == fair }

func (v visit) shape() shape { return shapeOf(v.name) }

// takes is how much of the room a visit takes: a reader and a permit 1, all others all of it.
func (v visit) takes() int {
	if s := v.shape(); s != permits && !v.reads {
		return s.room()
	}
	return 1
}

// shares tells whether others may be inside with it.
func (v visit) shares() bool { return v.takes() < v.shape().room() }
