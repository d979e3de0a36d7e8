package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// served is the work of the API server since its start.
type served struct {
	cpu    time.Duration
	rss    int64
	events float64 // that it sent to watchers
	// volumes are the claims and PersistentVolumes among these events and in lists. Most
	// lists are events, too: client-go streams them.
	volumes float64
	lists   float64 // requests
}

func (s served) since(before served) served {
	return served{s.cpu - before.cpu, s.rss, s.events - before.events, s.volumes - before.volumes, s.lists - before.lists}
}

// served reads the API server's metrics.
func (b *bench) served(ctx context.Context) (s served, err error) {
	text, err := b.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return s, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), "{")
		name, bare, _ := strings.Cut(name, " ")
		if i := strings.LastIndexByte(rest, ' '); i >= 0 {
			bare = rest[i+1:]
		}
		if strings.HasPrefix(name, "#") {
			continue
		}
		value, err := strconv.ParseFloat(bare, 64)
		if err != nil {
			continue // not a sample
		}
		switch name {
		case "process_cpu_seconds_total":
			s.cpu = time.Duration(value * float64(time.Second))
		case "process_resident_memory_bytes":
			s.rss = int64(value)
		case "apiserver_watch_events_total":
			s.events += value
			if ofVolumes(rest) {
				s.volumes += value
			}
		case "apiserver_cache_list_returned_objects_total":
			if ofVolumes(rest) {
				s.volumes += value
			}
		case "apiserver_request_total":
			if strings.Contains(rest, `verb="LIST"`) {
				s.lists += value
			}
		}
	}
	if s.cpu == 0 {
		return s, fmt.Errorf("the API server's metrics lack process_cpu_seconds_total (%d bytes)", len(text))
	}
	return s, lines.Err()
}

// ofVolumes reports whether a metric's labels are those of claims or PersistentVolumes.
func ofVolumes(labels string) bool {
	return strings.Contains(labels, `resource="persistentvolumes"`) || strings.Contains(labels, `resource="persistentvolumeclaims"`)
}
