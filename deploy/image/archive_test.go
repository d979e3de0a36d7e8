package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// testImage is the image of this architecture, in its archive's bytes.
func testImage(t *testing.T, o options) []byte {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the programs of the image are those of a Debian system")
	}
	built, err := build(o)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := built.write(&archive); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// testOptions are those of an image whose binary is an ELF header and no more.
func testOptions(t *testing.T) options {
	t.Helper()
	m, err := machineOf(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	var header bytes.Buffer
	err = binary.Write(&header, binary.LittleEndian, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(m.elf), Version: uint32(elf.EV_CURRENT), Ehsize: 64,
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "holdfast")
	if err := os.WriteFile(file, header.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return options{
		root: "/", binary: file, name: "holdfast.dev/holdfast:test", version: "test",
		arch: runtime.GOARCH, created: time.Unix(1700000000, 0).UTC(),
	}
}

// files are the members of a tar archive, whose names must be unique.
func files(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := found[header.Name]; twice {
			t.Errorf("%s is in the archive twice", header.Name)
		}
		if found[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}

func decode[T any](t *testing.T, data []byte) T {
	t.Helper()
	var value T
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return value
}

func gunzip(t *testing.T, data []byte) []byte {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// blobOf reads the blob of a descriptor and verifies it.
func blobOf(t *testing.T, members map[string][]byte, d descriptor) []byte {
	t.Helper()
	data, found := members["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
	if !found || len(data) != d.Size || digest(data) != d.Digest {
		t.Fatalf("blob %s: found %t, %d bytes of %d, digest %s", d.Digest, found, len(data), d.Size, digest(data))
	}
	return data
}

func TestArchive_isAnOCILayout(t *testing.T) {
	members := files(t, testImage(t, testOptions(t)))
	if got := string(members["oci-layout"]); got != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout is %s", got)
	}
	index := decode[manifest](t, members["index.json"])
	if len(index.Manifests) != 1 || index.MediaType != typeIndex {
		t.Fatalf("index: %+v", index)
	}
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != "holdfast.dev/holdfast:test" {
		t.Errorf("containerd would name it %q", got)
	}
	m := decode[manifest](t, blobOf(t, members, index.Manifests[0]))
	config := decode[configuration](t, blobOf(t, members, *m.Config))
	if config.OS != "linux" || config.Architecture != runtime.GOARCH || config.Config.User != "65532:65532" {
		t.Errorf("config: %+v", config)
	}
	if len(m.Layers) != 2 || len(config.RootFS.DiffIDs) != 2 || len(config.History) != 2 {
		t.Fatalf("%d layers, %d diff ids, %d records; want 2 of each", len(m.Layers), len(config.RootFS.DiffIDs), len(config.History))
	}
	for i, l := range m.Layers {
		if got := digest(gunzip(t, blobOf(t, members, l))); got != config.RootFS.DiffIDs[i] {
			t.Errorf("layer %d unpacks to %s; its diff id is %s", i, got, config.RootFS.DiffIDs[i])
		}
	}
}

func TestArchive_isADockerArchive(t *testing.T) {
	members := files(t, testImage(t, testOptions(t)))
	entries := decode[[]dockerEntry](t, members["manifest.json"])
	if len(entries) != 1 || !slices.Equal(entries[0].RepoTags, []string{"holdfast.dev/holdfast:test"}) {
		t.Fatalf("manifest.json: %+v", entries)
	}
	config := decode[configuration](t, members[entries[0].Config])
	if len(entries[0].Layers) != len(config.RootFS.DiffIDs) {
		t.Fatalf("%d layers for %d diff ids", len(entries[0].Layers), len(config.RootFS.DiffIDs))
	}
	for i, name := range entries[0].Layers {
		if got := digest(gunzip(t, members[name])); got != config.RootFS.DiffIDs[i] {
			t.Errorf("layer %s unpacks to %s; its diff id is %s", name, got, config.RootFS.DiffIDs[i])
		}
	}
}

func TestArchive_isReproducible(t *testing.T) {
	o := testOptions(t)
	if first, second := testImage(t, o), testImage(t, o); !bytes.Equal(first, second) {
		t.Error("two builds of the same input differ")
	}
	o.version = "other"
	changed := files(t, testImage(t, o))
	o.version = "test"
	kept := 0
	for name := range files(t, testImage(t, o)) {
		if _, ok := changed[name]; ok && strings.HasPrefix(name, "blobs/") {
			kept++
		}
	}
	if kept != 2 {
		t.Errorf("%d blobs survive a change of labels; want the two layers", kept)
	}
}

func TestLayers_holdNothingThatOthersMayWrite(t *testing.T) {
	members := files(t, testImage(t, testOptions(t)))
	for _, name := range decode[[]dockerEntry](t, members["manifest.json"])[0].Layers {
		for reader := tar.NewReader(bytes.NewReader(gunzip(t, members[name]))); ; {
			header, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			sticky := header.Typeflag == tar.TypeDir && header.Mode&0o1000 != 0
			if header.Typeflag != tar.TypeSymlink && header.Mode&0o022 != 0 && !sticky {
				t.Errorf("%s has mode %o", header.Name, header.Mode)
			}
			if header.Mode&0o6000 != 0 || header.Uid != 0 || header.Gid != 0 {
				t.Errorf("%s has mode %o, owner %d:%d", header.Name, header.Mode, header.Uid, header.Gid)
			}
		}
	}
}
