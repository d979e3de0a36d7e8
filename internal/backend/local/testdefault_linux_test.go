//go:build !testall

package local

const testAll = false
