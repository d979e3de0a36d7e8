//go:build !linux

package command

import "os/exec"

// isolate does nothing: on these systems only tests spawn commands.
func isolate(*exec.Cmd) {}

func runOnOneThread(child *exec.Cmd) error { return child.Run() }
