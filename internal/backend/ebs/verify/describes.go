package verify

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/verify"
)

// describes are the checks that only read.
func (s *Session) describes() []verify.Check {
	return []verify.Check{
		check("ec2-volume-not-found", "a describe of a volume that does not exist fails with InvalidVolume.NotFound",
			errorCodes, "a missing volume is an internal error, and its deletion is repeated for ever",
			func(ctx context.Context) verify.Result {
				_, err := s.Cloud.DescribeByID(ctx, []string{unknownID("vol", 1)})
				return refused(err, "InvalidVolume.NotFound")
			}),
		check("ec2-not-found-names-ids", "that error names each ID that does not exist",
			undocumented, "a batch of describes is halved until it finds them: more calls",
			s.namesMissing),
		check("ec2-filter-omits-missing", "a describe by the filter volume-id leaves out what does not exist",
			"EC2 API reference, DescribeVolumes", "one missing volume fails a batch of 200",
			func(ctx context.Context) verify.Result {
				found, err := s.Cloud.DescribeByFilter(ctx, []string{unknownID("vol", 1), unknownID("vol", 2)})
				if err != nil {
					return failed(err)
				}
				if len(found) > 0 {
					return verify.Differed("it shows %d volumes", len(found))
				}
				return verify.Held("an empty answer")
			}),
		check("ec2-filter-takes-200", "a filter takes 200 values", "EC2 API reference, Filter",
			"describes of large clusters fail",
			func(ctx context.Context) verify.Result {
				ids := make([]string, 200)
				for i := range ids {
					ids[i] = fmt.Sprintf("vol-0fffffffffffff%03x", i)
				}
				if _, err := s.Cloud.DescribeByFilter(ctx, ids); err != nil {
					return failed(err)
				}
				return verify.Held("accepted")
			}),
		check("ec2-instance-not-found", "a call for an instance that does not exist fails with InvalidInstanceID.NotFound",
			errorCodes, "volumes of terminated instances are never reported as detached",
			func(ctx context.Context) verify.Result {
				return refused(s.Cloud.CheckInstance(ctx, unknownID("i", 1)), "InvalidInstanceID.NotFound")
			}),
		check("ec2-snapshot-not-found", "a call for a snapshot that does not exist fails with InvalidSnapshot.NotFound",
			errorCodes, "the deletion of a snapshot that is gone is repeated for ever",
			func(ctx context.Context) verify.Result {
				return refused(s.Cloud.DeleteSnapshot(ctx, unknownID("snap", 1)), "InvalidSnapshot.NotFound")
			}),
		check("ec2-delete-not-found", "the deletion of a volume that does not exist fails with InvalidVolume.NotFound",
			errorCodes, "the deletion of a volume that is gone is repeated for ever",
			func(ctx context.Context) verify.Result {
				return refused(s.Cloud.DeleteVolume(ctx, unknownID("vol", 1)), "InvalidVolume.NotFound")
			}),
		check("ec2-zones-have-ids", "DescribeAvailabilityZones gives each zone a name and an ID",
			"EC2 API reference, AvailabilityZone", "topologies that name zones by ID are refused", s.zonesHaveIDs),
		check("ec2-types-have-cards", "DescribeInstanceTypes shows m5.large, with the number of its EBS cards or none",
			"EC2 API reference, EbsInfo", "instances with several EBS cards are filled unevenly",
			func(ctx context.Context) verify.Result {
				found, err := s.Cloud.InstanceType(ctx, "m5.large")
				if err != nil {
					return failed(err)
				}
				return verify.Held("%d cards", found.Cards)
			}),
	}
}

func (s *Session) namesMissing(ctx context.Context) verify.Result {
	missing := []string{unknownID("vol", 1), unknownID("vol", 2), unknownID("vol", 3)}
	_, err := s.Cloud.DescribeByID(ctx, missing)
	if result := refused(err, "InvalidVolume.NotFound"); result.Outcome != verify.Holds {
		return result
	}
	for _, id := range missing {
		if !cloud.Names(err, id) {
			return verify.Differed("%s is not in: %v", id, err)
		}
	}
	return verify.Held("%v", err)
}

func (s *Session) zonesHaveIDs(ctx context.Context) verify.Result {
	zones, err := s.Cloud.Zones(ctx)
	if err != nil {
		return failed(err)
	}
	for _, zone := range zones {
		if zone.Name == "" || zone.ID == "" {
			return verify.Differed("name %q, ID %q", zone.Name, zone.ID)
		}
	}
	if len(zones) == 0 {
		return verify.Differed("no zones")
	}
	return verify.Held("%d zones, such as %s with the ID %s", len(zones), zones[0].Name, zones[0].ID)
}
