package metadata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/httplimit"
)

// IMDS asks the instance metadata service by version 2 of its API. If that does not
// answer and version 1 is allowed, it uses version 1.
type IMDS struct {
	client   *imds.Client
	endpoint string
}

// NewIMDS makes an IMDS. endpoint is a URL; "" means AWS_EC2_METADATA_SERVICE_ENDPOINT,
// or else the address that the service has on every instance.
func NewIMDS(endpoint string) IMDS {
	where := endpoint
	if where == "" {
		where = os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT")
	}
	if where == "" {
		where = "http://169.254.169.254"
	}
	return IMDS{client: NewClient(endpoint), endpoint: where}
}

// The limits of one request to the service. It is on the instance itself, and does not
// answer if there is none or if the hop limit is too small.
const (
	answerTime = time.Second // to connect, and then for the header of the answer
	// longest is far more than any answer of the service, in bytes.
	longest = 64 << 10
)

// NewClient makes a client of the service at an endpoint; "" as for NewIMDS. Its answers
// are bounded. Its times are those that the SDK gives a client of its own.
func NewClient(endpoint string) *imds.Client {
	sender := awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = answerTime }).
		WithTransportOptions(func(t *http.Transport) { t.ResponseHeaderTimeout = answerTime })
	return imds.New(imds.Options{Endpoint: endpoint, HTTPClient: httplimit.Client{Doer: sender, Most: longest}})
}

// Name is "imds".
func (s IMDS) Name() string { return "imds" }

// Instance reads the identity document, and the values that it lacks.
func (s IMDS) Instance(ctx context.Context) (Instance, error) {
	document, err := s.client.GetInstanceIdentityDocument(ctx, nil)
	if err != nil {
		return Instance{}, s.explain(err)
	}
	found := Instance{ID: document.InstanceID, Type: document.InstanceType, Region: document.Region,
		Zone: document.AvailabilityZone, Source: s.Name()}
	if found.ID == "" || found.Zone == "" {
		return Instance{}, fmt.Errorf("%w: %s gave an identity document without instanceId or availabilityZone",
			backend.ErrUnavailable, s.endpoint)
	}
	if err = s.Count(ctx, &found); err != nil {
		return Instance{}, err
	}
	if found.ZoneID, err = s.optional(ctx, "placement/availability-zone-id"); err != nil {
		return Instance{}, err
	}
	found.OutpostARN, err = s.optional(ctx, "outpost-arn")
	return found, err
}

// Count counts the network interfaces that are attached now.
func (s IMDS) Count(ctx context.Context, i *Instance) error {
	macs, err := s.get(ctx, "network/interfaces/macs")
	if err != nil {
		return s.explain(err)
	}
	i.Interfaces = len(strings.Fields(macs))
	return nil
}

// optional reads a value that not every instance has; "" if the instance lacks it.
func (s IMDS) optional(ctx context.Context, path string) (string, error) {
	value, err := s.get(ctx, path)
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.HTTPStatusCode() == http.StatusNotFound {
		return "", nil
	}
	if err != nil {
		return "", s.explain(err)
	}
	return strings.TrimSpace(value), nil
}

func (s IMDS) get(ctx context.Context, path string) (string, error) {
	output, err := s.client.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if err != nil {
		return "", err
	}
	value, err := io.ReadAll(output.Content)
	return string(value), errors.Join(err, output.Content.Close())
}

// explain adds the usual cause to an error.
func (s IMDS) explain(err error) error {
	var response *smithyhttp.ResponseError
	switch {
	case strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true"):
		return fmt.Errorf("%w: AWS_EC2_METADATA_DISABLED is true; unset it, or take imds out of --metadata-sources: %w",
			backend.ErrPrecondition, err)
	case errors.As(err, &response) && response.HTTPStatusCode() == http.StatusForbidden:
		return fmt.Errorf("%w: %s refuses: the metadata service of this instance is turned off; turn it on with aws ec2 modify-instance-metadata-options --http-endpoint enabled, or use --metadata-sources=kubernetes: %w",
			backend.ErrUnavailable, s.endpoint, err)
	case errors.As(err, &response) && response.HTTPStatusCode() != 0:
		return fmt.Errorf("%w: %s: %w", backend.ErrUnavailable, s.endpoint, err)
	}
	return fmt.Errorf("%w: %s does not answer; in a pod without hostNetwork the usual cause is the instance's hop limit of 1: set it to 2 with aws ec2 modify-instance-metadata-options --http-put-response-hop-limit 2, or run with hostNetwork, or use --metadata-sources=kubernetes: %w",
		backend.ErrUnavailable, s.endpoint, err)
}
