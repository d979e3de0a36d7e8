package nodeside

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// formatOptions parses the mkfs options of a volume context. The controller checked them
// when it created the volume, but a PersistentVolume can be written by hand. So they
// become numbers and booleans, and never text for a program.
func formatOptions(volumeContext map[string]string) (backend.FormatOptions, error) {
	var o backend.FormatOptions
	for key, value := range map[string]*int64{
		"blocksize": &o.BlockSize, "inodesize": &o.InodeSize, "bytesperinode": &o.BytesPerInode,
		"numberofinodes": &o.Inodes, "ext4clustersize": &o.ClusterSize,
	} {
		text := volumeContext[key]
		if text == "" {
			continue
		}
		number, err := parseSize(text)
		if err != nil {
			return o, fmt.Errorf("%w: volume attribute %s is %.32q: %w", backend.ErrInvalid, key, text, err)
		}
		*value = number
	}
	for key, value := range map[string]*bool{"ext4bigalloc": &o.BigAlloc, "ext4encryptionsupport": &o.Encrypt} {
		text := volumeContext[key]
		if text == "" {
			continue
		}
		flag, err := strconv.ParseBool(text)
		if err != nil {
			return o, fmt.Errorf("%w: volume attribute %s is %.32q; it must be true or false",
				backend.ErrInvalid, key, text)
		}
		*value = flag
	}
	if o.ClusterSize != 0 && !o.BigAlloc {
		return o, fmt.Errorf("%w: volume attribute ext4clustersize needs ext4bigalloc to be true", backend.ErrInvalid)
	}
	return o, nil
}

// parseSize parses a number as mkfs does: digits, and k, m or g for a power of 1024.
func parseSize(text string) (int64, error) {
	digits, shift := text, 0
	if last := len(text) - 1; last > 0 {
		switch text[last] {
		case 'k', 'K':
			digits, shift = text[:last], 10
		case 'm', 'M':
			digits, shift = text[:last], 20
		case 'g', 'G':
			digits, shift = text[:last], 30
		}
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || number <= 0 || number > math.MaxInt64>>shift || digits[0] == '+' {
		return 0, errors.New("it must be a number above 0, such as 4096 or 4k")
	}
	return number << shift, nil
}
