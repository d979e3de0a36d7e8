// Package metadata finds which EC2 instance this process runs on: by the
// instance metadata service (IMDS), by the Kubernetes Node object, or by what
// the command line gives. None needs credentials, and none is asked of EC2.
package metadata

import (
	"context"
	"regexp"
)

// Instance is what is known of an instance; empty and 0 mean unknown.
type Instance struct {
	ID   string // i-…
	Type string // m5.large, …
	// Region and Zone are names such as us-east-1 and us-east-1a, ZoneID one
	// such as use1-az6.
	Region, Zone, ZoneID string
	// OutpostARN is set on an Outpost.
	OutpostARN string
	// Interfaces are the network interfaces that are attached now, the primary
	// one included.
	Interfaces int
	// Source is the name of the source that answered.
	Source string
}

// instanceID is the form of EC2's: 8 digits in accounts of before 2016.
var instanceID = regexp.MustCompile(`^i-(?:[0-9a-f]{8}|[0-9a-f]{17})$`)

// Source is one source of instance metadata.
type Source interface {
	// Name is the source's in --metadata-sources.
	Name() string
	// Instance fails, with what to do about it, rather than leave out the ID or
	// the zone.
	Instance(ctx context.Context) (Instance, error)
}

// Counter is a Source that can return the number of network interfaces of now
// without the rest.
type Counter interface {
	Interfaces(ctx context.Context) (int, error)
}
