package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// engine is a container engine: it knows the protocol of volume plugins.
type engine struct {
	t    *testing.T
	http *http.Client
}

// said has the fields of the protocol's answers.
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
	e := m.servePlugin()
	m.start()
	m.apply(strings.Replace(holdClaim, "{name: fast}", `{name: fast, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}`, 1))
	return m, e
}

// servePlugin has each host serve the volume plugin.
func (m *machine) servePlugin() *engine {
	m.arguments = []string{"--volume-plugin", m.plugin()}
	var dialer net.Dialer
	e := &engine{t: m.t, http: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", m.plugin())
	}}}}
	m.t.Cleanup(e.http.CloseIdleConnections)
	return e
}

func (m *machine) plugin() string { return filepath.Join(filepath.Dir(m.root), "plugin.sock") }

// call returns the answer and the status.
func (e *engine) call(path, body string) (said, int) {
	e.t.Helper()
	answer, status, err := e.try(path, body)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer, status
}

// try returns an error without an answer.
func (e *engine) try(path, body string) (answer said, status int, err error) {
	response, err := e.http.Post("http://plugin"+path, "application/vnd.docker.plugins.v1.1+json", bytes.NewReader([]byte(body)))
	if err != nil {
		return answer, 0, err
	}
	defer response.Body.Close()
	if kind := response.Header.Get("Content-Type"); kind != "application/vnd.docker.plugins.v1.1+json" {
		e.t.Errorf("%s: the content type is %q", path, kind)
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return answer, 0, fmt.Errorf("%s: %w", path, err)
	}
	return answer, response.StatusCode, nil
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
	e.fails("Remove", `{"Name":"web"}`, "'holdfast release NAME -n default'")
	if got := len(e.does("List", "{}").Volumes); got != 2 {
		t.Errorf("%d volumes are listed; want web and data", got)
	}

	m.kill() // the count is in the store
	m.start()
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
// ever. A volume that stays busy for long counts as unmounted for the engine; its next
// Mount works at once, at another mount point.
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
	m.kill() // the store has the unmounts that are due
	m.start()
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

// An engine whose Mount got no answer does not use the volume, counts no use of it,
// and so sends no Unmount. The next host ends the hold; the one after it answers.
func TestVolumePlugin_aMountThatTheHostDidNotAnswer(t *testing.T) {
	m, e := withEngine(t)
	e.does("Create", `{"Name":"good","Opts":{"size":"16Mi"}}`)
	good := e.does("Mount", `{"Name":"good","ID":"podman"}`).Mountpoint
	e.does("Create", `{"Name":"big","Opts":{"size":"900Ti"}}`)
	ended := make(chan error, 1)
	go func() {
		response, err := e.http.Post("http://plugin/VolumeDriver.Mount", "application/json", strings.NewReader(`{"Name":"big","ID":"podman"}`))
		if err == nil {
			err = response.Body.Close()
		}
		ended <- err
	}()
	holds := func() int {
		list, err := m.client.List(t.Context(), m.kind("pods"), api.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	m.until("the hold is recorded", limitOfTest, func() bool { return holds() == 2 })
	m.kill()
	if err := <-ended; err == nil {
		t.Error("the Mount of a volume that cannot be made was answered")
	}
	m.start()
	e.does("Remove", `{"Name":"big"}`)
	m.until("the hold and the claim are gone", limitOfTest, func() bool {
		return holds() == 1 && get[*corev1.PersistentVolumeClaim](m, "persistentvolumeclaims", "default", "big") == nil
	})
	if again := e.does("Mount", `{"Name":"good","ID":"podman"}`).Mountpoint; again != good || !isMounted(t, good) {
		t.Errorf("the Mount that was answered is at %s after the restart, and was at %s", again, good)
	}
	e.does("Unmount", `{"Name":"good","ID":"podman"}`)
	e.does("Remove", `{"Name":"good"}`)
}

// A volume that could only wait for its class is refused when it is made, not by
// a container that does not start.
func TestVolumePlugin_refusesAClassThatIsNotThere(t *testing.T) {
	m, e := withEngine(t)
	e.fails("Create", `{"Name":"web","Opts":{"class":"nope"}}`, `option class="nope": no StorageClass has that name; there are fast, holdfast-local`)
	e.fails("Create", `{"Name":"web","Opts":{"class":""}}`, `no StorageClass has that name`)
	m.apply(strings.Replace(holdClaim, "{name: fast}", `{name: fast, annotations: {storageclass.kubernetes.io/is-default-class: "false"}}`, 1))
	m.apply(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: holdfast-local, annotations: {storageclass.kubernetes.io/is-default-class: "false"}},
provisioner: local.holdfast.dev, volumeBindingMode: WaitForFirstConsumer, allowVolumeExpansion: true}`)
	e.fails("Create", `{"Name":"web"}`, "option class is missing, and no StorageClass is the default one")
	if pvc := get[*corev1.PersistentVolumeClaim](m, "persistentvolumeclaims", "default", "web"); pvc != nil {
		t.Error("the claim was made all the same")
	}
	e.does("Create", `{"Name":"web","Opts":{"class":"fast"}}`)
}

// `docker volume rm` removes data: a volume that another program made is not the engine's.
func TestVolumePlugin_removesOnlyItsOwnVolumes(t *testing.T) {
	m, e := withEngine(t)
	e.fails("Remove", `{"Name":"data"}`, "was not made by a container engine")
	e.does("Create", `{"Name":"kept","Opts":{"size":"16Mi","remove":"false"}}`)
	e.fails("Remove", `{"Name":"default/kept"}`, "was created with remove=false")
	for _, name := range []string{"data", "kept"} {
		if pvc := get[*corev1.PersistentVolumeClaim](m, "persistentvolumeclaims", "default", name); pvc == nil || pvc.DeletionTimestamp != nil {
			t.Errorf("claim %s is deleted", name)
		}
	}
	e.fails("Mount", `{"Name":"none","ID":"x"}`, "claim default/none does not exist")
}

// `volume create` right after `volume rm` of the same name waits until the old
// volume is gone, and makes a new one.
func TestVolumePlugin_createWaitsForARemoval(t *testing.T) {
	m, e := withEngine(t)
	const create = `{"Name":"web","Opts":{"size":"16Mi"}}`
	e.does("Create", create)
	for round := range 4 {
		path := e.does("Mount", `{"Name":"web","ID":"one"}`).Mountpoint
		if _, err := os.Stat(filepath.Join(path, "file")); err == nil {
			t.Errorf("round %d: the volume has the file of the one before", round)
		}
		busy, err := os.Create(filepath.Join(path, "file"))
		if err != nil {
			t.Fatal(err)
		}
		if round > 0 { // without, it is removed at once
			if err := busy.Close(); err != nil {
				t.Fatal(err)
			}
		}
		e.does("Unmount", `{"Name":"web","ID":"one"}`)
		e.does("Remove", `{"Name":"web"}`)
		created := make(chan said, 1)
		go func() {
			answer, _ := e.call("/VolumeDriver.Create", create)
			created <- answer
		}()
		if round == 0 {
			old := get[*corev1.PersistentVolumeClaim](m, "persistentvolumeclaims", "default", "web")
			if old == nil || old.DeletionTimestamp == nil {
				t.Errorf("the busy volume's claim is %v", old)
			}
			if err := busy.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if answer := <-created; answer.Err != "" {
			t.Fatalf("round %d: %s", round, answer.Err)
		}
	}
	e.does("Remove", `{"Name":"web"}`)
}
