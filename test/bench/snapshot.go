//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

func measureSnapshot(ctx context.Context, s settings) ([]row, error) {
	imageGiB := int(s.large>>30)*2 + 4
	rows, err := with(ctx, s, "reflink", imageGiB, func(d *driver) ([]row, error) {
		small, err := measureCut(ctx, d, "image", 100<<20, "cp --reflink=always of its file", "--reflink=always", "-")
		if err != nil {
			return nil, err
		}
		large, err := measureCut(ctx, d, "image", s.large, "cp --reflink=always of its file", "--reflink=always", "≤ 50 ms, as 100 MiB")
		return append(small, large...), err
	})
	if err != nil {
		return nil, err
	}
	plain, err := with(ctx, s, "copy", 0, func(d *driver) ([]row, error) {
		return measureCut(ctx, d, "plain", 100<<20, "cp --sparse=auto of its file, and sync", "--reflink=never", "-")
	})
	return append(rows, plain...), err
}

// measureCut snapshots and clones a mounted volume with so many bytes of data.
func measureCut(ctx context.Context, d *driver, pool string, size int64, alternative, cpFlag, aim string) ([]row, error) {
	v, err := d.create(ctx, fmt.Sprintf("data-%d", size), size+size/16+(64<<20), mounted("ext4"), nil, nil)
	if err != nil {
		return nil, err
	}
	if err := v.up(ctx); err != nil {
		return nil, err
	}
	if err := writeData(ctx, filepath.Join(v.target, "data"), size); err != nil {
		return nil, err
	}
	const rounds = 5
	taken, err := repeat(rounds, func(round int) (time.Duration, error) { return snapshotOnce(ctx, d, v, round) })
	if err != nil {
		return nil, err
	}
	cloned, err := repeat(rounds, func(round int) (time.Duration, error) { return cloneOnce(ctx, d, v, round) })
	if err != nil {
		return nil, err
	}
	copied, err := repeat(rounds, func(int) (time.Duration, error) { return copyOnce(ctx, d, v, cpFlag) })
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("of %d MiB of synced data, mounted, %s pool", size>>20, pool)
	return []row{
		times("snapshot "+what, taken, alternative, copied, aim),
		times("clone "+what, cloned, alternative, copied, aim),
	}, v.down(ctx)
}

func snapshotOnce(ctx context.Context, d *driver, v *volume, round int) (time.Duration, error) {
	var id string
	took, err := clock(func() error {
		response, err := d.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{SourceVolumeId: v.id, Name: fmt.Sprintf("snapshot-%s-%d", v.id, round)})
		id = response.GetSnapshot().GetSnapshotId()
		return err
	})
	if err != nil {
		return 0, err
	}
	_, err = d.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
	return took, err
}

func cloneOnce(ctx context.Context, d *driver, v *volume, round int) (time.Duration, error) {
	source := &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.id}}}
	var clone *volume
	took, err := clock(func() (err error) {
		clone, err = d.create(ctx, fmt.Sprintf("clone-%s-%d", v.id, round), v.size, v.capability, source, nil)
		return err
	})
	if err != nil {
		return 0, err
	}
	return took, clone.delete(ctx)
}

func copyOnce(ctx context.Context, d *driver, v *volume, flag string) (time.Duration, error) {
	file, copied := filepath.Join(d.pool, "volumes", v.id, "data"), filepath.Join(d.pool, "bench-copy")
	took, err := clock(func() error {
		if _, err := tool(ctx, "cp", flag, file, copied); err != nil {
			return err
		}
		_, err := tool(ctx, "sync", copied)
		return err
	})
	if err != nil {
		return 0, err
	}
	return took, os.Remove(copied)
}

// writeData fills a file with bytes that do not compress, and syncs them.
func writeData(ctx context.Context, path string, size int64) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	block := make([]byte, 4<<20)
	if _, err := rand.Read(block); err != nil {
		return err
	}
	for written := int64(0); written < size; written += int64(len(block)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := file.Write(block[:min(int64(len(block)), size-written)]); err != nil {
			return err
		}
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return unix.Syncfs(int(file.Fd()))
}
