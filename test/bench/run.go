//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const runManifest = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: bench}
provisioner: local.holdfast.dev
parameters: {csi.storage.k8s.io/fstype: ext4}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: bench}
spec:
  storageClassName: bench
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: bench}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: busybox
    command: [echo, here]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: bench}
`

// measureRun times `holdfast run` from its start to the workload's first line.
func measureRun(ctx context.Context, s settings) ([]row, error) {
	file := filepath.Join(s.scratch, "run.yaml")
	if err := os.WriteFile(file, []byte(runManifest), 0o600); err != nil {
		return nil, err
	}
	made, err := repeat(s.rounds, func(int) (time.Duration, error) { return mkfsAlone(ctx, s.scratch, gib) })
	if err != nil {
		return nil, err
	}
	root := filepath.Join(s.scratch, "run")
	var fresh, again []time.Duration
	for range 5 {
		for _, samples := range []*[]time.Duration{&fresh, &again} {
			took, err := firstLine(ctx, s.holdfast, root, file)
			if err != nil {
				return nil, err
			}
			*samples = append(*samples, took)
		}
		if _, err := tool(ctx, s.holdfast, "run", "--root", root, "--delete", "-f", file); err != nil {
			return nil, err
		}
	}
	return []row{
		times("holdfast run to the workload's first line, fresh claim", median(fresh), "mkfs.ext4 alone", made, "≤ mkfs + 0.5 s"),
		times("the same, claim exists", median(again), "mkfs.ext4 alone", made, "≤ 0.5 s"),
	}, nil
}

func firstLine(ctx context.Context, holdfast, root, file string) (time.Duration, error) {
	command := exec.CommandContext(ctx, holdfast, "run", "--root", root, "-f", file)
	var progress bytes.Buffer
	command.Stderr = &progress
	output, err := command.StdoutPipe()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := command.Start(); err != nil {
		return 0, err
	}
	reader := bufio.NewReader(output)
	line, readErr := reader.ReadString('\n')
	took := time.Since(start)
	_, _ = io.Copy(io.Discard, reader)
	if err := errors.Join(readErr, command.Wait()); err != nil || line != "here\n" {
		return 0, fmt.Errorf("holdfast run said %q: %w\n%s", line, err, progress.String())
	}
	return took, nil
}
