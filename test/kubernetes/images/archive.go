package images

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
)

// Media types of the OCI image specification 1.1.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// descriptor points to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// nameAnnotation is the one by which containerd names an imported image.
const nameAnnotation = "io.containerd.image.name"

// Write writes an OCI layout with all images as one tar archive, which
// `ctr images import` takes. Equal images make equal archives.
func Write(w io.Writer, images []Image) error {
	a := &archive{tar: tar.NewWriter(w), blobs: make(map[string]bool), layers: make(map[*Layer]descriptor)}
	var manifests []descriptor
	for _, image := range images {
		manifest, err := a.image(image)
		if err != nil {
			return fmt.Errorf("images: %v: %w", image.Names, err)
		}
		for _, name := range image.Names {
			named := manifest
			named.Annotations = map[string]string{nameAnnotation: name}
			manifests = append(manifests, named)
		}
	}
	index := map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": manifests}
	if err := a.json("index.json", index); err != nil {
		return err
	}
	if err := a.json("oci-layout", map[string]any{"imageLayoutVersion": "1.0.0"}); err != nil {
		return err
	}
	return a.tar.Close()
}

// archive is one that is being written.
type archive struct {
	tar    *tar.Writer
	blobs  map[string]bool
	layers map[*Layer]descriptor
}

// image writes the blobs of an image and points to its manifest.
func (a *archive) image(image Image) (descriptor, error) {
	var layers []descriptor
	var diffs []string
	for _, layer := range image.Layers {
		d, err := a.layer(layer)
		if err != nil {
			return descriptor{}, err
		}
		layers, diffs = append(layers, d), append(diffs, d.Digest)
	}
	config, err := a.jsonBlob(typeConfig, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"Env":        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			"Entrypoint": image.Entrypoint, "Cmd": image.Cmd, "WorkingDir": "/",
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs},
	})
	if err != nil {
		return descriptor{}, err
	}
	return a.jsonBlob(typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": layers,
	})
}

// layer writes a layer once. It is not compressed, because it is not sent over a network.
func (a *archive) layer(layer *Layer) (descriptor, error) {
	if d, ok := a.layers[layer]; ok {
		return d, nil
	}
	content, err := layer.bytes()
	if err != nil {
		return descriptor{}, err
	}
	d, err := a.blob(typeLayer, content)
	a.layers[layer] = d
	return d, err
}

func (a *archive) jsonBlob(mediaType string, object any) (descriptor, error) {
	content, err := json.Marshal(object)
	if err != nil {
		return descriptor{}, err
	}
	return a.blob(mediaType, content)
}

func (a *archive) blob(mediaType string, content []byte) (descriptor, error) {
	sum := sha256.Sum256(content)
	name := hex.EncodeToString(sum[:])
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + name, Size: int64(len(content))}
	if a.blobs[name] {
		return d, nil
	}
	a.blobs[name] = true
	return d, a.file("blobs/sha256/"+name, content)
}

func (a *archive) json(name string, object any) error {
	content, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return a.file(name, content)
}

func (a *archive) file(name string, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}
	if err := a.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("images: write the archive: %w", err)
	}
	_, err := a.tar.Write(content)
	return err
}
