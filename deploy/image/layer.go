package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// tree is the files of a layer by their names, which have no slash in front.
type tree struct {
	entries map[string]entry
}

type entry struct {
	mode   fs.FileMode // permission bits, and 0o1000 for sticky directories
	kind   byte        // of tar
	target string      // of a link
	data   []byte
}

func newTree() *tree { return &tree{entries: map[string]entry{}} }

func (t *tree) put(name string, e entry) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
		if _, known := t.entries[parent]; !known {
			t.entries[parent] = entry{kind: tar.TypeDir, mode: 0o755}
		}
	}
	t.entries[name] = e
}

func (t *tree) directory(name string, mode fs.FileMode) {
	t.put(name, entry{kind: tar.TypeDir, mode: mode})
}

func (t *tree) file(name string, mode fs.FileMode, data []byte) {
	t.put(name, entry{kind: tar.TypeReg, mode: mode, data: data})
}

func (t *tree) link(name, target string) {
	t.put(name, entry{kind: tar.TypeSymlink, mode: 0o777, target: target})
}

// write puts the tree out as a tar file. Its order, times and owners depend on
// nothing but the tree and stamp. Parents come before their children, as the
// order of their names has it.
func (t *tree) write(out io.Writer, stamp time.Time) error {
	archive := tar.NewWriter(out)
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		header := &tar.Header{
			Name: name, Typeflag: e.kind, Linkname: e.target, Mode: int64(e.mode),
			Size: int64(len(e.data)), ModTime: stamp, Format: tar.FormatPAX,
		}
		if e.kind == tar.TypeDir {
			header.Name += "/"
		}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := archive.Write(e.data); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return archive.Close()
}

// layer is a tree as a compressed blob.
type layer struct {
	blob
	diffID string // digest of the uncompressed tar
}

// blob is contents with the digest they are named by.
type blob struct {
	Digest string
	data   []byte
}

func newBlob(data []byte) blob { return blob{Digest: digest(data), data: data} }

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func newLayer(t *tree, stamp time.Time) (layer, error) {
	var plain, compressed bytes.Buffer
	if err := t.write(&plain, stamp); err != nil {
		return layer{}, err
	}
	writer, err := gzip.NewWriterLevel(&compressed, gzip.BestSpeed+2)
	if err != nil {
		return layer{}, err
	}
	if _, err := writer.Write(plain.Bytes()); err != nil {
		return layer{}, err
	}
	if err := writer.Close(); err != nil {
		return layer{}, err
	}
	return layer{blob: newBlob(compressed.Bytes()), diffID: digest(plain.Bytes())}, nil
}
