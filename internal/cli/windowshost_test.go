package cli

import "testing"

func TestAutomaticHost_isNativeForAdministratorsOfTheHostOnly(t *testing.T) {
	for _, c := range []struct {
		what, user string
		rights     bool
		want       string
	}{
		{"SYSTEM, as in a HostProcess container", "S-1-5-18", true, windowsHostNative},
		{"an administrator", "S-1-5-21-1-2-3-500", true, windowsHostNative},
		{"a user", "S-1-5-21-1-2-3-1001", false, windowsHostProxy},
		{"LocalService", "S-1-5-19", false, windowsHostProxy},
		{"ContainerAdministrator", "S-1-5-93-2-1", true, windowsHostProxy},
		{"ContainerUser", "S-1-5-93-2-2", false, windowsHostProxy},
	} {
		if got := automaticHost(c.user, c.rights); got != c.want {
			t.Errorf("%s: %s", c.what, got)
		}
	}
}
