package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

const holdfast = "/usr/local/bin/holdfast"

// growth is how much the claim "data" grows in each round of churn, in bytes.
const growth = 8 << 20

// churn makes a claim, a snapshot of the claim "data" and a claim of that snapshot,
// lets "data" grow while it is mounted, and deletes what the round before made, with
// the command of a user. What it reports as made, grown or deleted was acknowledged.
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
		if err := grow(ctx, "data"); err != nil {
			return err
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

// grow lets a claim grow.
func grow(ctx context.Context, claim string) error {
	output, err := exec.CommandContext(ctx, holdfast, "get", "pvc", claim, "-o", "jsonpath={.spec.resources.requests.storage}").Output()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the command was ended with its context
	}
	if err != nil {
		return fmt.Errorf("holdfast get pvc %s: %w", claim, err)
	}
	size, err := resource.ParseQuantity(strings.TrimSpace(string(output)))
	if err != nil {
		return fmt.Errorf("the size of the claim %s, %q: %w", claim, output, err)
	}
	bytes := strconv.FormatInt(size.Value()+growth, 10)
	return acknowledged(ctx, "grown", claim+" "+bytes, []string{"resize", "pvc/" + claim, bytes, "--wait"})
}
