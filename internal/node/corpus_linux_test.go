package node

import (
	"context"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
	"github.com/holdfast-csi/holdfast/test/corpus"
)

// wholeCorpus is what make test-blank asks for; without it every 40th image is
// tried.
var wholeCorpus = flag.Bool("corpus.whole", false, "try all images of test/corpus")

// mkfsCounter runs no command, and counts those that make a filesystem.
type mkfsCounter struct{ made int }

func (c *mkfsCounter) Run(_ context.Context, run command.Command) (command.Result, error) {
	if strings.HasPrefix(run.Name, "mkfs") {
		c.made++
	}
	return command.Result{ExitCode: 8}, nil
}

// TestFormat_noImageOfTheCorpus puts each image on a real loop device and asks
// the engine to prepare it. A backend that knows the written extents proves that it is
// not blank; one that does not finds all images but those outside its sample.
func TestFormat_noImageOfTheCorpus(t *testing.T) {
	images := corpusImages(t)
	step := 40
	if *wholeCorpus {
		step = 1
	}
	for _, c := range []struct {
		name      string
		forgetful bool
	}{{"proven", false}, {"sampled", true}} {
		t.Run(c.name, func(t *testing.T) {
			runner := &mkfsCounter{}
			f := newFixture(t, func(o *Options) { o.Runner = runner })
			f.backend.forgetful = c.forgetful
			tried, formatted, missed := 0, 0, 0
			for i := 0; i < len(images); i += step {
				tried++
				runner.made = 0
				f.prepareImage(&images[i])
				switch {
				case runner.made == 0:
				case c.forgetful && !images[i].Recognizable():
					missed++
				default:
					formatted++
					t.Errorf("formatted: %s", images[i].Name)
				}
			}
			t.Logf("%d images, %d formatted, %d with data of no known kind formatted", tried, formatted, missed)
		})
	}
}

func corpusImages(t *testing.T) []corpus.Image {
	t.Helper()
	all, err := corpus.New(t.Context(), nodetest.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Images) < 2000 {
		t.Fatalf("the corpus has %d images; want 2000", len(all.Images))
	}
	return all.Images
}

// prepareImage makes the steps of a stage up to the mount.
func (f *fixture) prepareImage(image *corpus.Image) {
	f.t.Helper()
	const id = "vol-corpus"
	f.backend.add(f.t, id, mebibyte)
	f.must(f.backend.SetFormatMark(f.t.Context(), id, backend.FormatMark{}))
	f.must(image.Make(f.backend.path(id)))
	device, err := f.backend.OpenDevice(f.t.Context(), backend.DeviceRequest{VolumeID: id})
	f.must(err)
	_, err = f.engine.prepare(f.t.Context(), preparation{volumeID: id, device: device, desired: "ext4", point: "node/stage"})
	if err != nil && strings.Contains(err.Error(), "input/output error") {
		f.t.Errorf("%s: %v", image.Name, err)
	}
	f.must(device.Release())
	f.must(os.Remove(f.backend.path(id)))
}
