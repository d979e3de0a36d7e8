// Package docs has the test that runs the commands of README, tutorials and
// guides as they are written: `make test-docs`.
package docs
