// Package e2e has the end-to-end tests: Holdfast from its chart, with its image, on a
// real cluster of two nodes (package cluster). They use the API server, as users do, and
// then check the nodes' pools, mounts and loop devices.
//
// `make test-kubernetes` runs all of them, `make test-kubernetes-short` those that each
// change must pass; with KUBERNETES_VERSION=1.34.4, on that version of Kubernetes. One
// alone, with earlier builds:
//
//	go test ./e2e -run TestHoldfast/.*/clone -v
//
// The tests share one cluster, and each has its own namespace. Tests that do not
// affect each other run first, several at a time. Those that disturb the driver, a node
// or the control plane run alone. A failed test prints the events and objects of its
// namespace and the driver's logs. At the end the pools must be empty, and after the end
// of the cluster the machine must be as before.
package e2e
