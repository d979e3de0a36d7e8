package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// engine is a container engine: it knows the protocol of volume plugins.
type engine struct {
	t    *testing.T
	http *http.Client
}

// said has what the protocol's answers have.
type said struct {
	Implements   []string
	Capabilities struct{ Scope string }
	Mountpoint   string
	Volume       struct{ Name, Mountpoint string }
	Volumes      []struct{ Name, Mountpoint string }
	Err          string
}

func withEngine(t *testing.T) (*machine, *engine) {
	t.Helper()
	m := newMachine(t)
	m.start("--volume-plugin", m.plugin())
	m.apply(strings.Replace(holdClaim, "{name: fast}", `{name: fast, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}`, 1))
	var dialer net.Dialer
	e := &engine{t: t, http: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", m.plugin())
	}}}}
	t.Cleanup(e.http.CloseIdleConnections)
	return m, e
}

func (m *machine) plugin() string { return filepath.Join(filepath.Dir(m.root), "plugin.sock") }

// call returns what was answered, and the status.
func (e *engine) call(path, body string) (answer said, status int) {
	e.t.Helper()
	response, err := e.http.Post("http://plugin"+path, "application/vnd.docker.plugins.v1.1+json", bytes.NewReader([]byte(body)))
	if err != nil {
		e.t.Fatal(err)
	}
	defer response.Body.Close()
	if kind := response.Header.Get("Content-Type"); kind != "application/vnd.docker.plugins.v1.1+json" {
		e.t.Errorf("%s: the content type is %q", path, kind)
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		e.t.Fatalf("%s: %v", path, err)
	}
	return answer, response.StatusCode
}

func (e *engine) does(path, body string) said {
	e.t.Helper()
	answer, status := e.call("/VolumeDriver."+path, body)
	if status != http.StatusOK || answer.Err != "" {
		e.t.Fatalf("%s %s: %d, %s", path, body, status, answer.Err)
	}
	return answer
}

func (e *engine) fails(path, body, want string) {
	e.t.Helper()
	answer, status := e.call("/VolumeDriver."+path, body)
	if status == http.StatusOK || !strings.Contains(answer.Err, want) {
		e.t.Errorf("%s %s: %d, %q; want %q", path, body, status, answer.Err, want)
	}
}

