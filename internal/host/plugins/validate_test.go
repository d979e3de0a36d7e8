package plugins

import "testing"

// As in the kubelet (k8s.io/apimachinery/pkg/util/version,
// HighestSupportedVersion): an entry that is not a version is ignored.
func TestValidateVersions(t *testing.T) {
	for _, c := range []struct {
		versions []string
		served   bool
	}{
		{[]string{"1.0.0"}, true},
		{[]string{"v1.0.0"}, true},
		{[]string{"1.0"}, true},
		{[]string{"1.0-rc.1"}, true},
		{[]string{" 1.0.0"}, true},
		{[]string{"0.3.0", "1.2.0", "2.0.0"}, true},
		{[]string{"latest", "1.0.0"}, true},
		{[]string{"1.0.0", ""}, true},
		{nil, false},
		{[]string{"1"}, false},
		{[]string{"01.0"}, false},
		{[]string{"latest"}, false},
		{[]string{"0.3.0"}, false},
		{[]string{"2.0.0", "0.9.0"}, false},
		{[]string{"-1.0.0"}, false},
	} {
		if err := validateVersions("d.example", c.versions); (err == nil) != c.served {
			t.Errorf("%q: %v", c.versions, err)
		}
	}
}
