package redisproto

import (
	"fmt"
	"slices"
	"strings"
)

const slots = 16384

// Slot returns the cluster slot of a key: from the CRC16 of its hash tag, or of the whole key if there is
// no hash tag. The hash tag is the text between the first { and the next }, if it is not empty.
func Slot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			key = key[open+1 : open+1+n]
		}
	}
	return int(crc16(key)) % slots
}

// BySlot groups the indexes of n items by the slots of their keys. Groups are in the order of their first item, and the
// items of a group in ascending order.
func BySlot(n int, key func(i int) string) [][]int {
	var groups [][]int
	group := make(map[int]int) // by slot
	for i := range n {
		slot := Slot(key(i))
		g, ok := group[slot]
		if !ok {
			g = len(groups)
			group[slot] = g
			groups = append(groups, nil)
		}
		groups[g] = append(groups[g], i)
	}
	return groups
}

// Groups splits a batch of n items into groups of indexes, one for each script: on a cluster a group for
// each slot, otherwise one group.
func Groups(cluster bool, n int, key func(i int) string) [][]int {
	if cluster {
		return BySlot(n, key)
	}
	if n == 0 {
		return nil
	}
	group := make([]int, n)
	for i := range group {
		group[i] = i
	}
	return [][]int{group}
}

// ItemReply is the reply of a script for an item of a batch.
type ItemReply interface {
	~struct {
		Value int64
		Err   error
	}
}

// Fill sets out for the items of a group: each gets its value of the script's reply, or the script's
// error.
func Fill[R ItemReply](out []R, group []int, vals []int64, err error) {
	if err == nil && len(vals) != len(group) {
		err = fmt.Errorf("the script answered %d of %d items", len(vals), len(group))
	}
	for j, i := range group {
		if err != nil {
			out[i] = R{Err: err}
		} else {
			out[i] = R{Value: vals[j]}
		}
	}
}

// TrackedBatch is the largest number of leases that one script renews over a tracking connection. With
// tracking, each read within a script makes the server remember all keys of the script: a script with
// 256 keys takes 22 ms, 16 scripts with 16 keys some 1.5 ms.
const TrackedBatch = 16

// Split splits groups into parts of at most most items; zero for no bound.
func Split(groups [][]int, most int) [][]int {
	if most == 0 {
		return groups
	}
	out := make([][]int, 0, len(groups))
	for _, g := range groups {
		out = slices.AppendSeq(out, slices.Chunk(g, most))
	}
	return out
}

// crc16 returns the CRC-16/XMODEM of s, which Redis Cluster uses: polynomial 0x1021, initial value 0.
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^s[i]]
	}
	return crc
}

var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		t[i] = crc
	}
	return t
}()
