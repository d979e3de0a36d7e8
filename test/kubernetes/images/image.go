// Package images writes archives of container images that need neither a
// registry nor a container engine: those of the tests' pods, under the names in the
// Kubernetes project's own tests.
package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Image is one image with the names it goes by.
type Image struct {
	Names      []string
	Layers     []*Layer
	Entrypoint []string
	Cmd        []string
}

// Layer collects files. The same layer may be in several images.
type Layer struct {
	content bytes.Buffer
	archive *tar.Writer
	known   map[string]bool // directories that are in it
}

// NewLayer makes an empty layer.
func NewLayer() *Layer {
	l := &Layer{known: make(map[string]bool)}
	l.archive = tar.NewWriter(&l.content)
	return l
}

// Dir adds a directory and those above it.
func (l *Layer) Dir(name string, mode fs.FileMode) error {
	name = strings.Trim(path.Clean(name), "/")
	if name == "." || name == "" || l.known[name] {
		return nil
	}
	if err := l.Dir(path.Dir(name), 0o755); err != nil {
		return err
	}
	l.known[name] = true
	return l.archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: tarMode(mode)})
}

// File adds a file of this content.
func (l *Layer) File(name string, mode fs.FileMode, content []byte) error {
	if err := l.Dir(path.Dir(name), 0o755); err != nil {
		return err
	}
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimPrefix(name, "/"), Mode: tarMode(mode), Size: int64(len(content)),
	}
	if err := l.archive.WriteHeader(header); err != nil {
		return fmt.Errorf("images: %s: %w", name, err)
	}
	_, err := l.archive.Write(content)
	return err
}

// Copy adds a file of this machine.
func (l *Layer) Copy(name, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	return l.File(name, 0o755, content)
}

// Link adds a symbolic link.
func (l *Layer) Link(name, to string) error {
	if err := l.Dir(path.Dir(name), 0o755); err != nil {
		return err
	}
	return l.archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(name, "/"), Linkname: to, Mode: 0o777,
	})
}

// bytes ends the layer; nothing can be added afterwards.
func (l *Layer) bytes() ([]byte, error) {
	if err := l.archive.Close(); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	return l.content.Bytes(), nil
}

// tarMode is the mode as tar writes it, sticky bit included.
func tarMode(mode fs.FileMode) int64 {
	bits := int64(mode.Perm())
	if mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}
