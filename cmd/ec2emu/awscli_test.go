package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// awsCLI is Debian's AWS CLI, version 2.9: older than the variable
// AWS_ENDPOINT_URL_EC2.
const awsCLI = "/usr/bin/aws"

// cli is the AWS CLI with the settings of the emulator's greeting.
type cli struct {
	t           *testing.T
	environment []string
	options     []string
}

// newCLI starts an emulator and reads its greeting as a user would.
func newCLI(t *testing.T) *cli {
	t.Helper()
	s, err := parse([]string{"--address=127.0.0.1:0", "--control-address=127.0.0.1:0", "--metadata-address=", "--latency=0s", "--times=instant"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ran := make(chan error, 1)
	go func() {
		err := s.run(ctx, in, io.Discard)
		ran <- errors.Join(err, in.Close())
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	greeting := make([]byte, 0, 4096)
	for !strings.Contains(string(greeting), "(all routes)") {
		buffer := make([]byte, 1024)
		n, err := out.Read(buffer)
		if err != nil {
			t.Fatalf("%v after %s", err, greeting)
		}
		greeting = append(greeting, buffer[:n]...)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	c := &cli{t: t, environment: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "AWS_PAGER=", "AWS_MAX_ATTEMPTS=1"}}
	exports := regexp.MustCompile(`export (AWS_ENDPOINT_URL_EC2=.*)`).FindStringSubmatch(string(greeting))
	option := regexp.MustCompile(`aws (--endpoint-url \S+) ec2`).FindStringSubmatch(string(greeting))
	if exports == nil || option == nil {
		t.Fatalf("the greeting has no way for the AWS CLI:\n%s", greeting)
	}
	c.environment = append(c.environment, strings.Fields(exports[1])...)
	c.options = strings.Fields(option[1])
	return c
}

func (c *cli) run(arguments ...string) (output string, err error) {
	command := exec.CommandContext(c.t.Context(), awsCLI, append(append(c.options[:len(c.options):len(c.options)], "--output=json", "ec2"), arguments...)...)
	command.Env = c.environment
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		err = errors.New(strings.TrimSpace(stderr.String()))
	}
	return string(out), err
}

// volumes returns the IDs that describe-volumes lists.
func (c *cli) volumes(arguments ...string) (ids []string) {
	c.t.Helper()
	out, err := c.run(append([]string{"describe-volumes", "--query=Volumes[].VolumeId"}, arguments...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), &ids); err != nil {
		c.t.Fatalf("%v in %s", err, out)
	}
	return ids
}

func TestAWSCLI_worksAsTheGreetingSays(t *testing.T) {
	c := newCLI(t)
	out, err := c.run("create-volume", "--availability-zone=us-west-2a", "--size=8", "--encrypted", "--kms-key-id=alias/mine",
		"--tag-specifications=ResourceType=volume,Tags=[{Key=team,Value=storage}]")
	if err != nil {
		t.Fatalf("create-volume: %v", err)
	}
	var made struct {
		VolumeID string `json:"VolumeId"`
		KMSKeyID string `json:"KmsKeyId"`
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil || !strings.HasPrefix(made.KMSKeyID, "arn:aws:kms:us-west-2:123456789012:key/") {
		t.Errorf("create-volume: %v, %s", err, out)
	}
	if _, err := c.run("wait", "volume-available", "--volume-ids", made.VolumeID); err != nil {
		t.Errorf("wait volume-available: %v", err)
	}
	filters := "Name=tag-value,Values=storage Name=operator.managed,Values=false Name=sse-type,Values=sse-kms"
	if ids := c.volumes(append([]string{"--page-size=5000", "--filters"}, strings.Fields(filters)...)...); len(ids) != 1 || ids[0] != made.VolumeID {
		t.Errorf("describe-volumes by %s: %v", filters, ids)
	}
	_, err = c.run("describe-instance-types", "--instance-types", "z8.large", "m5.large", "z9.large")
	if err == nil || !strings.Contains(err.Error(), "z8.large, z9.large") {
		t.Errorf("describe-instance-types of unknown types: %v", err)
	}
}
