// Package mishaps tries `holdfast sidecars` on a real API server, behind a proxy
// that delays, refuses, loses and cuts, beside a CSI driver that hangs, dies and
// answers nonsense, with what users get wrong. Each case ends in an event or a
// status that a user understands, and in no leak: what the driver holds is what
// the objects say.
//
// The tests need root and the programs of `make kubernetes-binaries`, so that
// they are built with the tag kubernetes only:
//
//	make test-mishaps
//
// runs them, and it is part of `make test-kubernetes`. What an API server in
// memory can show is in the packages below internal/kube.
package mishaps
