//go:build windows

package upstream

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	filesystemv1 "github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v1"
	iscsiv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/groups/iscsi/v1alpha1"
	iscsiv1alpha2 "github.com/kubernetes-csi/csi-proxy/client/groups/iscsi/v1alpha2"
	smbv1 "github.com/kubernetes-csi/csi-proxy/client/groups/smb/v1"
	smbv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/groups/smb/v1alpha1"
	smbv1beta1 "github.com/kubernetes-csi/csi-proxy/client/groups/smb/v1beta1"
	smbv1beta2 "github.com/kubernetes-csi/csi-proxy/client/groups/smb/v1beta2"
	systemv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/groups/system/v1alpha1"
)

var smbs = map[string]func(*testing.T) any{
	"v1alpha1": func(t *testing.T) any { return opened(t, smbv1alpha1.NewClient) },
	"v1beta1":  func(t *testing.T) any { return opened(t, smbv1beta1.NewClient) },
	"v1beta2":  func(t *testing.T) any { return opened(t, smbv1beta2.NewClient) },
	"v1":       func(t *testing.T) any { return opened(t, smbv1.NewClient) },
}

const secret = "S3cret-of-the-share"

func TestSMB(t *testing.T) {
	files := opened(t, filesystemv1.NewClient)
	for version, open := range smbs {
		t.Run(version, func(t *testing.T) {
			client, server := open(t), "server-"+version
			simulated(t, http.MethodPost, "/shares", fields{"Server": server, "Share": "data", "Users": map[string]string{"user": secret}}, nil)
			local := kubelet + `\plugins\smb-` + version
			mapping := fields{"remote_path": `\\` + server + `\data`, "local_path": local, "username": "user", "password": secret}
			for range 2 { // the same again is fine
				must(t, client, "NewSmbGlobalMapping", mapping)
			}
			if !must(t, files, "IsSymlink", fields{"path": local})["is_symlink"].(bool) {
				t.Error("the local path is not a link")
			}
			wrong := fields{"remote_path": mapping["remote_path"], "local_path": local + "-2", "username": "other", "password": secret}
			if _, err := call(t, client, "NewSmbGlobalMapping", wrong); err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("another user's mapping: %v", err)
			}
			must(t, files, "Rmdir", fields{"path": local, "force": true})
			for range 2 { // gone is fine
				must(t, client, "RemoveSmbGlobalMapping", fields{"remote_path": mapping["remote_path"]})
			}
			for path, code := range map[string]string{`\\` + server + `\none`: "NotFound", `\\nowhere\data`: "", `\\?\UNC\x\y`: "InvalidArgument", `C:\x`: "InvalidArgument"} {
				_, err := call(t, client, "NewSmbGlobalMapping", fields{
					"remote_path": path, "local_path": local + "-3", "username": "user", "password": secret,
				})
				if err == nil || !strings.Contains(err.Error(), code) || strings.Contains(err.Error(), secret) {
					t.Errorf("%s: %v, want %s", path, err, code)
				}
			}
		})
	}
}

var iscsis = map[string]func(*testing.T) any{
	"v1alpha1": func(t *testing.T) any { return opened(t, iscsiv1alpha1.NewClient) },
	"v1alpha2": func(t *testing.T) any { return opened(t, iscsiv1alpha2.NewClient) },
}

func TestISCSI(t *testing.T) {
	for version, open := range iscsis {
		t.Run(version, func(t *testing.T) {
			client, iqn := open(t), "iqn.2026-11.dev.holdfast:"+version
			address := "10.0.0." + version[len(version)-1:]
			portal := fields{"target_address": address, "target_port": 3260}
			simulated(t, http.MethodPost, "/targets", fields{
				"Address": address, "Port": 3260, "IQN": iqn, "User": "chap", "Secret": "fourteen-bytes",
				"LUNs": []fields{{"Serial": "lun-" + version, "Size": gibi}},
			}, nil)
			for range 2 {
				must(t, client, "AddTargetPortal", fields{"target_portal": portal})
			}
			if portals := fmt.Sprint(must(t, client, "ListTargetPortals", nil)["target_portals"]); !strings.Contains(portals, address) {
				t.Errorf("the portals are %s", portals)
			}
			if iqns := must(t, client, "DiscoverTargetPortal", fields{"target_portal": portal}).list(t, "iqns"); len(iqns) != 1 || iqns[0] != iqn {
				t.Errorf("discovered are %v", iqns)
			}
			login := fields{"target_portal": portal, "iqn": iqn, "auth_type": "ONE_WAY_CHAP",
				"chap_username": "chap", "chap_secret": "fourteen-wrong"}
			if _, err := call(t, client, "ConnectTarget", login); err == nil || strings.Contains(err.Error(), "fourteen-wrong") {
				t.Errorf("a wrong secret: %v", err)
			}
			login["chap_secret"] = "fourteen-bytes"
			for range 2 {
				must(t, client, "ConnectTarget", login)
			}
			if got := must(t, client, "GetTargetDisks", fields{"target_portal": portal, "iqn": iqn}).list(t, "diskIDs"); len(got) != 1 {
				t.Errorf("its disks are %v", got)
			}
			for range 2 {
				must(t, client, "DisconnectTarget", fields{"target_portal": portal, "iqn": iqn})
			}
			if got := must(t, client, "GetTargetDisks", fields{"target_portal": portal, "iqn": iqn}).list(t, "diskIDs"); len(got) != 0 {
				t.Errorf("after the end its disks are %v", got)
			}
			if version == "v1alpha2" {
				must(t, client, "SetMutualChapSecret", fields{"MutualChapSecret": "fourteen-bytes"})
				if _, err := call(t, client, "SetMutualChapSecret", fields{"MutualChapSecret": "short"}); err == nil ||
					!strings.Contains(err.Error(), "InvalidArgument") {
					t.Errorf("a short secret: %v", err)
				}
			}
			must(t, client, "RemoveTargetPortal", fields{"target_portal": portal})
			for _, method := range []string{"AddTargetPortal", "DiscoverTargetPortal", "RemoveTargetPortal", "ConnectTarget", "DisconnectTarget", "GetTargetDisks"} {
				// Upstream's proxy dies of the first of these.
				if _, err := call(t, client, method, nil); err == nil || !strings.Contains(err.Error(), "InvalidArgument") {
					t.Errorf("%s of nothing: %v", method, err)
				}
			}
		})
	}
}

func TestSystem(t *testing.T) {
	client := opened(t, systemv1alpha1.NewClient)
	if got := must(t, client, "GetBIOSSerialNumber", nil).text(t, "serial_number"); got == "" {
		t.Error("the BIOS has no serial number")
	}
	service := fields{"name": "MSiSCSI"}
	for range 2 {
		must(t, client, "StartService", service)
	}
	if got := must(t, client, "GetService", service); got["status"] != "RUNNING" || got["display_name"] == "" {
		t.Errorf("the service is %v", got)
	}
	for range 2 {
		must(t, client, "StopService", fields{"name": "MSiSCSI", "force": true})
	}
	if got := must(t, client, "GetService", service); got["status"] != "STOPPED" {
		t.Errorf("the service is %v", got)
	}
	for _, method := range []string{"GetService", "StartService", "StopService"} {
		if _, err := call(t, client, method, fields{"name": "LanmanServer"}); err == nil || !strings.Contains(err.Error(), "NotFound") {
			t.Errorf("%s of another service: %v", method, err)
		}
	}
}
