package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// disagreements compares the index, the ledger, the listings and the disk of a
// idle pool, after unresolved operations were resolved.
func disagreements(ctx context.Context, p *Pool) (found []string) {
	complain := func(format string, arguments ...any) { found = append(found, fmt.Sprintf(format, arguments...)) }
	if err := p.tidy(ctx); err != nil {
		complain("tidying failed: %v", err)
	}
	for entry, why := range p.unresolved.all() {
		complain("%s is unresolved: %v", entry, why)
	}
	compareVolumes(p, complain)
	compareSnapshots(ctx, p, complain)
	compareLedger(p, complain)
	found = append(found, whenFreed(p, compareShared)...)
	found = append(found, whenFreed(p, compareMeasured)...)
	// What the housekeeping removes at this moment is under its lock.
	left, err := p.list(trashDir)
	for range 3000 {
		if err != nil || len(left) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
		left, err = p.list(trashDir)
	}
	if err != nil || len(left) > 0 {
		complain("the trash has %v, %v", left, err)
	}
	slices.Sort(found)
	return found
}

type complaint func(format string, arguments ...any)

// whenFreed repeats a comparison until it finds nothing, as long as the filesystem may still
// free the blocks of deleted files: until then a volume shares them (see freeingTime).
func whenFreed(p *Pool, compare func(*Pool, complaint)) (found []string) {
	for range 1000 {
		found = nil
		compare(p, func(format string, arguments ...any) { found = append(found, fmt.Sprintf(format, arguments...)) })
		if len(found) == 0 || unix.Syncfs(descriptor(p.top)) != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return found
}

func compareVolumes(p *Pool, complain complaint) {
	onDisk := map[string]volumeRecord{}
	for _, id := range p.namesIn(volumesDir) {
		record, err := readRecord[volumeRecord](p.root, volumePath(id), volumeFile)
		switch _, known, _ := p.index.volume(id); {
		case err != nil:
			complain("volume %s on disk: %v", id, err)
		case record.State == ready:
			onDisk[id] = record
			if !known {
				complain("volume %s is ready on disk and not in the index", id)
			}
			if info, err := os.Stat(filepath.Join(p.options.Pool, volumePath(id), dataFile)); err != nil || info.Size() != record.Size {
				complain("volume %s has %d bytes in its record and %v, %v on disk", id, record.Size, info, err)
			}
		case record.Copy == nil:
			complain("volume %s is half made", id)
		}
	}
	p.index.mu.RLock()
	defer p.index.mu.RUnlock()
	for id, record := range p.index.volumes {
		if have, ok := onDisk[id]; !ok || have.Size != record.Size || have.Provisioning != record.Provisioning {
			complain("volume %s is in the index as %+v and on disk as %+v", id, record, have)
		}
	}
}

// compareShared checks that no thick volume shares blocks, unless with an unfinished copy,
// which a repeated call completes: a measurement counts these as needed.
func compareShared(p *Pool, complain complaint) {
	for _, id := range p.namesIn(snapshotsDir) {
		if record, err := readRecord[snapshotRecord](p.root, snapshotPath(id), snapshotFile); err != nil || record.State != ready {
			return
		}
	}
	for _, id := range p.namesIn(volumesDir) {
		if record, err := readRecord[volumeRecord](p.root, volumePath(id), volumeFile); err != nil || record.State != ready {
			return
		}
	}
	for id, a := range p.ledger.snapshotOfAccounts() {
		if !a.thick || !p.reflink.Load() {
			continue
		}
		data, err := p.openData(volumePath(id), os.O_RDONLY)
		if err != nil {
			complain("open thick volume %s: %v", id, err)
			continue
		}
		if shared, err := sharedExtents(data); err != nil || len(shared) > 0 {
			complain("thick volume %s shares %v, %v", id, shared, err)
		}
		_ = data.Close()
	}
}

func compareSnapshots(ctx context.Context, p *Pool, complain complaint) {
	listed := map[string]bool{}
	snapshots, err := p.Snapshots(ctx, backend.SnapshotFilter{}, "", 0)
	if err != nil {
		complain("list snapshots: %v", err)
	}
	for _, s := range snapshots {
		listed[s.ID] = true
		if s.GroupID == "" {
			continue
		}
		if _, err := p.Group(ctx, s.GroupID); err != nil {
			complain("snapshot %s is listed and its group is not complete: %v", s.ID, err)
		}
	}
	for _, id := range p.namesIn(snapshotsDir) {
		record, err := readRecord[snapshotRecord](p.root, snapshotPath(id), snapshotFile)
		switch {
		case err != nil:
			complain("snapshot %s on disk: %v", id, err)
		case record.State == ready && !listed[id]:
			complain("snapshot %s is ready on disk and not listed", id)
		case record.State != ready && record.Copy == nil:
			complain("snapshot %s is half made", id)
		}
	}
	for id := range listed {
		if !complete(p.root, snapshotPath(id)) {
			complain("snapshot %s is listed and not complete on disk", id)
		}
	}
	for _, id := range p.namesIn(groupsDir) {
		if _, err := p.Group(ctx, id); err != nil {
			complain("group %s is on disk and not complete: %v", id, err)
		}
	}
}

func compareLedger(p *Pool, complain complaint) {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	var needs, owned int64
	for id, a := range p.ledger.accounts {
		needs, owned = needs+p.ledger.need(a), owned+a.exclusive
		if record, known, _ := p.index.volume(id); !known || record.Size != a.size || record.thick() != a.thick {
			complain("volume %s is in the ledger as %+v and in the index as %+v", id, a, record)
		}
	}
	p.index.mu.RLock()
	defer p.index.mu.RUnlock()
	for id := range p.index.volumes {
		if _, ok := p.ledger.accounts[id]; !ok {
			complain("volume %s is in the index and not in the ledger", id)
		}
	}
	if len(p.ledger.pending) > 0 || needs != p.ledger.needs || owned != p.ledger.owned {
		complain("the ledger needs %d bytes and owns %d, the accounts %d and %d, and %v are pending",
			p.ledger.needs, p.ledger.owned, needs, owned, p.ledger.pending)
	}
}

// compareMeasured checks that the ledger, as it is kept, promises no more than a
// measurement of every volume at this moment.
func compareMeasured(p *Pool, complain complaint) {
	if !p.phase.recovered.Load() {
		return
	}
	kept, measured, differences, err := keptAndMeasured(p)
	if err != nil {
		complain("measure the volumes: %v", err)
	}
	if noise := int64(mebibyte); kept > measured+noise {
		complain("the ledger promises %d bytes; a measurement shows %d: %s", kept, measured, strings.Join(differences, "; "))
	}
}

// keptAndMeasured returns how many bytes can be promised by the ledger, and by a
// measurement, for the same available bytes, and the accounts that differ. The measurement
// trusts no account that its volume shares no blocks. The ledger stays as it is.
func keptAndMeasured(p *Pool) (kept, measured int64, differences []string, err error) {
	now, err := roomOf(p.top)
	if err != nil {
		return 0, 0, nil, err
	}
	available := now.available - p.reserved
	measured = available
	for id, a := range p.ledger.snapshotOfAccounts() {
		has := a
		has.mayShare = p.reflink.Load()
		has = p.measured(id, has)
		measured -= p.ledger.need(has)
		if a.exclusive != has.exclusive {
			differences = append(differences, fmt.Sprintf("volume %s of %d bytes owns %d, may share %t; measured %d", id, a.size, a.exclusive, a.mayShare, has.exclusive))
		}
	}
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	return p.ledger.estimate(available), measured, differences, nil
}

func wantAgreement(ctx context.Context, t tester, p *Pool, after string) {
	t.Helper()
	if found := disagreements(ctx, p); len(found) > 0 {
		t.Fatalf("%s:\n%s", after, strings.Join(found, "\n"))
	}
}
