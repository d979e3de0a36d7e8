//go:build testall

package local

const testAll = true
