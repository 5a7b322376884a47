//go:build unix

package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

// TLS is a certificate authority of a test's own, and what it signed: a certificate for a
// server at 127.0.0.1 and one for its clients, which the server asks for.
type TLS struct {
	dir    string
	pool   *x509.CertPool
	client tls.Certificate
	server tls.Certificate
}

// NewTLS makes one.
func NewTLS(t testing.TB) *TLS {
	t.Helper()
	x := &TLS{dir: t.TempDir(), pool: x509.NewCertPool()}
	must := func(err error) { check.FatalIf(t, err != nil, "redistest: TLS: %v", err) }
	write := func(name, kind string, der []byte) {
		must(os.WriteFile(filepath.Join(x.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	begin, end := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		return k
	}
	authorityKey := key()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redistest"}, NotBefore: begin, NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	sign := func(template *x509.Certificate, k *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, template, authority, &k.PublicKey, authorityKey)
		must(err)
		return der
	}
	der := sign(authority, authorityKey)
	write("ca.crt", "CERTIFICATE", der)
	parsed, err := x509.ParseCertificate(der)
	must(err)
	x.pool.AddCert(parsed)

	serverKey := key()
	der = sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "server"}, NotBefore: begin, NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, serverKey)
	write("server.crt", "CERTIFICATE", der)
	x.server = tls.Certificate{PrivateKey: serverKey, Certificate: [][]byte{der}}
	der, err = x509.MarshalECPrivateKey(serverKey)
	must(err)
	write("server.key", "EC PRIVATE KEY", der)

	clientKey := key()
	x.client = tls.Certificate{PrivateKey: clientKey, Certificate: [][]byte{sign(&x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "client"}, NotBefore: begin, NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, clientKey)}}
	write("client.crt", "CERTIFICATE", x.client.Certificate[0])
	der, err = x509.MarshalECPrivateKey(clientKey)
	must(err)
	write("client.key", "EC PRIVATE KEY", der)
	return x
}

// ReadTLS is Config in another process, of the files that [TLS.Dir] has.
func ReadTLS(dir string) (*tls.Config, error) {
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	client, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{client}, MinVersion: tls.VersionTLS12}, err
}

// Dir is where the certificates and keys are.
func (x *TLS) Dir() string { return x.dir }

// Config is what a client needs: it trusts the authority, and has a certificate itself.
func (x *TLS) Config() *tls.Config {
	c := x.Stranger()
	c.Certificates = []tls.Certificate{x.client}
	return c
}

// Stranger is Config without the client's certificate.
func (x *TLS) Stranger() *tls.Config {
	return &tls.Config{RootCAs: x.pool, MinVersion: tls.VersionTLS12}
}

// WithTLS has the server listen at [Server.TLSAddr], for clients with a certificate. Addr
// stays as it is, for the test itself. TLS of a server that was built without it ends in
// the test, which passes the bytes on.
func WithTLS(x *TLS) Option { return func(s *Server) { s.tls = x } }

// TLSAddr is the server's host:port for TLS, with [WithTLS].
func (s *Server) TLSAddr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.tlsPort)) }

// lines are those of redis.conf.
func (x *TLS) lines(port int) []string {
	return []string{
		"tls-port " + strconv.Itoa(port),
		"tls-auth-clients yes",
		"tls-ca-cert-file " + filepath.Join(x.dir, "ca.crt"),
		"tls-cert-file " + filepath.Join(x.dir, "server.crt"),
		"tls-key-file " + filepath.Join(x.dir, "server.key"),
	}
}

// endTLS starts a relay that ends TLS before a server which was built without.
func (s *Server) endTLS() (*Relay, error) {
	l, err := tls.Listen("tcp", s.TLSAddr(), &tls.Config{
		Certificates: []tls.Certificate{s.tls.server}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: s.tls.pool, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		return nil, err
	}
	return relay(l, s.Addr(), nil), nil
}
