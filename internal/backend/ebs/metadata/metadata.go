// Package metadata tells which EC2 instance this process runs on, from several
// sources in an order: the instance metadata service, the Kubernetes Node
// object, or the command line. None needs credentials.
package metadata

import "context"

// Instance is what a source knows; empty and 0 mean that it does not.
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

// Source is one place to ask.
type Source interface {
	// Name is the source's in --metadata-sources.
	Name() string
	// Instance fails, with what to do about it, rather than leave out the ID or
	// the zone.
	Instance(ctx context.Context) (Instance, error)
}

// NodeObject is this machine's Node object, wherever it is read from.
type NodeObject interface {
	// Node returns spec.providerID and the labels as they are now.
	Node(ctx context.Context) (providerID string, labels map[string]string, err error)
}
