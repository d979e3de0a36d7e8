// Package faults tests `holdfast sidecars` on a real API server under faults: a proxy
// that delays and rejects requests and loses connections, a CSI driver that hangs,
// dies and returns invalid answers, and mistakes of users. Each case must end in an
// event or a status that a user understands, and without a leak: the driver has
// exactly the volumes and snapshots of the objects.
//
// The tests need root and the programs of `make kubernetes-binaries`, so that they are
// built with the tag kubernetes only. Run them with
//
//	make test-faults
//
// `make test-kubernetes` includes them. Tests for which an API server in memory is
// enough are in the packages below internal/kube.
package faults
