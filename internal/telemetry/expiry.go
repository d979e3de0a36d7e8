package telemetry

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// expiry reports when the certificate in a file expires. It reads the file at each
// scrape. While that has no certificate, there is no metric.
type expiry struct {
	file string
	time *prometheus.Desc
}

func newExpiry(files TLS) *expiry {
	return &expiry{file: files.CertificateFile, time: prometheus.NewDesc("holdfast_certificate_expiry_timestamp_seconds",
		"When the certificate of this address expires, in Unix time.", []string{"file"}, nil)}
}

// Describe implements prometheus.Collector.
func (e *expiry) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- e.time }

// Collect implements prometheus.Collector.
func (e *expiry) Collect(to chan<- prometheus.Metric) {
	certificate, err := readCertificate(e.file)
	if err != nil {
		return
	}
	to <- prometheus.MustNewConstMetric(e.time, prometheus.GaugeValue, float64(certificate.NotAfter.Unix()), metrics.LabelOf(e.file))
}

// readCertificate returns the first certificate of a PEM file: that of the server.
func readCertificate(file string) (*x509.Certificate, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
	}
	return nil, fmt.Errorf("%s has no certificate", file)
}
