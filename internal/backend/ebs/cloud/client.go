package cloud

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/prometheus/client_golang/prometheus"
)

// Options configure a Client. The zero value takes everything from the
// environment, as AWS's own tools do.
type Options struct {
	// Endpoint of EC2; AWS_EC2_ENDPOINT and AWS_ENDPOINT_URL_EC2 when empty.
	Endpoint string
	// Region; AWS_REGION, then the instance metadata service when empty.
	Region string
	// HTTPClient does the requests to EC2; nil means a client of its own.
	HTTPClient interface {
		Do(*http.Request) (*http.Response, error)
	}
	// Credentials; the usual chain of AWS's SDKs when nil. See StaticCredentials.
	Credentials aws.CredentialsProvider
	// UserAgent is added to the SDK's.
	UserAgent  string
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Pacing     PacingOptions
	// Settling is for how long after this client's own creation a volume or
	// snapshot that EC2 does not show is taken as not visible yet; 10 s when 0.
	Settling time.Duration
}

// PacingOptions say how the client slows down for EC2's limits.
type PacingOptions struct {
	// Off sends every call at once, and so leaves the pace to EC2's throttling.
	Off bool
}

// Client speaks to EC2. It is safe for concurrent use; nil is not a Client.
type Client struct{}

// New makes a client. It does not need EC2 to be reachable, only a region.
func New(ctx context.Context, o Options) (*Client, error) { return nil, errNotYet }

// StaticCredentials are credentials given as they are, for tests and emulators.
func StaticCredentials(id, secret string) aws.CredentialsProvider { return nil }

// Health is nil when EC2 answers and accepts the credentials, as far as is
// known; it costs no call.
func (c *Client) Health() error { return nil }

// Close ends what runs in the background and every wait.
func (c *Client) Close() error { return nil }

var errNotYet = errors.New("not yet")
