package redisproto

import (
	"reflect"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestCRC16KnownValues(t *testing.T) {
	for key, want := range map[string]uint16{"": 0, "123456789": 0x31C3, "foo": 0xAF96, "A": 0x58E5} {
		if got := crc16(key); got != want {
			t.Errorf("crc16(%q) = %#x, want %#x", key, got, want)
		}
	}
}

// The values are what CLUSTER KEYSLOT answers.
func TestSlotHashesTheTagOnly(t *testing.T) {
	for key, want := range map[string]int{
		"foo":                  12182,
		"123456789":            12739,
		"{foo}":                12182,
		"a{foo}b":              12182,
		"{foo}{bar}":           12182,
		"mortise:{foo}:t":      12182,
		"":                     0,
		"{user1000}.following": 3443,
		"foo{}{bar}":           8363,
		"foo{{bar}}zap":        4015,
		"foo{bar}{zap}":        5061,
	} {
		if got := Slot(key); got != want {
			t.Errorf("Slot(%q) = %d, want %d", key, got, want)
		}
	}
	check.ErrorIf(t, Slot("{}foo") == Slot("foo") || Slot("{foo") == Slot("foo"),
		"an empty or open tag was taken for a tag")
}

func TestBySlotKeepsTheOrder(t *testing.T) {
	keys := []string{"{a}1", "{b}1", "{a}2", "c", "{b}2"}
	got := BySlot(len(keys), func(i int) string { return keys[i] })
	if want := [][]int{{0, 2}, {1, 4}, {3}}; !reflect.DeepEqual(got, want) {
		t.Errorf("groups %v, want %v", got, want)
	}
	if got := BySlot(0, nil); got != nil {
		t.Errorf("no items make groups %v", got)
	}
}

func TestOffAClusterAllIsOneGroup(t *testing.T) {
	if got := Groups(false, 3, nil); !reflect.DeepEqual(got, [][]int{{0, 1, 2}}) {
		t.Errorf("got %v", got)
	}
	if got := Groups(false, 0, nil); got != nil {
		t.Errorf("got %v", got)
	}
}
