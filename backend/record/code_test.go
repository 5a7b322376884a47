package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// everything is a name with all that a name can have, as steps at a time have left it.
func everything(now Time) *Name {
	n := &Name{
		Name: "long",
		Lock: Lock{
			Owners: []Owner{
				{"a:1", 2, now + 30*time.Second, 7, time.Minute, 0}, {"a:2", 1, time.Hour, 8, now, 1 << 41},
			},
			KeptFair: now + time.Second, Turn: -3, Extra: Extra{7, 99},
			Queue: []Entry{
				{8, 5, "b:1", 30 * time.Second, true, 0, time.Second},
				{9, 1 << 60, "c:1", time.Second, false, 20 * time.Millisecond, now}, {8, 6, "d:1", time.Second, true, 0, 0},
			},
			Places: []Place{{"f:1", now + time.Minute}, {"f:2", 2 * time.Hour}},
		},
		Sides: Sides{
			Writer: Owner{ID: "w", Holds: 1, Session: 9, Since: 2 * time.Second}, End: now + time.Second,
			Readers: map[string]Owner{
				"r1": {"r1", 1, now + time.Second, 7, now, 0}, "r2": {"r2", 1, time.Hour, 8, time.Second, 0},
			},
			Claim: Claim{"x", now + time.Second},
			Line:  Line{{7, 3, backend.KindWrite, true, 0, "w:2", 1, time.Hour, "w", now + time.Second, now}},
		},
		Permits: Permits{
			Counts: true, N: -2, Out: map[string]Time{"ab": now + time.Second, "cd": time.Hour},
			Line: Line{{8, 4, backend.KindSemaphore, false, 3, "p:1", 4, time.Minute, "", 0, time.Second}},
		},
		Said: Said{"a:1", "text", 5, 6, now + time.Hour}, Tick: Tick{1234567, "id", now + 24*time.Hour},
		Did: []Did{{"q1", -1, 7, now + time.Minute}}, Token: 1 << 41, Wrote: Wrote{9, 17},
		Watches: []Watch{
			{7, true, []backend.Topic{{Kind: backend.KindLock}, {Kind: backend.KindFair, Owner: "f:1"}}, now + time.Minute},
			{8, false, []backend.Topic{{Kind: backend.KindWrite}}, time.Hour},
		},
	}
	return n
}

// What a step has made counts from when the name was written, all else is as it was.
func TestANameIsReadAsItWasWritten(t *testing.T) {
	const written = 90 * time.Minute
	now := Moment(80 * time.Minute)
	got, err := Decode(everything(now).Encode(nil, now), written)
	if err != nil {
		t.Fatal(err)
	}
	if want := everything(written); !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v\nwant\n%+v", got, want)
	}
	for _, empty := range []*Name{{}, {Wrote: Wrote{1, 1}}} {
		if got, err := Decode(empty.Encode(nil, now), written); err != nil || !reflect.DeepEqual(got, empty) {
			t.Errorf("%+v was read as %+v, %v", empty, got, err)
		}
	}
	if got, err := Decode(nil, written); err != nil || !reflect.DeepEqual(got, &Name{}) {
		t.Errorf("nothing was read as %+v, %v", got, err)
	}
}

