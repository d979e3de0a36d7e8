// Package deployment installs Holdfast on a test cluster the way a user does:
// the image of `make image`, the chart of this repository, helm. It reports that the
// driver is ready on every node, or the pods' state and logs.
package deployment
