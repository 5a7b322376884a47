package etcd

import "github.com/mortise-go/mortise/backend/cas"

// NewDriver makes the driver of a session.
var NewDriver = newDriver

// LeaseOf returns the etcd lease of what a session listens with.
func LeaseOf(d cas.Driver, session string) int64 { return int64(d.(*driver).leaseOf(session)) }