func TestVolumePlugin_servesAContainerEngine(t *testing.T) {
	m, e := withEngine(t)
	if answer, _ := e.call("/Plugin.Activate", ""); len(answer.Implements) != 1 || answer.Implements[0] != "VolumeDriver" {
		t.Errorf("it implements %v", answer.Implements)
	}
	if scope := e.does("Capabilities", "{}").Capabilities.Scope; scope != "local" {
		t.Errorf("the scope is %q", scope)
	}
	e.fails("Get", `{"Name":"web"}`, "no such volume")
	e.fails("Create", `{"Name":"web","Opts":{"colour":"red"}}`, `option "colour" is unknown`)
	e.does("Create", `{"Name":"web","Opts":{"size":"16Mi","class":"fast"}}`)
	e.does("Create", `{"Name":"web"}`) // as an engine does that does not know of it any more
	e.fails("Create", `{"Name":"web","Opts":{"size":"32Mi"}}`, "is there already, with the size 16Mi")
	first := e.does("Mount", `{"Name":"web","ID":"one"}`).Mountpoint
	second := e.does("Mount", `{"Name":"web","ID":"two"}`).Mountpoint
	if again := e.does("Mount", `{"Name":"web","ID":"one"}`).Mountpoint; again != first || !isMounted(t, first) {
		t.Errorf("the same mount again is at %s, and was at %s", again, first)
	}
	if err := os.WriteFile(filepath.Join(first, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.fails("Remove", `{"Name":"web"}`, "is in use by pod default/volume-plugin-")
	if got := len(e.does("List", "{}").Volumes); got != 2 {
		t.Errorf("%d volumes are listed; want web and data", got)
	}

	m.kill() // the count is in the store
	m.start("--volume-plugin", m.plugin())
	e.does("Unmount", `{"Name":"web","ID":"one"}`)
	e.does("Unmount", `{"Name":"web","ID":"one"}`) // as an engine does that was killed
	e.fails("Remove", `{"Name":"web"}`, "is in use by")
	if _, err := os.ReadFile(filepath.Join(second, "file")); err != nil {
		t.Errorf("the other mount: %v", err)
	}
	if at := e.does("Path", `{"Name":"web"}`).Mountpoint; at != second {
		t.Errorf("the volume is at %q; want %s", at, second)
	}
	e.does("Unmount", `{"Name":"web","ID":"two"}`)
	e.does("Remove", `{"Name":"web"}`)
	e.does("Remove", `{"Name":"web"}`)
	m.until("nothing is mounted", limitOfTest, func() bool { return len(m.mounts()) == 0 })
}

// An engine that gets an error from Unmount counts the volume as mounted for
// ever. A volume that stays busy for long is unmounted to the engine; its next
// Mount works at once, in a place of its own.
func TestVolumePlugin_aVolumeThatStaysBusy(t *testing.T) {
	m, e := withEngine(t)
	e.does("Create", `{"Name":"web","Opts":{"size":"16Mi"}}`)
	first := e.does("Mount", `{"Name":"web","ID":"podman"}`).Mountpoint
	busy, err := os.Create(filepath.Join(first, "busy"))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	e.does("Unmount", `{"Name":"web","ID":"podman"}`)
	if !isMounted(t, first) {
		t.Error("the file that is open does not keep the volume busy")
	}
	second := e.does("Mount", `{"Name":"web","ID":"podman"}`).Mountpoint
	if second == first || !isMounted(t, second) {
		t.Errorf("the mount after it is at %s, as the busy one", second)
	}
	if again := e.does("Mount", `{"Name":"web","ID":"podman"}`).Mountpoint; again != second {
		t.Errorf("the same mount again is at %s, and was at %s", again, second)
	}
	if at := e.does("Path", `{"Name":"web"}`).Mountpoint; at != second {
		t.Errorf("the volume is at %q; want %s", at, second)
	}
	m.kill() // what is to be unmounted is in the store
	m.start("--volume-plugin", m.plugin())
	e.fails("Remove", `{"Name":"web"}`, "is in use by pod default/volume-plugin-")
	e.does("Unmount", `{"Name":"web","ID":"podman"}`)
	e.does("Remove", `{"Name":"web"}`)
	e.fails("Get", `{"Name":"web"}`, "no such volume")
	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	m.until("the volume is gone", limitOfTest, func() bool {
		return len(m.mounts()) == 0 && get[*corev1.PersistentVolumeClaim](m, "persistentvolumeclaims", "default", "web") == nil
	})
}

// A volume that could only wait for its class is refused when it is made, not by
// a container that does not start.
func TestVolumePlugin_refusesAClassThatIsNotThere(t *testing.T) {
	m, e := withEngine(t)
	e.fails("Create", `{"Name":"web","Opts":{"class":"nope"}}`, `option class="nope": no StorageClass has that name; there are fast`)
	e.fails("Create", `{"Name":"web","Opts":{"class":""}}`, `no StorageClass has that name`)
	m.apply(strings.Replace(holdClaim, "{name: fast}", `{name: fast, annotations: {storageclass.kubernetes.io/is-default-class: "false"}}`, 1))
	e.fails("Create", `{"Name":"web"}`, "option class is missing, and no StorageClass is the default one")
	if pvc := get[*corev1.PersistentVolumeClaim](m, "persistentvolumeclaims", "default", "web"); pvc != nil {
		t.Error("the claim was made all the same")
	}
	e.does("Create", `{"Name":"web","Opts":{"class":"fast"}}`)
}

// `docker volume rm` removes data: what somebody else made is not the engine's.
func TestVolumePlugin_removesOnlyWhatItMade(t *testing.T) {
	m, e := withEngine(t)
	e.fails("Remove", `{"Name":"data"}`, "was not made by a container engine")
	e.does("Create", `{"Name":"kept","Opts":{"size":"16Mi","remove":"false"}}`)
	e.fails("Remove", `{"Name":"default/kept"}`, "was created with remove=false")
	for _, name := range []string{"data", "kept"} {
		if pvc := get[*corev1.PersistentVolumeClaim](m, "persistentvolumeclaims", "default", name); pvc == nil || pvc.DeletionTimestamp != nil {
			t.Errorf("claim %s is deleted", name)
		}
	}
	e.fails("Mount", `{"Name":"none","ID":"x"}`, "there is no claim default/none")
}
