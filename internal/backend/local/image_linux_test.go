package local

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
)

const imageSize = 512 * mebibyte

// imageOptions are those of a pool on an image; its mount goes with the test.
func imageOptions(t *testing.T) Options {
	t.Helper()
	dir := scratchDir(t)
	options := Options{
		Pool:      filepath.Join(dir, "pool"),
		PoolImage: &ImageOptions{Path: filepath.Join(dir, "image"), Size: imageSize},
	}
	t.Cleanup(func() { unmountIfMounted(t, options.Pool) })
	return options
}

func unmountIfMounted(t testing.TB, dir string) {
	t.Helper()
	var here, above unix.Stat_t
	if unix.Stat(dir, &here) != nil || unix.Stat(filepath.Dir(dir), &above) != nil || here.Dev == above.Dev {
		return
	}
	unmount(t, dir)
}

func TestPoolImage_givesReflinkAndSurvivesAReboot(t *testing.T) {
	options := imageOptions(t)
	pool := open(t, options)
	if !pool.reflink.Load() {
		t.Fatal("the image has no reflink")
	}
	volume := create(t, pool, spec("one", 8*mebibyte))
	want := bytes.Repeat([]byte{7}, 4096)
	writeVolume(t, pool, volume.ID, 0, want)
	shut(t, pool)
	unmount(t, options.Pool) // as by a reboot

	again := open(t, options)
	if got := readVolume(t, again, volume.ID, 0, 4096); !bytes.Equal(got, want) {
		t.Fatal("the content did not survive")
	}
}

func TestPoolImage_isFoundMountedAtTheNextStart(t *testing.T) {
	options := imageOptions(t)
	shut(t, open(t, options))
	options.PoolImage.Size = 0 // no longer needed
	open(t, options)
}

func TestPoolImage_growsToALargerSize(t *testing.T) {
	options := imageOptions(t)
	pool := open(t, options)
	before := totalOf(t, options.Pool)
	shut(t, pool)
	options.PoolImage.Size = 2 * imageSize
	open(t, options)
	if after := totalOf(t, options.Pool); after < before+imageSize-16*mebibyte {
		t.Fatalf("%d bytes before, %d after; want %d more", before, after, imageSize)
	}
}

func totalOf(t testing.TB, dir string) int64 {
	t.Helper()
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		t.Fatal(err)
	}
	return int64(stat.Blocks) * stat.Bsize
}

func TestPoolImage_neverFormatsAFileThatIsThere(t *testing.T) {
	for name, content := range map[string][]byte{
		"text":  bytes.Repeat([]byte("precious "), 1<<16),
		"blank": make([]byte, 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			options := imageOptions(t)
			if err := os.WriteFile(options.PoolImage.Path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := tryOpen(t, options); !errors.Is(err, backend.ErrPrecondition) {
				t.Fatalf("got %v; want ErrPrecondition", err)
			}
			if got, err := os.ReadFile(options.PoolImage.Path); err != nil || !bytes.Equal(got, content) {
				t.Fatalf("the file was changed: %v", err)
			}
		})
	}
}

func TestPoolImage_replacesTheFileOfAnInterruptedCreation(t *testing.T) {
	options := imageOptions(t)
	if err := os.WriteFile(options.PoolImage.Path+durable.TempSuffix, []byte("half a filesystem"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, options)
	if _, err := os.Stat(options.PoolImage.Path + durable.TempSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the rest is still there: %v", err)
	}
}

func TestPoolImage_doesNotHideWhatLiesInThePoolDirectory(t *testing.T) {
	options := imageOptions(t)
	if err := os.MkdirAll(filepath.Join(options.Pool, "something"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := tryOpen(t, options); !errors.Is(err, backend.ErrPrecondition) {
		t.Fatalf("got %v; want ErrPrecondition", err)
	}
}

// A program that reads signatures keeps the device for a moment after it was unmounted.
func TestPoolImage_waitsForADeviceThatIsGoing(t *testing.T) {
	options := imageOptions(t)
	shut(t, open(t, options))
	file, err := os.Open(options.PoolImage.Path)
	must(t, err)
	loops, err := blockdev.LoopsOf(file)
	must(t, errors.Join(err, file.Close()))
	if len(loops) != 1 {
		t.Fatalf("the image has the devices %v", loops)
	}
	reader, err := os.Open(loops[0].Path)
	must(t, err)
	unmount(t, options.Pool)
	time.AfterFunc(300*time.Millisecond, func() { _ = reader.Close() })
	open(t, options)
}

func TestPoolImage_thatIsMountedElsewhereIsRefused(t *testing.T) {
	options := imageOptions(t)
	shut(t, open(t, options))
	other := filepath.Join(filepath.Dir(options.Pool), "other")
	must(t, errors.Join(os.Mkdir(other, 0o700), unix.Mount(options.Pool, other, "", unix.MS_BIND, "")))
	t.Cleanup(func() { unmount(t, other) })
	shut(t, open(t, options)) // it is mounted at the pool's directory, too
	unmount(t, options.Pool)
	if _, err := tryOpen(t, options); !errors.Is(err, backend.ErrInUse) || !strings.Contains(err.Error(), other) {
		t.Fatalf("got %v; want ErrInUse that names %s", err, other)
	}
}

func TestPoolImage_needsASizeOnce(t *testing.T) {
	options := imageOptions(t)
	options.PoolImage.Size = mebibyte
	if _, err := tryOpen(t, options); !errors.Is(err, backend.ErrInvalid) {
		t.Fatalf("got %v; want ErrInvalid", err)
	}
}
