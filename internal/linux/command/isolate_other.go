//go:build !linux

package command

import "os/exec"

// isolate has nothing to do: nothing is spawned on these systems but in tests.
func isolate(*exec.Cmd) {}

func runOnOneThread(child *exec.Cmd) error { return child.Run() }