// seal replaces the checksum.
func seal(b []byte) []byte {
	b = b[:len(b)-4]
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func TestANameOfAnotherVersion(t *testing.T) {
	now := Moment(time.Hour)
	newer := everything(now).Encode(nil, now)
	newer[0]++
	if _, err := Decode(newer, 0); !errors.Is(err, ErrNewer) {
		t.Errorf("of a newer version: %v, want ErrNewer", err)
	}
	b := everything(now).Encode(nil, now)
	extra := []byte{sections + 3, 2, 'h', 'i', sections, 0}
	b = seal(append(append(b[:len(b)-4], extra...), 0, 0, 0, 0))
	n, err := Decode(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	if again := n.Encode(nil, now); !bytes.Contains(again, extra) {
		t.Errorf("sections of a later version are lost: %q has no %q", again, extra)
	}
}

// A version that does not know the section of times keeps it, and changes owners and entries.
func TestTimesOfOwnersAreTheirs(t *testing.T) {
	now := Moment(time.Hour)
	was := &Name{Lock: Lock{
		Owners: []Owner{{ID: "a:1", Since: time.Minute, Token: 7}},
		Queue:  []Entry{{Owner: "b:1", Came: time.Second}, {Owner: "c:1", Came: 2 * time.Second}},
	}}
	e := &encoder{now: now}
	e.times(was)
	older := &Name{
		Lock: Lock{Owners: []Owner{{ID: "b:1"}}, Queue: []Entry{{Owner: "c:1"}, {Owner: "d:1"}, {Owner: "a:1"}}}, Rest: e.b,
	}
	n, err := Decode(older.Encode(nil, now), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if o := n.Lock.Owners[0]; o.Since != 0 || o.Token != 0 {
		t.Errorf("the owner b:1 has the lock since %v with token %d, which is not known", o.Since, o.Token)
	}
	for i, want := range []Time{2 * time.Second, 0, 0} {
		if x := n.Lock.Queue[i]; x.Came != want {
			t.Errorf("the entry of %s came at %v, want %v", x.Owner, x.Came, want)
		}
	}
}

func TestDamagedNamesAreOfTheWrongKind(t *testing.T) {
	now := Moment(time.Hour)
	whole := everything(now).Encode(nil, now)
	for i := range whole {
		for _, b := range [][]byte{whole[:i], append(bytes.Clone(whole[:i]), whole[i+1:]...)} {
			if _, err := Decode(b, 0); len(b) > 0 && !errors.Is(err, backend.ErrWrongKind) && !errors.Is(err, ErrNewer) {
				t.Fatalf("without byte %d, or what comes after it: %v, want ErrWrongKind", i, err)
			}
		}
	}
	if _, err := Decode([]byte("text of another program"), 0); !errors.Is(err, backend.ErrWrongKind) {
		t.Errorf("text: %v, want ErrWrongKind", err)
	}
}

// A name with a thousand sessions that wait, and one with a hundred readers.
func TestTheSizeOfAName(t *testing.T) {
	now := Moment(time.Duration(1.8e18))
	stored := now - mark - time.Hour
	owner := func(i int) string { return fmt.Sprintf("0123456789abcdef%04d", i) }
	waits, reads := new(Name), &Name{Sides: Sides{End: stored, Readers: make(map[string]Owner)}}
	for i := range 1000 {
		x := Session(rand.Uint64())
		waits.Lock.Queue = append(waits.Lock.Queue, Entry{
			Session: x, Number: uint64(i), Owner: owner(i), Lease: 30 * time.Second, Came: stored - Time(1000-i)*time.Second,
		})
		waits.Watches = append(waits.Watches, Watch{x, true, []backend.Topic{{Kind: backend.KindLock}}, stored})
		if i < 100 {
			reads.Sides.Readers[owner(i)] = Owner{ID: owner(i), Holds: 1, Ends: stored, Session: x, Since: stored - time.Hour}
		}
	}
	for what, x := range map[string]struct {
		*Name
		most int
	}{"a thousand that wait": {waits, 60_000}, "a hundred readers": {reads, 5_000}} {
		if size := len(x.Encode(nil, now)); size > x.most {
			t.Errorf("%s take %d bytes, want %d at most", what, size, x.most)
		} else {
			t.Logf("%s take %d bytes", what, size)
		}
	}
}

// Times that no clock says are damage, or another program's. They stay as they are over later writings.
func TestTheLongestTimesStayAsTheyAre(t *testing.T) {
	now, most := Moment(time.Hour), millis(1<<62)
	n := &Name{Lock: Lock{Owners: []Owner{
		{ID: "a", Holds: 1, Ends: most, Since: -most}, {ID: "b", Holds: 1, Ends: -most, Since: most},
		{ID: "c", Holds: 1, Ends: now + most, Since: -most},
	}}}
	first, err := Decode(n.Encode(nil, now), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Decode(first.Encode(nil, now), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range again.Lock.Owners {
		if o != first.Lock.Owners[i] || o.Since != n.Lock.Owners[i].Since {
			t.Errorf("%v was read as %v, then as %v", n.Lock.Owners[i], first.Lock.Owners[i], o)
		}
	}
}

func FuzzDecode(f *testing.F) {
	now := Moment(time.Hour)
	f.Add(everything(now).Encode(nil, now))
	f.Add(new(Name).Encode(nil, now))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 5 {
			return
		}
		n, err := Decode(seal(bytes.Clone(b)), time.Hour)
		if err != nil {
			return
		}
		// The first writing makes the bytes those of this version; what is written after it is the same.
		first := n.Encode(nil, now)
		again, err := Decode(first, time.Hour)
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if second := again.Encode(nil, now); !bytes.Equal(first, second) {
			t.Fatalf("%x was written again as %x", first, second)
		}
		s := n.StepOf("n", 1, now) // no panic, whatever is in it
		n.Lock.Acquire(n.For(s, LockData), backend.AcquireRequest{Owner: "z", Lease: time.Second})
	})
}
