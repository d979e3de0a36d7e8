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

// Options configure a Client. The zero value takes everything from the
// environment, as AWS's own tools do.
type Options struct {
	// Endpoint of EC2; AWS_EC2_ENDPOINT and AWS_ENDPOINT_URL_EC2 when empty.
	Endpoint string
	// Region; AWS_REGION, then the instance metadata service when empty.
	Region string
	// FindRegion is asked when the instance metadata service does not answer; may
	// be nil.
	FindRegion func(context.Context) (string, error)
	// HTTPClient does the requests to EC2; nil means a client of its own.
	HTTPClient interface {
		Do(*http.Request) (*http.Response, error)
	}
	// Credentials; the usual chain of AWS's SDKs when nil. See StaticCredentials.
	Credentials aws.CredentialsProvider
	// UserAgent is added to the SDK's, such as holdfast/1.2.
	UserAgent  string
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Pacing     PacingOptions
	// Lag is how long EC2's describes may lag behind its answers; 10 s when 0.
	// Until then a describe is not believed that contradicts an answer.
	Lag time.Duration
	// FirstPoll is how long after its start a transition is polled first; EC2's
	// usual time for its kind when 0.
	FirstPoll time.Duration
}

// PacingOptions say how the client slows down for EC2's limits.
type PacingOptions struct {
	// Off sends every call at once, and so leaves the pace to EC2's throttling.
	Off bool
}

// Client speaks to EC2. It is safe for concurrent use.
type Client struct {
	api         *ec2.Client
	credentials *credentialsCache
	region      string
	logger      *slog.Logger
	pace        *pacer
	memory      *memory
	metrics     *metrics
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
		pace:        newPacer(o.Pacing),
		memory:      newMemory(o.Lag),
		bursts:      new(concurrency.BurstDetector),
	}
	c.api = ec2.NewFromConfig(config.aws, func(e *ec2.Options) {
		e.Retryer = aws.NopRetryer{} // repeating is ours, by class: see call
		e.HTTPClient = config.http
		if endpoint := endpointOf(o); endpoint != "" {
			e.BaseEndpoint = aws.String(endpoint)
		}
		e.APIOptions = append(e.APIOptions, userAgent(o.UserAgent)...)
	})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if c.metrics, err = newMetrics(o.Registerer, c.pace); err != nil {
		return nil, err
	}
	c.makeLookups()
	c.makeWatchers(o.FirstPoll)
	c.tasks.Go(c.checkHealth)
	return c, nil
}

// Region is the region whose EC2 the client speaks to.
func (c *Client) Region() string { return c.region }

// Lag is how long EC2's describes may lag behind its answers.
func (c *Client) Lag() time.Duration { return c.memory.lag }

// Close ends what runs in the background and every wait. It may be repeated.
func (c *Client) Close() error {
	c.closing.Do(func() {
		c.cancel()
		c.pace.close()
		c.closeLookups()
		c.tasks.Wait()
		c.metrics.close()
	})
	return nil
}

// endpointOf is the endpoint that was asked for; AWS_ENDPOINT_URL_EC2 is the SDK's own.
func endpointOf(o Options) string {
	return firstOf(o.Endpoint, os.Getenv("AWS_EC2_ENDPOINT"))
}

// userAgent adds product/version, or a bare word, to the SDK's.
func userAgent(name string) []func(*middlewareStack) error {
	if name == "" {
		return nil
	}
	if product, version, has := strings.Cut(name, "/"); has {
		return []func(*middlewareStack) error{middleware.AddUserAgentKeyValue(product, version)}
	}
	return []func(*middlewareStack) error{middleware.AddUserAgentKey(name)}
}
