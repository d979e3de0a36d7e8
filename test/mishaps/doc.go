// Package mishaps tries `holdfast sidecars` on a real API server, behind a proxy
// that delays, refuses, loses and cuts, beside a CSI driver that hangs, dies and
// answers nonsense, with what users get wrong. Each case ends in an event or a
// status that a user understands, and in no leak: what the driver holds is what
// the objects say.
//
// The tests need root and the programs of `make kubernetes-binaries`:
//
//	make test-kubernetes
//
// runs them; without HOLDFAST_KUBERNETES, the directory of those programs, they
// are skipped. What an API server in memory can show is in the packages below
// internal/kube.
package mishaps
