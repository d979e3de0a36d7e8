package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"time"
)

// recordSize is the length of a record, in bytes. It divides no block, so that
// records lie across the borders of blocks.
const recordSize = 72

// pause leaves the processor to others between two records.
const pause = 100 * time.Millisecond

// record is that of a number: the number and a checksum.
func record(number int) []byte {
	text := fmt.Sprintf("%012d %052d", number, number*7)
	return fmt.Appendf(nil, "%s %5x\n", text, crc32.ChecksumIEEE([]byte(text))&0xfffff)
}

// lastGood returns how many records follow each other without an error from the
// beginning.
func lastGood(file io.Reader) (int, error) {
	data := make([]byte, recordSize)
	for number := 1; ; number++ {
		switch _, err := io.ReadFull(file, data); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return number - 1, nil
		case err != nil:
			return 0, err
		case !bytes.Equal(data, record(number)):
			return number - 1, nil
		}
	}
}

func verifyRecords(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	number, err := lastGood(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	fmt.Println(number)
	return file.Close()
}

// unreported is the name of records that are not reported, since the program runs
// where the agent's socket is not.
const unreported = "-"

// writeRecords continues after the last good record of the file: what a power cut
// left behind it was not durable.
func writeRecords(ctx context.Context, name, path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	number, err := lastGood(file)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Truncate(int64(number)*recordSize), syncDirectory(filepath.Dir(path))); err != nil {
		return err
	}
	for ctx.Err() == nil {
		number++
		if _, err := file.WriteAt(record(number), int64(number-1)*recordSize); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
		if name != unreported {
			if err := report("%s %d", name, number); err != nil {
				return err
			}
		}
		time.Sleep(pause)
	}
	return nil
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
