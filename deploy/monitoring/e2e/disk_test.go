//go:build monitoring

package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// command runs a program of the system and returns what it printed.
func command(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	output, err := exec.Command(program, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, arguments, err, output)
	}
	return strings.TrimSpace(string(output))
}

// disk makes a filesystem in a file and mounts it until the end of the test.
func disk(t *testing.T, image string, size int64, target string, format ...string) {
	t.Helper()
	write(t, image, "")
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(target, 0o700); err != nil {
		t.Fatal(err)
	}
	command(t, format[0], append(format[1:], image)...)
	options := "loop"
	if strings.Contains(format[0], "ext4") {
		options += ",errors=remount-ro" // as a distribution mounts it
	}
	command(t, "mount", "-o", options, image, target)
	t.Cleanup(func() {
		if output, err := exec.Command("umount", target).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v\n%s", target, err, output)
		}
	})
}
