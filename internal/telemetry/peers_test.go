package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/grpcserver/peertest"
)

// A peer of a page, which other hosts can reach, costs bounded memory, and a scrape of
// another host is answered.
func TestPage_survivesHostilePeers(t *testing.T) {
	address := strings.TrimPrefix(open(t, nil), "http://")
	peertest.Attack(t, peertest.Server{Network: "tcp", Address: address, Path: "/metrics", Ask: func(ctx context.Context) error {
		transport := &http.Transport{DisableKeepAlives: true}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			return err
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			return err
		}
		if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s, %w", answer.Status, err)
		}
		return nil
	}})
}
