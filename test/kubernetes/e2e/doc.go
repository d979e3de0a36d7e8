// Package e2e holds the end-to-end tests: Holdfast from its chart, with its
// image, on a real cluster of two nodes (package cluster). They use it as people
// do, through the API server, and then look at the nodes' pools, mounts and loop
// devices as nobody else does.
//
// `make test-kubernetes` runs all of them, `make test-kubernetes-short` those
// that a change must pass at least. One alone, with what has been built before:
//
//	go test ./e2e -run TestHoldfast/.*/clone -v
//
// The tests share one cluster, and each has a namespace of its own. First come
// those that get along with each other, several at a time, then those that
// disturb the driver, a node or the control plane, alone. What fails prints the
// events and objects of its namespace and the driver's logs. At the end the
// pools must be empty, and after the cluster the machine must be as before.
package e2e
