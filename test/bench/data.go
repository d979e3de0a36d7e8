//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const dataSize = 2 * gib

// measureData compares the data path of a thick volume with a file of the same
// size on the pool's filesystem.
func measureData(ctx context.Context, s settings) ([]row, error) {
	return with(ctx, s, "data", 0, func(d *driver) ([]row, error) {
		device, err := d.create(ctx, "device", dataSize, block(), nil, map[string]string{"provisioning": "thick"})
		if err != nil {
			return nil, err
		}
		if err := device.up(ctx); err != nil {
			return nil, err
		}
		filesystem, err := d.create(ctx, "filesystem", dataSize+gib/2, mounted("ext4"), nil, map[string]string{"provisioning": "thick"})
		if err != nil {
			return nil, err
		}
		if err := filesystem.up(ctx); err != nil {
			return nil, err
		}
		raw, inside := filepath.Join(d.dir, "raw"), filepath.Join(filesystem.target, "file")
		bare, remove, err := loopFile(ctx, filepath.Join(d.dir, "bare"), dataSize)
		if err != nil {
			return nil, err
		}
		if err := layOut(ctx, raw, inside, device.target, bare); err != nil {
			return nil, errors.Join(err, remove())
		}
		rows, err := comparePaths(ctx, s, raw, []subject{
			{"raw block volume", device.target, "≥ 0.9, or what bare gets"}, {"ext4 volume", inside, "≥ 0.9, or what bare gets"},
			{"*bare loop device by losetup, for comparison*", bare, "the kernel's floor"},
		})
		if err := errors.Join(err, remove()); err != nil {
			return nil, err
		}
		cached, err := doubleCache(ctx, filepath.Join(d.pool, "volumes", filesystem.id, "data"), inside)
		if err != nil {
			return nil, err
		}
		if err := device.down(ctx); err != nil {
			return nil, err
		}
		return append(rows, cached), filesystem.down(ctx)
	})
}

// layOut writes every block once, so that no measurement includes allocation.
func layOut(ctx context.Context, paths ...string) error {
	for _, path := range paths {
		if _, err := fio(ctx, path, "write", "1M", "--size="+fmt.Sprint(dataSize), "--end_fsync=1"); err != nil {
			return err
		}
	}
	return nil
}

// subject is something that fio reads and writes.
type subject struct{ name, path, aim string }

func comparePaths(ctx context.Context, s settings, raw string, subjects []subject) ([]row, error) {
	var rows []row
	timed := []string{"--size=" + fmt.Sprint(dataSize), "--time_based", fmt.Sprintf("--runtime=%d", int(s.fioTime.Seconds()))}
	for _, load := range []struct{ name, mode, size string }{
		{"4k random read, depth 16", "randread", "4k"}, {"4k random write, depth 16", "randwrite", "4k"},
		{"1M sequential read", "read", "1M"}, {"1M sequential write", "write", "1M"},
	} {
		// The raw file before and after each: the machine's disk is shared.
		before, err := fio(ctx, raw, load.mode, load.size, timed...)
		if err != nil {
			return nil, err
		}
		for _, sub := range subjects {
			got, err := fio(ctx, sub.path, load.mode, load.size, timed...)
			if err != nil {
				return nil, err
			}
			after, err := fio(ctx, raw, load.mode, load.size, timed...)
			if err != nil {
				return nil, err
			}
			alone := (before + after) / 2
			before = after
			rows = append(rows, row{
				work: fmt.Sprintf("fio %s, %s", load.name, sub.name), holdfast: rate(got), alternative: "file on the pool's filesystem",
				measured: rate(alone), ratio: ratio(got, alone), aim: sub.aim,
			})
		}
	}
	return rows, nil
}

func rate(bytesPerSecond float64) string { return fmt.Sprintf("%.0f MiB/s", bytesPerSecond/(1<<20)) }

// fio runs one job with direct I/O and returns bytes per second.
func fio(ctx context.Context, path, mode, size string, more ...string) (float64, error) {
	args := append([]string{
		"--name=job", "--filename=" + path, "--rw=" + mode, "--bs=" + size, "--direct=1", "--ioengine=libaio",
		"--iodepth=16", "--randrepeat=1", "--output-format=json", "--fallocate=none",
	}, more...)
	output, err := exec.CommandContext(ctx, "fio", args...).Output()
	if err != nil {
		return 0, fmt.Errorf("fio %v: %w", args, err)
	}
	var result struct {
		Jobs []struct {
			Read, Write struct {
				Bytes float64 `json:"bw_bytes"`
			}
		}
	}
	if err := json.Unmarshal(output, &result); err != nil || len(result.Jobs) != 1 {
		return 0, fmt.Errorf("fio %v: %w: %s", args, err, output)
	}
	return result.Jobs[0].Read.Bytes + result.Jobs[0].Write.Bytes, nil
}

// doubleCache reads a file through the volume into the page cache and looks
// how much of the backing file got there too.
func doubleCache(ctx context.Context, backing, inside string) (row, error) {
	if _, err := os.ReadFile(inside); err != nil {
		return row{}, err
	}
	pages, err := tool(ctx, "fincore", "--bytes", "--noheadings", "--output", "RES", backing)
	if err != nil {
		return row{}, err
	}
	volume, err := tool(ctx, "fincore", "--bytes", "--noheadings", "--output", "RES", inside)
	if err != nil {
		return row{}, err
	}
	var double, single float64
	if _, err := fmt.Sscan(strings.TrimSpace(pages), &double); err != nil {
		return row{}, err
	}
	if _, err := fmt.Sscan(strings.TrimSpace(volume), &single); err != nil {
		return row{}, err
	}
	return row{
		"bytes cached twice after reading 2 GiB", fmt.Sprintf("%.0f MiB", double/(1<<20)),
		"cached once, by the volume's filesystem", fmt.Sprintf("%.0f MiB", single/(1<<20)), ratio(double, single), "none",
	}, nil
}
