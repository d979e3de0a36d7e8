package verify

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
	"github.com/holdfast-csi/holdfast/internal/verify"
)

// metadata are the checks of the instance metadata service.
func (s *Session) metadata() []verify.Check {
	return []verify.Check{
		check("imds-identity", "the metadata service names the instance, its type, zone, region and zone ID, and at least one interface",
			"EC2 user guide, Instance metadata categories", "a node does not start, or registers in a wrong zone", s.identity),
		check("imds-agrees", "the metadata service and DescribeInstances give the same type and zone",
			"EC2 user guide, Instance metadata categories", "a node has the attach limit of another type, or volumes of another zone", s.agrees),
	}
}

func (s *Session) askMetadata(ctx context.Context) (metadata.Instance, verify.Result, bool) {
	if s.Metadata == nil {
		return metadata.Instance{}, verify.Skipped("this machine is not an EC2 instance: run it on one with --instance-id=self"), false
	}
	found, err := s.Metadata.Instance(ctx)
	if err != nil {
		return found, verify.Differed("%v", err), false
	}
	return found, verify.Result{}, true
}

func (s *Session) identity(ctx context.Context) verify.Result {
	found, result, ok := s.askMetadata(ctx)
	if !ok {
		return result
	}
	if found.ID == "" || found.Type == "" || found.Zone == "" || found.Region == "" || found.ZoneID == "" || found.Interfaces < 1 {
		return verify.Differed("%+v", found)
	}
	return verify.Held("%s in %s (%s), %d interfaces", found.Type, found.Zone, found.ZoneID, found.Interfaces)
}

func (s *Session) agrees(ctx context.Context) verify.Result {
	found, result, ok := s.askMetadata(ctx)
	if !ok {
		return result
	}
	instance, err := s.Cloud.Instance(ctx, found.ID)
	if err != nil {
		return failed(err)
	}
	if instance.Type != found.Type || instance.Zone != found.Zone {
		return verify.Differed("metadata: %s in %s; DescribeInstances: %s in %s", found.Type, found.Zone, instance.Type, instance.Zone)
	}
	return verify.Held("%s in %s", found.Type, found.Zone)
}
