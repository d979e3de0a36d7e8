package cloud

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/test/surfaces"
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

// An endpoint that is not EC2 may show the request that it refuses: a proxy, for example.
func TestErrors_haveNoCredentials(t *testing.T) {
	const key, secret, token = "AKIAMARKER4731", "marker4732ofthesecret", "marker4733/ofthe+token="
	var log lockedBuffer
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		shown := r.Header.Get("Authorization") + "; " + r.Header.Get("X-Amz-Security-Token") + "; " + secret + "; " +
			base64.StdEncoding.EncodeToString([]byte("X-Amz-Security-Token: "+token))
		_, _ = fmt.Fprintf(w, "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>open4734: %s</Message></Error></Errors></Response>", shown)
	}))
	defer server.Close()
	c, err := New(t.Context(), Options{
		Region: "us-west-2", Credentials: credentials.NewStaticCredentialsProvider(key, secret, token), Endpoint: server.URL,
		LogRequests: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Zones(t.Context())
	if err == nil {
		t.Fatal("a refusal is not an error")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	shown := surfaces.Surfaces{"the error": []byte(err.Error()), "the log": log.text.Bytes()}
	shown.Hides(t, key, secret, "marker4733", "ofthe+token")
	shown.Shows(t, "open4734", "the error", "the log")
}
