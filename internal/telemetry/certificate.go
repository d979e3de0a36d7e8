package telemetry

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// TLS names the certificate of a server, in PEM. The zero value means no certificate.
// The files are read again when they change.
type TLS struct {
	// CertificateFile may have the certificates of the authorities behind the
	// first; KeyFile has its key.
	CertificateFile, KeyFile string
}

func (t TLS) enabled() bool { return t.CertificateFile != "" }

// certificate is a certificate and its key as last read from their files.
type certificate struct {
	files TLS
	log   *slog.Logger

	mu   sync.Mutex
	read [2]version
	pair *tls.Certificate
}

// version differs between two contents of a file, also where a symbolic link
// leads to another file, as in a volume with a secret.
type version struct {
	modified time.Time
	size     int64
}

// config returns the configuration of a server. It fails if certificate and key do not match.
func (t TLS) config(log *slog.Logger) (*tls.Config, error) {
	c := &certificate{files: t, log: log}
	if err := c.refresh(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil },
	}, nil
}

// current reads the files again if they changed. While certificate and key do not
// match, as between the writes of the two files, it returns the last pair.
func (c *certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refresh(); err != nil {
		c.log.Warn("the certificate cannot be read; the one before is used", "error", err)
	}
	return c.pair
}

// refresh reads the files if they changed.
func (c *certificate) refresh() error {
	now, err := c.files.versions()
	if err != nil {
		return err
	}
	if now == c.read {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(c.files.CertificateFile, c.files.KeyFile)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", c.files.CertificateFile, c.files.KeyFile, err)
	}
	c.pair, c.read = &pair, now
	return nil
}

func (t TLS) versions() (found [2]version, err error) {
	for i, path := range []string{t.CertificateFile, t.KeyFile} {
		info, err := os.Stat(path)
		if err != nil {
			return found, fmt.Errorf("certificate: %w", err)
		}
		found[i] = version{info.ModTime(), info.Size()}
	}
	return found, nil
}
