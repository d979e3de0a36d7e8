package policy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/policy"
	"github.com/holdfast-csi/holdfast/internal/policy/policytest"
)

func rule(t testing.TB, label string, allowed ...policy.Account) *policy.Rule {
	t.Helper()
	r, err := policy.New(allowed, label)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestClassify(t *testing.T) {
	r := rule(t, "")
	for _, s := range policytest.Spellings() {
		if got := r.Classify(s.Path); got != s.Want {
			t.Errorf("%s: %q is %d, want %d", s.Name, s.Path, got, s.Want)
		}
	}
}

// reachesPipe is another way to ask whether Windows may open the proxy's pipe by
// a path: it does what Win32 does with the text, generously.
func reachesPipe(path string) bool {
	text := strings.ToLower(strings.TrimSpace(strings.ReplaceAll(path, "/", `\`)))
	isDevice := strings.HasPrefix(text, `\\`) || strings.HasPrefix(text, `\??\`) || strings.HasPrefix(text, `\device\`) || strings.HasPrefix(text, "npipe:")
	if !isDevice {
		return false
	}
	var resolved []string
	for _, component := range strings.Split(text, `\`) {
		if component = strings.TrimRight(component, ". "); component != "" {
			resolved = append(resolved, component)
		}
	}
	if len(resolved) > 0 && resolved[0] != "?" && resolved[0] != "??" && strings.HasPrefix(text, `\\`) && !strings.HasPrefix(text, `\\.`) {
		resolved = resolved[1:] // the server
	}
	return regexp.MustCompile(`(^|\\)(pipe|namedpipe|ipc\$)\\(.*\\)?csi-proxy`).MatchString(strings.Join(resolved, `\`))
}

// Every text that Windows may take for the proxy's pipe is either canonical, and then
// for approved pods, or refused; only a plain directory of a share may resemble one.
func FuzzClassify(f *testing.F) {
	for _, s := range policytest.Spellings() {
		f.Add(s.Path)
	}
	r := rule(f, "")
	directory := regexp.MustCompile(`^[\\/]{2}[^\\/.?\s][^\\/]*[\\/]+[^\\/]+[\\/]`)
	f.Fuzz(func(t *testing.T, path string) {
		class := r.Classify(path)
		if class == policy.Ordinary && reachesPipe(path) && !directory.MatchString(path) {
			t.Errorf("%q is ordinary", path)
		}
		if class == policy.ProxyPipe && !strings.HasPrefix(path, `\\.\pipe\`) {
			t.Errorf("%q is taken for canonical", path)
		}
	})
}

// The chart's policy must have the very patterns that are tested here.
func TestPatterns_areThoseOfTheChart(t *testing.T) {
	text, err := os.ReadFile("../../deploy/helm/holdfast/templates/_pipepolicy.tpl")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{policy.DevicePattern, policy.PipePattern, policy.ProxyPattern, policy.SharePattern, policy.SharedPipePattern} {
		if !strings.Contains(string(text), "r'"+pattern+"'") {
			t.Errorf("the chart lacks %s", pattern)
		}
	}
}
