package cloud

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// Tags that the client itself asks for (the reference driver's names).
const (
	// NameTag is the tag with the CSI name of a volume.
	NameTag = "CSIVolumeName"
	// SnapshotNameTag is the tag with the CSI name of a snapshot.
	SnapshotNameTag = "CSIVolumeSnapshotName"
	// ManagedTag, with the value "true", marks what a driver made.
	ManagedTag = "ebs.csi.aws.com/cluster"
)

// Options configure a Client. The zero value reads all settings from the environment, as
// AWS's tools do.
type Options struct {
	// Endpoint of EC2; if empty, AWS_EC2_ENDPOINT, then AWS_ENDPOINT_URL_EC2.
	Endpoint string
	// Region; if empty, AWS_REGION, then the instance metadata service.
	Region string
	// FindRegion is called if the instance metadata service does not answer; may be nil.
	FindRegion func(context.Context) (string, error)
	// HTTPClient sends the requests to EC2; nil means a new client.
	HTTPClient interface {
		Do(*http.Request) (*http.Response, error)
	}
	// Credentials; nil means the usual chain of AWS's SDKs. See StaticCredentials.
	Credentials aws.CredentialsProvider
	// UserAgent is added to the SDK's, such as holdfast/1.2.
	UserAgent string
	// UserAgentExtra is text to append, or "".
	UserAgentExtra string
	// LogRequests logs each request to EC2 and its answer with their bodies, without
	// what signs them.
	LogRequests bool
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
	Pacing      PacingOptions
	// Lag is how long EC2's describes may lag behind its answers; 0 means 10 s. Until
	// then, an answer replaces a describe that contradicts it.
	Lag time.Duration
	// FirstPoll is how long after its start a transition is polled first; 0 means EC2's
	// usual time for its kind.
	FirstPoll time.Duration
}

// PacingOptions configure how the client slows down for EC2's limits.
type PacingOptions struct {
	// Off sends every call at once; only EC2's throttling then limits the rate.
	Off bool
}

// Client calls EC2. It is safe for concurrent use.
type Client struct {
	api         *ec2.Client
	credentials *credentialsCache
	region      string
	logger      *slog.Logger
	pace        *pacer
	memory      *memory
	metrics     *instruments
	health      health
	bursts      *concurrency.BurstDetector

	lookups lookups
	watchers

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	closing sync.Once
}

var errClosed = errors.New("the EC2 client is closed")

// New makes a client. It does not need EC2 to be reachable, only a region.
func New(ctx context.Context, o Options) (*Client, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Lag == 0 {
		o.Lag = 10 * time.Second
	}
	config, err := configure(ctx, o)
	if err != nil {
		return nil, err
	}
	c := &Client{
		credentials: config.credentials,
		region:      config.aws.Region,
		logger:      o.Logger,
		memory:      newMemory(o.Lag),
		bursts:      new(concurrency.BurstDetector),
	}
	c.api = ec2.NewFromConfig(config.aws, func(e *ec2.Options) {
		e.Retryer = aws.NopRetryer{} // call repeats, by class
		e.HTTPClient = config.http
		if endpoint := endpointOf(o); endpoint != "" {
			e.BaseEndpoint = aws.String(endpoint)
		}
		e.APIOptions = append(e.APIOptions, userAgent(o.UserAgent)...)
		e.APIOptions = append(e.APIOptions, userAgent(o.UserAgentExtra)...)
		if o.LogRequests {
			e.ClientLogMode, e.Logger = aws.LogRequestWithBody|aws.LogResponseWithBody, requestLog{o.Logger, c.credentials.hide}
		}
	})
	lifetime, cancel := context.WithCancel(context.WithoutCancel(ctx)) // ctx may end before the client
	c.ctx, c.cancel = lifetime, cancel
	c.pace = newPacer(lifetime, o.Pacing)
	if c.metrics, err = newMetrics(o.Registerer, c.pace); err != nil {
		return nil, err
	}
	c.makeLookups()
	c.makeWatchers(o.FirstPoll)
	c.tasks.Go(c.checkHealth)
	return c, nil
}

// Region is the region of the EC2 endpoint.
func (c *Client) Region() string { return c.region }

// Lag is how long EC2's describes may lag behind its answers.
func (c *Client) Lag() time.Duration { return c.memory.lag }

// Close ends all waits and background tasks. It may be called again.
func (c *Client) Close() error {
	c.closing.Do(func() {
		c.cancel()
		c.closeLookups()
		c.tasks.Wait()
		c.metrics.close()
	})
	return nil
}

// endpointOf is the configured endpoint. The SDK itself reads AWS_ENDPOINT_URL_EC2.
func endpointOf(o Options) string {
	return firstOf(o.Endpoint, os.Getenv("AWS_EC2_ENDPOINT"))
}

// userAgent adds product/version, or a word alone, to the SDK's user agent.
func userAgent(name string) []func(*middlewareStack) error {
	if name == "" {
		return nil
	}
	if product, version, has := strings.Cut(name, "/"); has {
		return []func(*middlewareStack) error{middleware.AddUserAgentKeyValue(product, version)}
	}
	return []func(*middlewareStack) error{middleware.AddUserAgentKey(name)}
}
