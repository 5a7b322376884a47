package redisproto

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"syscall"
)

const (
	remedyUnreachable = "the command was not sent: look whether Redis runs and is below its maxclients, " +
		"at address, TLS, connection pool and limiters, and whether the Redis client was closed"
	remedyName = "the command was not sent, because the server's name was not found: look at the address that the " +
		"Redis client has, and at the resolver"
	remedyNoListener = "the command was not sent, because nothing listens at the address: look whether Redis runs, " +
		"and at host and port"
	remedyNoRoute = "the command was not sent, because there is no way to the server: look at the address, and at " +
		"network, routes and firewall"
	remedyDialTimeout = "the command was not sent, because the server accepted no connection in time: look at network " +
		"and firewall, and whether the server is frozen or overloaded"
	remedyTLS = "the command was not sent, because the TLS handshake failed: look at the certificates, at the server's " +
		"name in them, and whether the port speaks TLS"
	remedyPool = "the command was not sent, because all connections of the Redis client's pool are in use: a larger " +
		"pool, or a Redis client of its own for blocking commands; see docs/how-to/sizing.md"
	remedyClosedBefore = "the Redis client was closed: close the mortise Client before it"
	remedyClosed       = "the command was not sent: the Redis client was closed; close the mortise Client before it"
)

// unsentRemedy returns the remedy for the error of a command that was not sent.
func unsentRemedy(err error) string {
	if text := err.Error(); strings.Contains(text, "connection pool") {
		return remedyPool
	} else if strings.Contains(text, "client is closed") {
		return remedyClosed
	}
	if _, unknown := errors.AsType[*net.DNSError](err); unknown {
		return remedyName
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return remedyNoListener
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return remedyNoRoute
	case handshake(err):
		return remedyTLS
	}
	if op, is := errors.AsType[*net.OpError](err); is && op.Op == "dial" && op.Timeout() {
		return remedyDialTimeout
	}
	return remedyUnreachable
}

// handshake reports whether err is of a TLS handshake.
func handshake(err error) bool {
	return errors.As(err, new(tls.RecordHeaderError)) || errors.As(err, new(*tls.CertificateVerificationError)) ||
		errors.As(err, new(tls.AlertError)) || errors.As(err, new(x509.UnknownAuthorityError)) ||
		errors.As(err, new(x509.HostnameError)) || errors.As(err, new(x509.CertificateInvalidError))
}
