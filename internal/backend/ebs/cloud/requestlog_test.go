package cloud

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
)

// lockedBuffer is a log that several calls write.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func TestNew_logsRequestsWithoutCredentials(t *testing.T) {
	emu, err := ec2emu.New(ec2emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = emu.Close() }()
	var log lockedBuffer
	c, err := New(t.Context(), Options{
		Region: "us-west-2", Credentials: credentials.NewStaticCredentialsProvider("AKIAEXAMPLE", "hidden-secret", "hidden-token"),
		HTTPClient: &http.Client{Transport: emu.RoundTripper()}, LogRequests: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Zones(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	text := log.text.String()
	for _, want := range []string{"Action=DescribeAvailabilityZones", "us-west-2a", "Authorization: [redacted]", "X-Amz-Security-Token: [redacted]"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	for _, secret := range []string{"hidden-secret", "hidden-token", "Signature="} {
		if strings.Contains(text, secret) {
			t.Errorf("the log has %q:\n%s", secret, text)
		}
	}
}
