package redis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/store"
)

// papers are an authority, and a certificate of its own for 127.0.0.1, in files.
type papers struct{ ca, cert, key string }

func issue(t *testing.T) papers {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	from := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	root, err := x509.CreateCertificate(rand.Reader, &from, &from, authority.Public(), authority)
	must(err)
	to := x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: from.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	leaf, err := x509.CreateCertificate(rand.Reader, &to, &from, key.Public(), authority)
	must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	return papers{file("ca.pem", "CERTIFICATE", root), file("cert.pem", "CERTIFICATE", leaf), file("key.pem", "PRIVATE KEY", private)}
}

// TestTLS: with the right papers all is as without; with others' or none Redis is away.
func TestTLS(t *testing.T) {
	t.Parallel()
	ours, others, port := issue(t), issue(t), freePort(t)
	srv := startServer(t, "--tls-port", port, "--bind", "127.0.0.1", "--tls-ca-cert-file", ours.ca,
		"--tls-cert-file", ours.cert, "--tls-key-file", ours.key)
	c := srv.config("weir")
	c.Addresses = []string{"127.0.0.1:" + port}
	c.TLS = TLS{Enabled: true, CA: ours.ca, Cert: ours.cert, Key: ours.key}
	b := &bench{T: t, srv: srv, Store: srv.open(t, c)}
	b.seed(page("small"), "one", long)
	b.holds(page("small"), "one")
	b.seed(page("big"), strings.Repeat("x", 3*mib), long)
	b.holds(page("big"), strings.Repeat("x", 3*mib))
	for _, papers := range []TLS{
		{Enabled: true, CA: others.ca, Cert: ours.cert, Key: ours.key},
		{Enabled: true, CA: ours.ca, Cert: others.cert, Key: others.key},
		{Enabled: true, CA: ours.ca},
		{},
	} {
		c.TLS = papers
		s, err := Open(c)
		b.must(err)
		defer func() { _ = s.Close() }()
		b.fails(s.Check(t.Context()), store.ErrUnavailable)
		(&bench{T: t, srv: srv, Store: s}).opens()
	}
}
