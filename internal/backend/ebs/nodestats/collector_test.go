package nodestats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

const (
	volumeA = "vol-0123456789abcdef0"
	volumeB = "vol-0123456789abcdef1"
)

// instance is a Source of volumes that answer, fail or hang.
type instance struct {
	mu       sync.Mutex
	unknown  error
	volumes  []string
	failures map[string]error
	hangs    map[string]chan struct{}
	asked    map[string]int
}

func (i *instance) InstanceID(context.Context) (string, error) {
	return "i-0123456789abcdef0", i.unknown
}
func (i *instance) Volumes() ([]string, error) { return i.volumes, nil }

func (i *instance) Statistics(id string) (Page, error) {
	i.mu.Lock()
	if i.asked == nil {
		i.asked = map[string]int{}
	}
	i.asked[id]++
	hang, failure := i.hangs[id], i.failures[id]
	i.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return Page{
		ReadOperations: 3, ReadTime: 1500 * time.Millisecond, InstanceIOPSExceeded: time.Second, QueueLength: 7,
		ReadLatency:  []Bin{{time.Millisecond, 2}, {time.Second, 0}, {Unbounded, 1}},
		WriteLatency: nil,
	}, failure
}

// times is the number of requests to each volume.
func (i *instance) times() map[string]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.asked)
}

// mend has every volume answer.
func (i *instance) mend() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failures, i.hangs = nil, nil
}

// plant is a collector for an instance, and its log.
func plant(i *instance) (*Collector, *bytes.Buffer) {
	log := &bytes.Buffer{}
	return New(Options{Source: i, Logger: slog.New(slog.NewTextHandler(log, nil))}), log
}

// values are the page with the collector's metrics.
func values(t *testing.T, c *Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("the page is %d %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

func TestCollector_hasTheNamesAndLabelsOfTheReferenceDriver(t *testing.T) {
	c, _ := plant(&instance{volumes: []string{volumeA}})
	page := values(t, c)
	labels := `instance_id="i-0123456789abcdef0",volume_id="vol-0123456789abcdef0"`
	for _, line := range []string{
		"ec2_exceeded_iops_seconds_total{" + labels + "} 1",
		"read_ops_total{" + labels + "} 3",
		"volume_queue_length{" + labels + "} 7",
		"read_io_latency_seconds_bucket{" + labels + `,le="0.001"} 2`,
		"read_io_latency_seconds_bucket{" + labels + `,le="1"} 2`,
		"read_io_latency_seconds_bucket{" + labels + `,le="+Inf"} 3`,
		"read_io_latency_seconds_sum{" + labels + "} 1.5",
		"read_io_latency_seconds_count{" + labels + "} 3",
		"nvme_collector_scrapes_total 1",
		"nvme_collector_errors_total 0",
	} {
		if !strings.Contains(page, "\naws_ebs_csi_"+line+"\n") {
			t.Errorf("the page lacks %s", line)
		}
	}
	for _, name := range []string{
		"read_ops_total", "write_ops_total", "read_bytes_total", "write_bytes_total", "read_seconds_total", "write_seconds_total",
		"exceeded_iops_seconds_total", "exceeded_tp_seconds_total", "ec2_exceeded_iops_seconds_total", "ec2_exceeded_tp_seconds_total",
		"volume_queue_length", "read_io_latency_seconds", "write_io_latency_seconds",
		"nvme_collector_scrapes_total", "nvme_collector_errors_total", "nvme_collector_duration_seconds",
	} {
		if !strings.Contains(page, "# TYPE aws_ebs_csi_"+name+" ") {
			t.Errorf("the page has no %s:\n%s", name, page)
		}
	}
}

// A disk that refuses is one line of the log and no more, is left alone for a
// while, and hides no other disk.
func TestCollector_leavesOutAVolumeThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &instance{volumes: []string{volumeA, volumeB}, failures: map[string]error{volumeB: ErrNotAPage}}
		c, log := plant(i)
		for range 130 { // seconds
			page := values(t, c)
			if strings.Contains(page, volumeB) || !strings.Contains(page, volumeA) {
				t.Fatalf("the page has\n%s", page)
			}
			time.Sleep(time.Second)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), volumeB) {
			t.Errorf("the log has %d lines:\n%s", lines, log)
		}
		if i.times()[volumeA] != 130 || i.times()[volumeB] != 3 {
			t.Errorf("asked %v; want the one each time, and the other once a minute", i.times())
		}
		if page := values(t, c); !strings.Contains(page, "errors_total 3\n") {
			t.Errorf("not 3 errors are counted:\n%s", page)
		}
		i.mend()
		time.Sleep(pause)
		if page := values(t, c); !strings.Contains(page, volumeB) {
			t.Error("the metrics still lack a volume that answers again")
		}
	})
}

