package telemetry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// issue writes a certificate that is its own authority, and its key.
func issue(t *testing.T, files TLS, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "holdfast"}, NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, files.CertificateFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	write(t, files.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
}

// write replaces a file by one that is newer in any case.
func write(t *testing.T, path string, content []byte) {
	t.Helper()
	before, _ := os.Stat(path)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if before == nil {
		return
	}
	later := before.ModTime().Add(time.Second)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
}

// serial is that of the certificate which a page shows.
func serial(t *testing.T, address string) int64 {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Get("https://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK || answer.TLS == nil {
		t.Fatalf("the page answers %s", answer.Status)
	}
	return answer.TLS.PeerCertificates[0].SerialNumber.Int64()
}

func pairIn(dir string) TLS {
	return TLS{CertificateFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
}

func TestPage_servesHTTPSWithTheCertificateOfNow(t *testing.T) {
	files := pairIn(t.TempDir())
	issue(t, files, 1)
	address := strings.TrimPrefix(openWith(t, Page{TLS: files}), "http://")
	if got := serial(t, address); got != 1 {
		t.Errorf("the certificate is %d", got)
	}
	issue(t, files, 2)
	if got := serial(t, address); got != 2 {
		t.Errorf("after a new one was written the certificate is %d", got)
	}
	write(t, files.KeyFile, []byte("half of a key"))
	if got := serial(t, address); got != 2 {
		t.Errorf("while the key is written the certificate is %d", got)
	}
	if err := os.Remove(files.CertificateFile); err != nil {
		t.Fatal(err)
	}
	if got := serial(t, address); got != 2 {
		t.Errorf("while there is none the certificate is %d", got)
	}
	issue(t, files, 3)
	if got := serial(t, address); got != 3 {
		t.Errorf("in the end the certificate is %d", got)
	}
	if code, _ := get(t, "http://"+address+"/metrics"); code == http.StatusOK {
		t.Error("the page is served without TLS, too")
	}
}

func TestPage_failsWithoutItsCertificate(t *testing.T) {
	empty, torn := pairIn(t.TempDir()), pairIn(t.TempDir())
	issue(t, torn, 1)
	write(t, torn.KeyFile, []byte("no key"))
	for _, files := range []TLS{empty, torn} {
		page := Page{Address: "127.0.0.1:0", Gatherer: metrics.NewRegistry("v0"), Logger: slog.New(slog.DiscardHandler), TLS: files}
		if err := page.Run(t.Context()); err == nil || !strings.Contains(err.Error(), files.CertificateFile) {
			t.Errorf("it ends with %v", err)
		}
	}
}

func TestPage_saysWhenItsCertificateExpires(t *testing.T) {
	files := pairIn(t.TempDir())
	issue(t, files, 1)
	certificate, err := readCertificate(files.CertificateFile)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newExpiry(files))
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("gathered %v, %v", families, err)
	}
	if got := families[0].GetMetric()[0].GetGauge().GetValue(); got != float64(certificate.NotAfter.Unix()) || got < float64(time.Now().Unix()) {
		t.Errorf("it expires at %v, the certificate at %s", got, certificate.NotAfter)
	}
	if err := os.WriteFile(files.CertificateFile, []byte("half of"), 0o600); err != nil {
		t.Fatal(err)
	}
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("of a file without a certificate: %v, %v", families, err)
	}
	answer := httptest.NewRecorder()
	issue(t, files, 2)
	MetricsHandler(metrics.NewRegistry("v0"), files).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{"holdfast_certificate_expiry_timestamp_seconds{file=", "holdfast_build_info{"} {
		if !strings.Contains(answer.Body.String(), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}
