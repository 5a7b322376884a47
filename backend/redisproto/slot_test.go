package redisproto

import (
	"reflect"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestCRC16KnownValues(t *testing.T) {
	for key, want := range map[string]uint16{"": 0, "123456789": 0x31C3, "foo": 0xAF96, "A": 0x58E5} {
		got := crc16(key)
		check.ErrorIf(t, got != want, "crc16(%q) = %#x, want %#x", key, got, want)
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
		got := Slot(key)
		check.ErrorIf(t, got != want, "Slot(%q) = %d, want %d", key, got, want)
	}
	check.ErrorIf(t, Slot("{}foo") == Slot("foo") || Slot("{foo") == Slot("foo"),
		"an empty or open tag was taken for a tag")
}

func TestBySlotKeepsTheOrder(t *testing.T) {
	keys := []string{"{a}1", "{b}1", "{a}2", "c", "{b}2"}
	got := BySlot(len(keys), func(i int) string { return keys[i] })
	want := [][]int{{0, 2}, {1, 4}, {3}}
	check.ErrorIf(t, !reflect.DeepEqual(got, want), "groups %v, want %v", got, want)
	got = BySlot(0, nil)
	check.ErrorIf(t, got != nil, "no items make groups %v", got)
}

func TestOffAClusterAllIsOneGroup(t *testing.T) {
	got := Groups(false, 3, nil)
	check.ErrorIf(t, !reflect.DeepEqual(got, [][]int{{0, 1, 2}}), "got %v", got)
	got = Groups(false, 0, nil)
	check.ErrorIf(t, got != nil, "got %v", got)
}
