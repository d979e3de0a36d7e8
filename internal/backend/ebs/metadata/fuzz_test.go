package metadata

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/httplimit"
	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// liar is an instance metadata service that answers anything.
type liar struct {
	token, document, value []byte
	status                 int
	asked                  int
}

func (l *liar) Do(r *http.Request) (*http.Response, error) {
	l.asked++
	body, status := l.value, l.status
	switch {
	case r.Method == http.MethodPut:
		body, status = l.token, http.StatusOK
	case strings.Contains(r.URL.Path, "instance-identity"):
		body, status = l.document, http.StatusOK
	}
	header := http.Header{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": {string(l.value)}, "Content-Type": {"text/plain"}}
	return &http.Response{StatusCode: status, Request: r, Header: header, Body: io.NopCloser(bytes.NewReader(body)), ProtoMajor: 1, ProtoMinor: 1}, nil
}

// FuzzIMDS reads the instance from a service that answers anything: an instance has an ID
// and a zone, or there is an error.
func FuzzIMDS(f *testing.F) {
	f.Add([]byte("token"), []byte(document), []byte("21600"), 200)
	f.Add([]byte("token\r\nX: y"), []byte(document), []byte("0e:00:00:00:00:01/\n0e:00:00:00:00:02/"), 200)
	f.Add([]byte(""), []byte(`{"instanceId":"i-0","availabilityZone":"z","pendingTime":"x"}`), []byte("-1"), 404)
	f.Add([]byte("\x00"), []byte(`[]`), []byte("99999999999999999999"), 403)
	f.Add([]byte("t"), []byte(strings.Repeat(`{"a":`, 2000)), bytes.Repeat([]byte("a "), 1000), 200)
	f.Fuzz(func(t *testing.T, token, document, value []byte, status int) {
		if status < 200 || status > 599 {
			return // not an answer of HTTP
		}
		service := &liar{token: token, document: document, value: value, status: status}
		source := IMDS{endpoint: "http://169.254.169.254", client: imds.New(imds.Options{HTTPClient: httplimit.Client{Doer: service, Most: longest}, Retryer: aws.NopRetryer{}})}
		fuzztest.Cost{}.Within(t, len(token)+len(document)+len(value), func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			found, err := source.Instance(ctx)
			if err == nil && (found.ID == "" || found.Zone == "" || found.Interfaces < 0) {
				t.Errorf("the instance is %+v", found)
			}
			if service.asked > 20 {
				t.Errorf("%d requests", service.asked)
			}
		})
	})
}

// endless is an answer without an end.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read += int64(len(p))
	return len(p), nil
}

// A service that never ends its answer must not cost more memory than its limit.
func TestIMDS_endsAnAnswerWithoutAnEnd(t *testing.T) {
	body := &endless{}
	client := clientFunc(func(r *http.Request) (*http.Response, error) {
		answer := &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": {"60"}}, Body: io.NopCloser(strings.NewReader("token"))}
		if r.Method == http.MethodGet {
			answer.Body = io.NopCloser(body)
		}
		return answer, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	source := IMDS{endpoint: "x", client: imds.New(imds.Options{HTTPClient: httplimit.Client{Doer: client, Most: longest}, Retryer: aws.NopRetryer{}})}
	if _, err := source.Instance(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("an endless document: %v", err)
	}
	if most := int64(4 * longest); body.read > most {
		t.Errorf("%d bytes were read; want at most %d", body.read, most)
	}
}

type clientFunc func(*http.Request) (*http.Response, error)

func (c clientFunc) Do(r *http.Request) (*http.Response, error) { return c(r) }
