//go:build testall

package local

const sweepAll = true
