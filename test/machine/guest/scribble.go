package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"time"
)

const (
	// sectorSize is what a disk writes whole or not at all, in bytes.
	sectorSize = 512
	// scribbleSectors is the length of the file of scribble, in sectors.
	scribbleSectors = 32 << 10
	// scribbleWrite is the length of a write of scribble, in sectors.
	scribbleWrite = 64
	// scribblePause leaves the processor to others between two writes.
	scribblePause = 100 * time.Millisecond
)

// scribbled is the content of a sector of scribble's file: its number and that of the
// write, and a checksum.
func scribbled(sector, write int) []byte {
	text := fmt.Appendf(nil, "sector %12d write %12d ", sector, write)
	content := bytes.Repeat(text, sectorSize/len(text)+1)[:sectorSize-8]
	return fmt.Appendf(content, "%08x", crc32.ChecksumIEEE(content))
}

// checkScribbled returns an error if a sector has something else than zeros or what
// scribble wrote to it: data of other files, or half of two writes.
func checkScribbled(file io.ReaderAt) error {
	zeros := make([]byte, sectorSize)
	part := make([]byte, scribbleWrite*sectorSize)
	for sector := range scribbleSectors {
		at := sector % scribbleWrite * sectorSize
		if at == 0 {
			if _, err := file.ReadAt(part, int64(sector)*sectorSize); err != nil {
				return err
			}
		}
		content := part[at : at+sectorSize]
		if bytes.Equal(content, zeros) {
			continue
		}
		var number, write int
		_, err := fmt.Sscanf(string(content), "sector %d write %d", &number, &write)
		if err != nil || !bytes.Equal(content, scribbled(sector, write)) {
			return fmt.Errorf("sector %d has %q", sector, content)
		}
	}
	return nil
}

// scribble checks the file and writes to it at random places without end. The disk gets
// the writes soon, and no flush: a power cut may lose or tear any of them.
func scribble(ctx context.Context, path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := errors.Join(file.Truncate(scribbleSectors*sectorSize), checkScribbled(file)); err != nil {
		return err
	}
	if err := report("scribble 1"); err != nil {
		return err
	}
	for write := 1; ctx.Err() == nil; write++ {
		first := rand.IntN(scribbleSectors - scribbleWrite) //nolint:gosec // no secret
		var content []byte
		for sector := first; sector < first+scribbleWrite; sector++ {
			content = append(content, scribbled(sector, write)...)
		}
		at := int64(first) * sectorSize
		if _, err := file.WriteAt(content, at); err != nil {
			return err
		}
		if err := writeBack(file, at, int64(len(content))); err != nil {
			return err
		}
		time.Sleep(scribblePause)
	}
	return nil
}
