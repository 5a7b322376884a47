package etcd

import (
	"time"

	"github.com/mortise-go/mortise/backend/cas"
)

// NewDriver makes the driver of a session.
var NewDriver = newDriver

// LeaseOf returns the etcd lease of what a session listens with.
func LeaseOf(d cas.Driver, session string) int64 { return int64(d.(*driver).leaseOf(session)) }

// Packed returns a value as a writer sends it that asked for an etcd lease so long before.
func Packed(lease int64, least, most time.Duration, data []byte) string {
	return header{lease: lease, least: least, most: most}.pack(&cas.Swap{Value: data})
}
