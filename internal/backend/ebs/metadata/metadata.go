// Package metadata identifies the EC2 instance that this process runs on: by the
// instance metadata service (IMDS), by the Kubernetes Node object, or by flags of the
// command line. None of them needs credentials or an EC2 call.
package metadata

import (
	"context"
	"regexp"
)

// Instance is the identity of an instance; empty and 0 mean unknown.
type Instance struct {
	ID   string // i-…
	Type string // m5.large, …
	// Region and Zone are names such as us-east-1 and us-east-1a, ZoneID one
	// such as use1-az6.
	Region, Zone, ZoneID string
	// OutpostARN is set on an Outpost.
	OutpostARN string
	// Interfaces is the number of network interfaces that are attached now, with the
	// primary one.
	Interfaces int
	// Volumes is the number of EBS volumes that are attached now, without the root volume
	// and those of PersistentVolumes; 0 if the source does not count them.
	Volumes int
	// Source is the name of the source that answered.
	Source string
}

// instanceID is the form of EC2's instance IDs: 8 digits for instances from before 2016.
var instanceID = regexp.MustCompile(`^i-(?:[0-9a-f]{8}|[0-9a-f]{17})$`)

// Source is one source of instance metadata.
type Source interface {
	// Name is the source's in --metadata-sources.
	Name() string
	// Instance returns at least the ID and the zone. Its errors name the next action.
	Instance(ctx context.Context) (Instance, error)
}

// Counter is a Source that can update the numbers of an Instance alone.
type Counter interface {
	Count(ctx context.Context, i *Instance) error
}
