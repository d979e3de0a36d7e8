package images_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/test/kubernetes/images"
)

// files reads a tar archive.
func files(t *testing.T, archive io.Reader) map[string][]byte {
	t.Helper()
	found := make(map[string][]byte)
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
			return found // the end, or no archive at all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := found[header.Name]; twice {
			t.Errorf("%s is in the archive twice", header.Name)
		}
		found[header.Name] = content
	}
}

func layer(t *testing.T, content string) *images.Layer {
	t.Helper()
	l := images.NewLayer()
	if err := l.File("/some/dir/file", 0o644, []byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := l.Link("/some/dir/link", "file"); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestWrite_namesEveryImageAndSharesLayers(t *testing.T) {
	shared := layer(t, "shared")
	var archive bytes.Buffer
	err := images.Write(&archive, []images.Image{
		{Names: []string{"example.com/one:1", "example.com/uno:1"}, Layers: []*images.Layer{shared}},
		{Names: []string{"example.com/two:2"}, Layers: []*images.Layer{shared, layer(t, "more")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	found := files(t, &archive)
	type descriptor struct {
		Digest      string
		Annotations map[string]string
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(found["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	layers := make(map[string]int)
	for _, m := range index.Manifests {
		var manifest struct{ Layers []descriptor }
		if err := json.Unmarshal(found["blobs/sha256/"+m.Digest[len("sha256:"):]], &manifest); err != nil {
			t.Fatal(err)
		}
		layers[m.Annotations["io.containerd.image.name"]] = len(manifest.Layers)
	}
	want := map[string]int{"example.com/one:1": 1, "example.com/uno:1": 1, "example.com/two:2": 2}
	if diff := cmp.Diff(want, layers); diff != "" {
		t.Errorf("layers by name (-want +got):\n%s", diff)
	}
}

func TestLayer_hasTheDirectoriesAboveItsFilesOnce(t *testing.T) {
	var archive bytes.Buffer
	if err := images.Write(&archive, []images.Image{{Names: []string{"example.com/a:1"}, Layers: []*images.Layer{layer(t, "x")}}}); err != nil {
		t.Fatal(err)
	}
	for name, content := range files(t, &archive) {
		entries := files(t, bytes.NewReader(content))
		if _, ok := entries["some/dir/file"]; !ok {
			continue // not the layer
		}
		for _, dir := range []string{"some/", "some/dir/", "some/dir/link"} {
			if _, ok := entries[dir]; !ok {
				t.Errorf("the layer %s has no %s", name, dir)
			}
		}
		return
	}
	t.Error("no blob is the layer")
}
