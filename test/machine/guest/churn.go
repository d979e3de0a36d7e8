package main

import (
	"context"
	"fmt"
	"os/exec"
)

const holdfast = "/usr/local/bin/holdfast"

// churn makes a claim, a snapshot of the claim "data" and a claim of that snapshot,
// and deletes those of the round before, with the command of a user. What it
// reports as made or deleted was acknowledged.
func churn(ctx context.Context, prefix string) error {
	for round := 1; ctx.Err() == nil; round++ {
		name := func(round int, kind string) string { return fmt.Sprintf("%s-%d-%s", prefix, round, kind) }
		claim, snapshot, copied := name(round, "claim"), name(round, "snapshot"), name(round, "copy")
		steps := []struct {
			kind, name string
			command    []string
		}{
			{"pvc", claim, []string{"create", "pvc", claim, "--class", "now", "--size", "32Mi", "--wait"}},
			{"volumesnapshot", snapshot, []string{"create", "snapshot", snapshot, "--of", "data", "--wait"}},
			{"pvc", copied, []string{"restore", copied, "--from", snapshot, "--class", "now", "--wait"}},
		}
		for _, step := range steps {
			if err := acknowledged(ctx, "made", step.kind+"/"+step.name, step.command); err != nil {
				return err
			}
		}
		if round == 1 {
			continue
		}
		for _, old := range []string{"pvc/" + name(round-1, "copy"), "volumesnapshot/" + name(round-1, "snapshot"), "pvc/" + name(round-1, "claim")} {
			if err := report("deleting %s", old); err != nil {
				return err
			}
			if err := acknowledged(ctx, "deleted", old, []string{"delete", old}); err != nil {
				return err
			}
		}
	}
	return nil
}

// acknowledged runs the command and reports its success.
func acknowledged(ctx context.Context, verb, object string, command []string) error {
	if verb == "made" {
		if err := report("making %s", object); err != nil {
			return err
		}
	}
	output, err := exec.CommandContext(ctx, holdfast, command...).CombinedOutput() //nolint:gosec // arguments of this program
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the command was ended with its context
		}
		return fmt.Errorf("holdfast %v: %w: %s", command, err, output)
	}
	return report("%s %s", verb, object)
}
