package volumeplugin

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/fuzztest"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// storeHost applies and deletes claims in the store, as a host does, and decodes what it
// is given as strictly.
type storeHost struct{ *slowHost }

func (h storeHost) Apply(_ context.Context, files []manifest.File, _ api.ApplyOptions) (api.ApplyResult, error) {
	objects, err := manifest.Decode(files)
	if err != nil {
		return api.ApplyResult{}, err
	}
	return api.ApplyResult{}, h.store.Update(func(tx *store.Tx) error {
		for _, given := range objects.All {
			if pvc, ok := given.Object.(*corev1.PersistentVolumeClaim); ok {
				pvc.UID = types.UID("uid-" + pvc.Name)
				if err := tx.Claims().Put(store.KeyOf(pvc), pvc); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (h storeHost) DeleteObject(_ context.Context, kind store.Kind, key string, _ api.DeleteOptions) (api.Deleted, error) {
	return api.Deleted{}, h.store.Update(func(tx *store.Tx) error { return tx.Objects(kind).Delete(key) })
}

func (storeHost) Held(string, string) (api.HoldAnswer, bool, error) {
	return api.HoldAnswer{}, false, nil
}

// clear removes what an input made.
func (h storeHost) clear(t *testing.T) {
	t.Helper()
	err := h.store.Update(func(tx *store.Tx) error {
		for _, resource := range []string{"persistentvolumeclaims", "pods"} {
			kind, _ := store.KindOf(resource)
			all, err := tx.Objects(kind).All()
			if err != nil {
				return err
			}
			for _, object := range all {
				if err := tx.Objects(kind).Delete(store.KeyOf(object)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzHandler sends any body to every call, and then what a container engine sends for a
// volume of any name and options. Every answer is JSON with the field Err; a volume that
// was created is found, mounted, unmounted and removed.
func FuzzHandler(f *testing.F) {
	opened, err := store.Open(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c", Annotations: map[string]string{manifest.DefaultClassAnnotation: "true"}}, Provisioner: "d"}
	if err := opened.Update(func(tx *store.Tx) error { return tx.Classes().Put("c", class) }); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = opened.Close() })
	host := storeHost{&slowHost{store: opened, pause: func() {}}}
	handler := (&Plugin{Host: host, Store: opened, Logger: slog.New(slog.DiscardHandler)}).Handler()
	for _, size := range []string{"1Gi", "1e1000000000", "-1", "1e-1000000000", strings.Repeat("9", 100), "0x1", "1E+18", ".5Ki"} {
		f.Add("web", "1", "size", size, []byte(`{"Name":"a"}`))
	}
	f.Add("shop/web", "\x00", "class", "c", []byte(`{"Name":{}}`))
	f.Add("shop/web", "1", "remove", "false", []byte(`[]`))
	f.Add("../a", strings.Repeat("x", 300), "class", "none", []byte(`{"Opts":{"size":1}}`))
	f.Fuzz(func(t *testing.T, name, id, option, value string, body []byte) {
		defer host.clear(t)
		ask := func(call string, body []byte) answer {
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/VolumeDriver."+call, strings.NewReader(string(body))))
			var answered answer
			if err := json.Unmarshal(recorder.Body.Bytes(), &answered); err != nil || (recorder.Code == http.StatusOK) != (answered.Err == "") {
				t.Fatalf("%s %q: %d %s (%v)", call, body, recorder.Code, recorder.Body, err)
			}
			return answered
		}
		asked, err := json.Marshal(request{Name: name, ID: id, Opts: map[string]string{option: value}})
		if err != nil {
			t.Fatal(err)
		}
		fuzztest.Cost{Bytes: 32 << 20}.Within(t, len(body)+len(asked), func() {
			for _, call := range []string{"Capabilities", "Create", "Get", "Path", "List", "Mount", "Unmount", "Remove"} {
				ask(call, body)
			}
			engineUses(t, ask, asked)
		})
	})
}

// engineUses is the life of a volume, if it can be created.
func engineUses(t *testing.T, ask func(string, []byte) answer, asked []byte) {
	t.Helper()
	if ask("Create", asked).Err != "" {
		ask("Mount", asked)
		ask("Unmount", asked)
		ask("Remove", asked)
		return
	}
	if again := ask("Create", asked); again.Err != "" {
		t.Fatalf("%s: created, and then %s", asked, again.Err)
	}
	for _, call := range []string{"Get", "Mount", "List", "Unmount"} {
		if answered := ask(call, asked); answered.Err != "" {
			t.Fatalf("%s %s: %s", call, asked, answered.Err)
		}
	}
	ask("Remove", asked) // the option remove=false refuses it
}
