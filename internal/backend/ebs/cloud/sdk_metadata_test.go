package cloud_test

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

func metadataClient(t *testing.T, k ec2emu.Metadata) *imds.Client {
	t.Helper()
	_, _, server := emulated(t, ec2emu.Options{World: world.Config{Knobs: world.Instant()}, Knobs: ec2emu.Knobs{Metadata: k}})
	return imds.New(imds.Options{
		Endpoint:   "http://169.254.169.254",
		HTTPClient: &http.Client{Transport: ec2emu.InProcess(server.Metadata(emulatedInstance))},
	})
}

func TestSDK_readsMetadataWithATokenAndWithout(t *testing.T) {
	for name, k := range map[string]ec2emu.Metadata{"tokens required": {TokensRequired: true}, "either": {}} {
		t.Run(name, func(t *testing.T) {
			client := metadataClient(t, k)
			document, err := client.GetInstanceIdentityDocument(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if document.InstanceID != emulatedInstance || document.Region != "us-west-2" || document.AvailabilityZone != emulatedZone ||
				document.InstanceType != "m5.large" || document.AccountID != "123456789012" || document.PendingTime.IsZero() {
				t.Errorf("identity document %+v", document.InstanceIdentityDocument)
			}
			region, err := client.GetRegion(t.Context(), nil)
			if err != nil || region.Region != "us-west-2" {
				t.Errorf("region %+v, %v", region, err)
			}
			zone, err := client.GetMetadata(t.Context(), &imds.GetMetadataInput{Path: "placement/availability-zone-id"})
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(zone.Content); err != nil || string(text) != "usw2-az1" {
				t.Errorf("zone ID %q, %v", text, err)
			}
			var answered *smithyhttp.ResponseError
			if _, err := client.GetMetadata(t.Context(), &imds.GetMetadataInput{Path: "outpost-arn"}); !errors.As(err, &answered) || answered.HTTPStatusCode() != http.StatusNotFound {
				t.Errorf("Outpost outside Outposts: %v, want 404", err)
			}
		})
	}
}

// TestSDK_givesUpOnMetadataOutOfReach runs in virtual time: without an answer to the
// request for a token, the SDK returns an error after 5 s.
func TestSDK_givesUpOnMetadataOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := metadataClient(t, ec2emu.Metadata{HopLimit: ec2emu.HopHang, TokensRequired: true})
		start := time.Now()
		if _, err := client.GetRegion(t.Context(), nil); err == nil {
			t.Error("metadata arrived over a hop too many")
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("it took %v to give up", took)
		}
	})
}
