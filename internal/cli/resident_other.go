//go:build !linux

package cli

func releaseFilePages() error { return nil }
