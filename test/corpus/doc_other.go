//go:build !linux

// Package corpus makes disk images with the tools of Linux.
package corpus
