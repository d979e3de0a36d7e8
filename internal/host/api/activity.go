package api

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
)

// Activity is what the volumes and drivers of a host do. Counters grow: two answers give
// rates.
type Activity struct {
	// At is when the counters were read.
	At      time.Time        `json:"at"`
	Volumes []VolumeActivity `json:"volumes"`
	Drivers []DriverActivity `json:"drivers"`
}

// VolumeActivity is a mounted volume.
type VolumeActivity struct {
	// Volume is the name of the PersistentVolume, or of an inline volume in its pod.
	Volume string `json:"volume"`
	Driver string `json:"driver"`
	Handle string `json:"handle"`
	// Claim is namespace/name; empty for an inline volume.
	Claim string   `json:"claim,omitempty"`
	Pods  []string `json:"pods"`
	// Device is the name of the block device, and Counters are its own. Both are missing for
	// a volume without one, such as a network's filesystem.
	Device   string    `json:"device,omitempty"`
	Counters *Counters `json:"counters,omitempty"`
	// Bytes is missing if the driver does not say, or has not yet, how full the volume is.
	Bytes *Usage `json:"bytes,omitempty"`
}

// Counters are what the kernel has counted for a block device since it exists.
type Counters struct {
	Reads        uint64 `json:"reads"`
	ReadBytes    uint64 `json:"readBytes"`
	Writes       uint64 `json:"writes"`
	WrittenBytes uint64 `json:"writtenBytes"`
	// The times, in nanoseconds, have a resolution of 1 ms and wrap after 2³² ms. ReadTime
	// and WriteTime are sums over all requests; in BusyTime at least one was running.
	ReadTime  time.Duration `json:"readTime"`
	WriteTime time.Duration `json:"writeTime"`
	BusyTime  time.Duration `json:"busyTime"`
	InFlight  uint64        `json:"inFlight"`
}

// DriverActivity is a registered driver, with the room that it reports.
type DriverActivity struct {
	Name string `json:"name"`
	// State is that of the instance that serves, or else of the newest.
	State string `json:"state"`
	// Volumes is the number of PersistentVolumes, Promised the sum of their sizes in bytes.
	Volumes  int   `json:"volumes"`
	Promised int64 `json:"promised"`
	// Available is the room for new volumes in bytes, nil if the driver does not report it.
	Available *int64 `json:"available,omitempty"`
}

// Activity returns the counters of the mounted volumes.
func (c *Client) Activity(ctx context.Context) (Activity, error) {
	var activity Activity
	err := c.own(ctx, "activity", nil, &activity)
	return activity, err
}

func (s *Server) activity(w http.ResponseWriter, _ *http.Request) error {
	activity, err := s.options.Host.Activity()
	if err == nil {
		s.answer(w, http.StatusOK, activity)
	}
	return err
}

// Progress returns the steps that run and of which the driver says how far they are.
func (c *Client) Progress(ctx context.Context) ([]journal.StepEntry, error) {
	var steps []journal.StepEntry
	err := c.own(ctx, "progress", nil, &steps)
	return steps, err
}

func (s *Server) progress(w http.ResponseWriter, _ *http.Request) error {
	s.answer(w, http.StatusOK, s.options.Host.Progress())
	return nil
}