func TestCollector_doesNotWaitForADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		i := &instance{volumes: []string{volumeA, volumeB}, hangs: map[string]chan struct{}{volumeA: hang}}
		c, log := plant(i)
		for n := range 3 {
			began := time.Now()
			page := values(t, c)
			if took, most := time.Since(began), defaultBound; took > most || (n > 0 && took > 0) {
				t.Errorf("page %d took %v", n, took)
			}
			if strings.Contains(page, volumeA) || !strings.Contains(page, volumeB) {
				t.Errorf("the page has\n%s", page)
			}
			time.Sleep(time.Minute)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 || i.times()[volumeA] != 1 {
			t.Errorf("it was asked %d times, and the log has\n%s", i.times()[volumeA], log)
		}
		i.mend()
		close(hang)
		synctest.Wait()
		if page := values(t, c); !strings.Contains(page, volumeA) {
			t.Error("the metrics still lack a disk that hangs no more")
		}
	})
}

func TestCollector_boundsHowManyDisksHangAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		i := &instance{hangs: map[string]chan struct{}{}}
		for n := range 3 * atOnce {
			id := fmt.Sprintf("vol-%08x", n)
			i.volumes, i.hangs[id] = append(i.volumes, id), hang
		}
		c, _ := plant(i)
		for range 3 {
			_ = values(t, c)
			time.Sleep(time.Minute)
		}
		if len(i.times()) != atOnce {
			t.Errorf("%d disks are asked, want %d", len(i.times()), atOnce)
		}
		close(hang)
		synctest.Wait()
		if page := values(t, c); strings.Count(page, "read_ops_total{") != 3*atOnce {
			t.Errorf("in the end the page has\n%s", page)
		}
	})
}

func TestCollector_oneAnswerServesScrapesAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		i := &instance{volumes: []string{volumeA}, hangs: map[string]chan struct{}{volumeA: hang}}
		c, _ := plant(i)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if page := values(t, c); !strings.Contains(page, volumeA) {
					t.Error("a scrape has no answer")
				}
			})
		}
		time.Sleep(time.Second)
		close(hang)
		all.Wait()
		if page := values(t, c); i.times()[volumeA] != 1 || !strings.Contains(page, "scrapes_total 6\n") {
			t.Errorf("asked %d times for\n%s", i.times()[volumeA], page)
		}
	})
}

func TestCollector_hasNoMetricsOfAnUnknownInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &instance{volumes: []string{volumeA}, unknown: errors.New("no answer")}
		c, log := plant(i)
		for range 3 {
			if page := values(t, c); strings.Contains(page, volumeA) {
				t.Error("volumes of an unknown instance are reported")
			}
			time.Sleep(time.Minute)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "no answer") {
			t.Errorf("the log has\n%s", log)
		}
	})
}

func TestCollector_aVolumeThatIsDetachedIsNotAFailure(t *testing.T) {
	i := &instance{volumes: []string{volumeA}, failures: map[string]error{volumeA: backend.ErrNotFound}}
	c, log := plant(i)
	if page := values(t, c); !strings.Contains(page, "errors_total 0\n") || strings.Contains(page, volumeA) || log.Len() != 0 {
		t.Errorf("the log has %s and the page\n%s", log, page)
	}
}
