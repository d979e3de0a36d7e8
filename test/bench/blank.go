//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/test/corpus"
)

// decisions counts the images that each way of deciding would format.
type decisions struct{ proven, sampled, upstream int }

// measureBlank asks of damaged and foreign images whether they would be
// formatted. mount-utils' FormatAndMount formats where GetDiskFormat finds
// nothing.
func measureBlank(ctx context.Context, s settings) ([]row, error) {
	dir, err := os.MkdirTemp(s.scratch, "corpus-")
	if err != nil {
		return nil, err
	}
	all, err := corpus.New(ctx, dir)
	if err != nil {
		return nil, err
	}
	var counts decisions
	for i := range all.Images {
		if err := counts.add(ctx, &all.Images[i], filepath.Join(dir, "image")); err != nil {
			return nil, fmt.Errorf("%s: %w", all.Images[i].Name, err)
		}
	}
	const other = "k8s.io/mount-utils, FormatAndMount"
	line := func(work string, count int) row {
		return row{work, strconv.Itoa(count), other, strconv.Itoa(counts.upstream), ratio(float64(count), float64(counts.upstream)), "0"}
	}
	return []row{
		line(fmt.Sprintf("damaged and foreign images that would be formatted, of %d; local, proven blank", len(all.Images)), counts.proven),
		line("the same by the sample of a whole disk, as with ebs", counts.sampled),
	}, os.RemoveAll(dir)
}

func (d *decisions) add(ctx context.Context, image *corpus.Image, path string) (err error) {
	if err := image.Make(path); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(path)) }()
	proven, err := blockdev.Probe(ctx, file, image.Size, corpus.Written(file))
	if err != nil {
		return err
	}
	sampled, err := blockdev.Probe(ctx, file, image.Size, nil)
	if err != nil {
		return err
	}
	upstream := mount.SafeFormatAndMount{Exec: exec.New()}
	format, err := upstream.GetDiskFormat(path)
	for count, formats := range map[*int]bool{
		&d.proven: proven.Kind == blockdev.Blank, &d.sampled: sampled.Kind == blockdev.Blank, &d.upstream: err == nil && format == "",
	} {
		if formats {
			*count++
		}
	}
	return nil
}
