package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// volumeLabelPolicy is the chart's policy for volumes, and its binding.
const volumeLabelPolicy = "scale-holdfast-node-label-volumes." + namespace

// applyLabelPolicy installs the chart's admission policies, which label a claim in the write
// that selects its node, and a volume when it is created.
func (sc *scale) applyLabelPolicy(ctx context.Context) error {
	var manifests, failures bytes.Buffer
	template := exec.CommandContext(ctx, sc.s.helm, "template", "scale", sc.s.chart, "--namespace="+namespace,
		"--set-string=driverName="+scaleDriver, "--show-only=templates/nodelabel.yaml",
		"--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
	template.Stdout, template.Stderr = &manifests, &failures
	if err := template.Run(); err != nil {
		return fmt.Errorf("render the chart's policies of labels: %w: %s", err, &failures)
	}
	apply := exec.CommandContext(ctx, filepath.Join(sc.s.binaries, "kubectl"), "--kubeconfig="+sc.cluster.Kubeconfig, "apply", "--filename=-")
	apply.Stdin = &manifests
	if output, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("apply the chart's policies of labels: %w: %s", err, output)
	}
	return nil
}
