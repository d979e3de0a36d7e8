package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/smithy-go/middleware"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/httplimit"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
)

type middlewareStack = middleware.Stack

// regionTimeout bounds the request to the instance metadata service. It does not answer
// if the machine has none, or if the hop limit is too small.
const regionTimeout = 5 * time.Second

// connections is the number of idle connections to EC2. With the default of 10, a storm
// of calls would open and close connections all the time.
const connections = 128

// longestAnswer is far more bytes than a page of any describe has.
const longestAnswer = 32 << 20

// configuration has the region, credentials and transport of a client.
type configuration struct {
	aws         aws.Config
	http        aws.HTTPClient
	credentials *credentialsCache
}

// configure finds region, credentials and transport.
func configure(ctx context.Context, o Options) (configuration, error) {
	loaded, err := awsconfig.LoadDefaultConfig(ctx, func(l *awsconfig.LoadOptions) error {
		l.Region = o.Region
		l.Credentials = o.Credentials
		return nil
	})
	if err != nil {
		return configuration{}, fmt.Errorf("AWS configuration: %w: %w; check AWS_PROFILE, AWS_CONFIG_FILE and the files they name", backend.ErrCredentials, err)
	}
	if loaded.Region == "" {
		if loaded.Region, err = findRegion(ctx, o.FindRegion); err != nil {
			return configuration{}, err
		}
	}
	cache := &credentialsCache{inner: loaded.Credentials}
	loaded.Credentials = cache
	c := configuration{aws: loaded, credentials: cache, http: o.HTTPClient}
	if c.http == nil {
		// The loaded one trusts what AWS_CA_BUNDLE and the profile name.
		base, ok := loaded.HTTPClient.(*awshttp.BuildableClient)
		if !ok {
			base = awshttp.NewBuildableClient()
		}
		c.http = base.WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConns, t.MaxIdleConnsPerHost = connections, connections
		})
	}
	c.http = httplimit.Client{Doer: c.http, Most: longestAnswer}
	return c, nil
}

// findRegion asks the instance metadata service, and if that fails the other source,
// which may be nil.
func findRegion(ctx context.Context, other func(context.Context) (string, error)) (string, error) {
	region, err := regionOfInstance(ctx)
	if err == nil || other == nil {
		return region, err
	}
	region, failed := other(ctx)
	if failed == nil && region == "" {
		failed = errors.New("it has no label topology.kubernetes.io/region")
	}
	if failed != nil {
		return "", fmt.Errorf("%w; the Node object has no region either: %w", err, failed)
	}
	return region, nil
}

// regionOfInstance asks the instance metadata service.
func regionOfInstance(ctx context.Context) (string, error) {
	const advice = "no region: set AWS_REGION or reach IMDS"
	if os.Getenv("AWS_EC2_METADATA_DISABLED") == "true" {
		return "", fmt.Errorf("%s: %w: AWS_EC2_METADATA_DISABLED is true", advice, backend.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, regionTimeout)
	defer cancel()
	answer, err := metadata.NewClient("").GetRegion(ctx, &imds.GetRegionInput{})
	if err == nil && answer.Region == "" {
		err = errors.New("the instance metadata service names no region")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %w; a pod that is not on the host's network needs a metadata hop limit of 2",
			advice, backend.ErrUnavailable, err)
	}
	return answer.Region, nil
}

// StaticCredentials are fixed credentials, for tests and emulators.
func StaticCredentials(id, secret string) aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(id, secret, "")
}

// credentialsError reports that no credentials are available to sign a call.
type credentialsError struct{ cause error }

func (e *credentialsError) Error() string {
	return "no AWS credentials: " + e.cause.Error() + "; " + credentialsAdvice
}

func (e *credentialsError) Unwrap() error { return e.cause }
