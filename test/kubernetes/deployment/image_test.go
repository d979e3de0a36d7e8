package deployment

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"
)

// archive writes a file with an index that gives an image a name.
func archive(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	index := `{"manifests":[{"annotations":{"io.containerd.image.name":"` + name + `"}}]}`
	writer := tar.NewWriter(file)
	for entry, content := range map[string]string{"oci-layout": "{}", "index.json": index} {
		if err := writer.WriteHeader(&tar.Header{Name: entry, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadImage_findsTheNameInTheArchive(t *testing.T) {
	path := archive(t, "registry.example:5000/holdfast:v1-2")
	got, err := ReadImage(path)
	want := Image{Archive: path, Repository: "registry.example:5000/holdfast", Tag: "v1-2"}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if got.String() != "registry.example:5000/holdfast:v1-2" {
		t.Errorf("its name is %s", got)
	}
}

func TestReadImage_refusesANameWithoutTag(t *testing.T) {
	for _, name := range []string{"", "holdfast", "registry.example:5000/holdfast"} {
		if got, err := ReadImage(archive(t, name)); err == nil {
			t.Errorf("the name %q gives %+v", name, got)
		}
	}
}
