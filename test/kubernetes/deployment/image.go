package deployment

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Image is the name by which pods refer to an archive's image.
type Image struct {
	Archive         string // file, as `make image` writes it
	Repository, Tag string
}

// String is the image's whole name.
func (i Image) String() string { return i.Repository + ":" + i.Tag }

// ReadImage reads the image's name from an archive: a user may pass any name to
// `make image`.
func ReadImage(archive string) (Image, error) {
	file, err := os.Open(archive)
	if err != nil {
		return Image{}, fmt.Errorf("deployment: image archive: %w: run `make image`", err)
	}
	defer func() { _ = file.Close() }()
	name, err := imageName(tar.NewReader(file))
	if err != nil {
		return Image{}, fmt.Errorf("deployment: image archive %s: %w", archive, err)
	}
	colon := strings.LastIndex(name, ":")
	if colon < strings.LastIndex(name, "/") || colon < 0 {
		return Image{}, fmt.Errorf("deployment: image archive %s: the name %q has no tag", archive, name)
	}
	return Image{Archive: archive, Repository: name[:colon], Tag: name[colon+1:]}, nil
}

// imageName reads the index that the OCI image layout has as index.json, with the
// annotation by which containerd names an imported image.
func imageName(archive *tar.Reader) (string, error) {
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return "", errors.New("the archive has no index.json")
		}
		if err != nil {
			return "", err
		}
		if header.Name != "index.json" {
			continue
		}
		var index struct {
			Manifests []struct{ Annotations map[string]string }
		}
		if err := json.NewDecoder(archive).Decode(&index); err != nil {
			return "", fmt.Errorf("index.json: %w", err)
		}
		for _, m := range index.Manifests {
			if name := m.Annotations["io.containerd.image.name"]; name != "" {
				return name, nil
			}
		}
		return "", errors.New("index.json names no image")
	}
}
