package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// VolumeHealth tells what is wrong with a volume.
func (p *Pool) VolumeHealth(ctx context.Context, id string) ([]backend.HealthProblem, error) {
	if why, broken := p.index.brokenEntries()[id]; broken {
		return []backend.HealthProblem{{Kind: backend.HealthInaccessible, Reason: "RecordUnusable", Message: why.Error()}}, nil
	}
	if _, err := p.Volume(ctx, id); err != nil {
		return nil, err
	}
	return p.NodeVolumeHealth(ctx, id)
}

// NodeVolumeHealth tells what is wrong with a volume, inline ones included, as
// seen from this machine.
func (p *Pool) NodeVolumeHealth(_ context.Context, id string) ([]backend.HealthProblem, error) {
	record, err := p.recordOnDisk(id)
	if err != nil {
		return nil, err
	}
	own, err := p.dataHealth(record)
	return append(own, p.poolHealth()...), err
}

func (p *Pool) dataHealth(record volumeRecord) ([]backend.HealthProblem, error) {
	data, err := p.openData(volumePath(record.ID), os.O_RDONLY)
	if errors.Is(err, backend.ErrDataLoss) {
		return []backend.HealthProblem{{Kind: backend.HealthDataLoss, Reason: "DataFileMissing", Message: err.Error()}}, nil
	}
	if err != nil {
		return nil, classify(err)
	}
	defer func() { _ = data.Close() }()
	stat, err := statOf(data)
	if err != nil {
		return nil, classify(err)
	}
	if stat.Size < record.Size {
		return []backend.HealthProblem{{
			Kind: backend.HealthDataLoss, Reason: "DataFileTruncated",
			Message: fmt.Sprintf("the data file has %d bytes of %d", stat.Size, record.Size),
		}}, nil
	}
	return p.loopHealth(record)
}

func (p *Pool) loopHealth(record volumeRecord) ([]backend.HealthProblem, error) {
	loops, _, err := p.loopsOfVolume(record.ID)
	if err != nil {
		return nil, err
	}
	for _, loop := range loops {
		if !loop.DirectIO {
			return []backend.HealthProblem{{
				Kind: backend.HealthDegraded, Reason: "DirectIOUnavailable",
				Message: fmt.Sprintf("the pool's filesystem refuses direct I/O for %s with sectors of %d bytes; data passes the page cache twice", loop.Path, loop.SectorSize),
			}}, nil
		}
	}
	return nil, nil
}

// A pool with less than one part in 20 available is nearly full.
const nearlyFullShare = 20

// StorageHealth tells what is wrong with the pool as a whole.
func (p *Pool) StorageHealth(context.Context) ([]backend.HealthProblem, error) {
	return append(p.poolHealth(), p.recordHealth()...), nil
}

// poolHealth is what every volume of the pool suffers from.
func (p *Pool) poolHealth() []backend.HealthProblem {
	now, err := roomOf(p.top)
	if err != nil {
		return []backend.HealthProblem{{Kind: backend.HealthInaccessible, Reason: "PoolUnreachable", Message: err.Error()}}
	}
	var problems []backend.HealthProblem
	if now.readOnly {
		problems = append(problems, backend.HealthProblem{
			Kind: backend.HealthInaccessible, Reason: "PoolReadOnly",
			Message: fmt.Sprintf("the filesystem of pool %s is read-only; see the kernel log, then mount it read-write", p.options.Pool),
		})
	}
	if now.available < now.total/nearlyFullShare {
		problems = append(problems, backend.HealthProblem{
			Kind: backend.HealthDegraded, Reason: "PoolNearlyFull",
			Message: fmt.Sprintf("%d of %d bytes are left in pool %s; thin volumes will fail to write when it is full", now.available, now.total, p.options.Pool),
		})
	}
	return problems
}

func (p *Pool) recordHealth() []backend.HealthProblem {
	broken := p.index.brokenEntries()
	if len(broken) == 0 {
		return nil
	}
	first := slices.Sorted(maps.Keys(broken))[0]
	return []backend.HealthProblem{{
		Kind: backend.HealthDegraded, Reason: "RecordsUnusable",
		Message: fmt.Sprintf("%d entries are left alone, the first is %s: %v", len(broken), first, broken[first]),
	}}
}
