//go:build !linux

package inside

// Child needs Linux.
func Child() int { return 2 }
