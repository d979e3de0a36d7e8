package main

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// Media types of the OCI image specification 1.1.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// image is all that is written into the archive.
type image struct {
	name             string
	created          time.Time
	layers           []layer
	config, manifest blob
	index            []byte
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// manifest and index of the OCI image specification.
type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        *descriptor       `json:"config,omitempty"`
	Layers        []descriptor      `json:"layers,omitempty"`
	Manifests     []descriptor      `json:"manifests,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// configuration is the OCI image configuration.
type configuration struct {
	Created      time.Time       `json:"created"`
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	Config       runtimeConfig   `json:"config"`
	RootFS       rootFS          `json:"rootfs"`
	History      []historyRecord `json:"history"`
}

type runtimeConfig struct {
	User       string
	Env        []string
	Entrypoint []string
	WorkingDir string
	Labels     map[string]string
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type historyRecord struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// dockerEntry is an element of manifest.json of docker-archive.
type dockerEntry struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func build(o options) (*image, error) {
	tools, err := toolsLayer(o)
	if err != nil {
		return nil, fmt.Errorf("layer of tools: %w", err)
	}
	binary, err := binaryLayer(o)
	if err != nil {
		return nil, fmt.Errorf("layer of the binary: %w", err)
	}
	i := &image{name: o.name, created: o.created}
	for _, t := range []*tree{tools, binary} {
		l, err := newLayer(t, o.created)
		if err != nil {
			return nil, err
		}
		i.layers = append(i.layers, l)
	}
	return i, i.describe(o)
}

// describe makes the three documents above the layers.
func (i *image) describe(o options) error {
	config, err := json.Marshal(i.configuration(o))
	if err != nil {
		return err
	}
	i.config = newBlob(config)
	m := manifest{SchemaVersion: 2, MediaType: typeManifest, Config: describe(typeConfig, i.config), Annotations: labels(o)}
	for _, l := range i.layers {
		m.Layers = append(m.Layers, *describe(typeLayer, l.blob))
	}
	encoded, err := json.Marshal(m)
	if err != nil {
		return err
	}
	i.manifest = newBlob(encoded)
	entry := describe(typeManifest, i.manifest)
	entry.Platform = &platform{Architecture: o.arch, OS: "linux"}
	// containerd takes the whole name from the first, others the tag from the second.
	entry.Annotations = map[string]string{
		"io.containerd.image.name":          o.name,
		"org.opencontainers.image.ref.name": tagOf(o.name),
	}
	i.index, err = json.Marshal(manifest{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{*entry}})
	return err
}

func describe(mediaType string, b blob) *descriptor {
	return &descriptor{MediaType: mediaType, Digest: b.Digest, Size: len(b.data)}
}

func (i *image) configuration(o options) configuration {
	c := configuration{
		Created: o.created, Architecture: o.arch, OS: "linux",
		Config: runtimeConfig{
			User: user, Entrypoint: []string{"/holdfast"}, WorkingDir: "/", Labels: labels(o),
			Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		},
		RootFS: rootFS{Type: "layers"},
	}
	for n, l := range i.layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, l.diffID)
		what := []string{"programs of Debian and their libraries", "holdfast " + o.version}[n]
		c.History = append(c.History, historyRecord{Created: o.created, CreatedBy: what})
	}
	return c
}

// labels are the keys of the OCI image specification, "Annotations".
func labels(o options) map[string]string {
	const prefix = "org.opencontainers.image."
	l := map[string]string{
		prefix + "title":       "holdfast",
		prefix + "description": "CSI driver and its Kubernetes controllers in one process",
		prefix + "licenses":    "Apache-2.0",
		prefix + "source":      "https://github.com/holdfast-csi/holdfast",
		prefix + "version":     o.version,
		prefix + "created":     o.created.Format(time.RFC3339),
	}
	if o.revision != "" {
		l[prefix+"revision"] = o.revision
	}
	return l
}

func tagOf(name string) string { return name[strings.LastIndexByte(name, ':')+1:] }

// write writes the image. oci-layout is first: readers detect the format by it.
func (i *image) write(out io.Writer) error {
	entry := dockerEntry{Config: blobPath(i.config), RepoTags: []string{i.name}}
	for _, l := range i.layers {
		entry.Layers = append(entry.Layers, blobPath(l.blob))
	}
	docker, err := json.Marshal([]dockerEntry{entry})
	if err != nil {
		return err
	}
	archive := tar.NewWriter(out)
	put := func(name string, data []byte) error {
		if err := archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data)), ModTime: i.created, Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err := archive.Write(data)
		return err
	}
	if err := put("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	for _, b := range i.blobs() {
		if err := put(blobPath(b), b.data); err != nil {
			return err
		}
	}
	if err := put("index.json", i.index); err != nil {
		return err
	}
	if err := put("manifest.json", docker); err != nil {
		return err
	}
	return archive.Close()
}

func (i *image) blobs() []blob {
	blobs := []blob{i.config, i.manifest}
	for _, l := range i.layers {
		blobs = append(blobs, l.blob)
	}
	return blobs
}

// blobPath is where an image layout keeps a blob.
func blobPath(b blob) string { return path.Join("blobs", strings.Replace(b.Digest, ":", "/", 1)) }
