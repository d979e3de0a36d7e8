// Package deployment installs Holdfast on a test cluster the way a user does:
// the image of `make image`, the chart of this repository, helm. It says when
// the driver is ready on every node, and what a person needs to see when not.
package deployment
