package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/grpcserver/peertest"
	"github.com/holdfast-csi/holdfast/internal/policy"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

func TestMain(m *testing.M) {
	peertest.Main()
	os.Exit(m.Run())
}

// Pods of the cluster can reach the webhook's port: one that misbehaves must not keep an
// API server's reviews from their answers.
func TestWebhook_survivesHostilePeers(t *testing.T) {
	rule, err := policy.New(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	var pair telemetry.TLS
	pair.CertificateFile, pair.KeyFile = peertest.Certificate(t)
	ctx, cancel := context.WithCancel(context.Background())
	bound, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Address: "127.0.0.1:0", TLS: pair, Rule: rule, Logger: slog.New(slog.DiscardHandler),
			Registry: prometheus.NewRegistry(), Listening: func(address net.Addr) { bound <- address }})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	address := (<-bound).String()
	body := review(t, "Pod", "storage", `{}`)
	peertest.Attack(t, peertest.Server{Network: "tcp", Address: address, TLS: true, Path: Path, Ask: func(ctx context.Context) error {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+Path, bytes.NewReader([]byte(body)))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := transport.RoundTrip(request)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s (%w)", answer.Status, text, err)
		}
		return nil
	}})
}
