package upstreamflags

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// ofEBSDriver returns the flags of the AWS EBS CSI driver that `holdfast driver` has
// under another name or lacks.
func ofEBSDriver() []entry {
	return slices.Concat(logging(), []entry{
		{flags: []string{"http-endpoint"}, target: "metrics-address"},
		{flags: []string{"modify-volume-request-handler-timeout"}, target: "modify-volume-window", convert: window,
			why: "--modify-volume-window; 0s is 1ms"},
		{flags: []string{"windows-host-process"}, target: "windows-host", convert: hostProcess, boolean: true,
			why: "--windows-host=native if true; without it, native if the process has the rights"},
		{flags: []string{"enable-otel-tracing"}, boolean: true, silent: []string{"false"},
			why: "traces are exported if $OTEL_EXPORTER_OTLP_ENDPOINT is set"},
		{flags: []string{"batching"}, boolean: true, silent: []string{"true"},
			why: "calls that describe are always joined, and a lone call does not wait for others"},
		{flags: []string{"deprecated-metrics"}, boolean: true, silent: []string{"false"},
			why: "metrics have the names that replace the deprecated ones"},
	})
}

// window converts a time that may be 0 there.
func window(text string) (string, error) {
	given, err := time.ParseDuration(text)
	if err != nil {
		return "", fmt.Errorf("%q is not a duration such as 2s", text)
	}
	return max(given, time.Millisecond).String(), nil
}

// hostProcess has a meaning on Windows nodes only.
func hostProcess(text string) (string, error) {
	if text == "true" && runtime.GOOS == "windows" {
		return "native", nil
	}
	return "", nil
}

// Variable is an environment variable of the AWS EBS CSI driver.
type Variable struct {
	Name, Meaning string
	// Ignored reports that the variable has no effect, so that it deserves a warning.
	Ignored bool
}

// EBSDriverVariables returns the environment variables that the AWS EBS CSI driver reads,
// without those of the AWS SDK and of the Go runtime, which apply here too.
func EBSDriverVariables() []Variable {
	return []Variable{
		{Name: "CSI_ENDPOINT", Meaning: "--endpoint"},
		{Name: "CSI_NODE_NAME", Meaning: "--node-name, after $NODE_NAME"},
		{Name: "AWS_REGION", Meaning: "--aws-region"},
		{Name: "AWS_EC2_ENDPOINT", Meaning: "--ec2-endpoint"},
		{Name: "AWS_EC2_METADATA_DISABLED", Meaning: "true: the metadata source imds fails, and the next one is asked"},
		{Name: "DISABLE_TAINT_WATCHER", Meaning: "not empty: --remove-startup-taint=false"},
		{Name: "AWS_SAGEMAKER_ENDPOINT", Meaning: "ignored: nodes of SageMaker HyperPod are not served", Ignored: true},
	}
}

// EBSDriverWarnings returns a warning for each variable that is set and has no effect.
func EBSDriverWarnings(getenv func(string) string) []string {
	var warnings []string
	for _, v := range EBSDriverVariables() {
		if v.Ignored && getenv(v.Name) != "" {
			warnings = append(warnings, fmt.Sprintf("$%s is %s", v.Name, v.Meaning))
		}
	}
	return warnings
}
