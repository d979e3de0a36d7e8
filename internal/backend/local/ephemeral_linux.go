package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// The kubelet makes handles of this form; CreateVolume never issues one.
var handleForm = regexp.MustCompile(`^csi-[0-9a-f]{64}$`)

// CreateEphemeral makes an inline volume, thin, or finds the one of the handle.
func (p *Pool) CreateEphemeral(ctx context.Context, spec backend.EphemeralSpec) (backend.EphemeralVolume, error) {
	if !handleForm.MatchString(spec.Handle) {
		return backend.EphemeralVolume{}, fmt.Errorf("%w: %.128q is not a handle of an inline volume",
			backend.ErrInvalid, spec.Handle)
	}
	size, err := ephemeralSize(spec.Attributes, p.options.MaximumEphemeral)
	if err != nil {
		return backend.EphemeralVolume{}, err
	}
	desired := volumeRecord{
		header: newHeader(idOf(ephemeralPrefix, spec.Handle)), Name: spec.Handle, Size: size,
		Provisioning: thin, Parameters: maps.Clone(spec.Attributes), Created: time.Now().UTC(),
		Inline: &inlineFacts{Target: spec.Target, Owner: maps.Clone(spec.Owner)},
	}
	made, err := p.makeVolume(ctx, desired)
	if err != nil {
		return backend.EphemeralVolume{}, fmt.Errorf("create inline volume %s: %w", spec.Handle, classify(err))
	}
	return made.ephemeral(), nil
}

// EphemeralByHandle finds a complete inline volume; ErrNotFound. With any other
// error it returns the volume's identity alone if its storage failed, and nothing
// if the error may pass.
func (p *Pool) EphemeralByHandle(_ context.Context, handle string) (backend.EphemeralVolume, error) {
	identity := backend.EphemeralVolume{VolumeID: idOf(ephemeralPrefix, handle), Handle: handle}
	record, err := p.recordOnDisk(identity.VolumeID)
	if err == nil || errors.Is(err, backend.ErrNotFound) {
		p.inline.reads.note(identity.VolumeID, nil)
	}
	switch {
	case errors.Is(err, backend.ErrNotFound):
		p.inline.deletions.note(identity.VolumeID, nil)
		return backend.EphemeralVolume{}, err
	case err != nil && p.recordFailed(identity.VolumeID, err):
		return identity, err
	case err != nil:
		return backend.EphemeralVolume{}, err
	}
	if record.Inline == nil || record.Name != handle {
		return identity, fmt.Errorf("%w: the record of %s is not of inline volume %s",
			backend.ErrDataLoss, record.ID, handle)
	}
	if err := p.inline.deletions.final(record.ID); err != nil {
		return identity, fmt.Errorf("inline volume %s could not be deleted: %w", handle, err)
	}
	return record.ephemeral(), nil
}

// DeleteEphemeral removes an inline volume, half-made ones included. A missing one is
// not an error. ErrInUse when its device is attached. If its storage fails that
// repeatedly, EphemeralByHandle reports that the storage failed.
func (p *Pool) DeleteEphemeral(ctx context.Context, handle string) error {
	id := idOf(ephemeralPrefix, handle)
	err := p.deleteVolume(ctx, id)
	if errors.Is(err, backend.ErrNotFound) {
		err = nil
	}
	p.noteDeletion(id, err)
	if err == nil {
		return nil
	}
	return fmt.Errorf("delete inline volume %s: %w", handle, classify(err))
}

// Ephemerals lists the complete inline volumes.
func (p *Pool) Ephemerals(ctx context.Context) ([]backend.EphemeralVolume, error) {
	if err := p.resolveForListing(ctx); err != nil {
		return nil, err
	}
	names, err := p.list(volumesDir)
	if err != nil {
		return nil, classify(err)
	}
	var found []backend.EphemeralVolume
	for _, id := range names {
		if !isID(ephemeralPrefix, id) {
			continue
		}
		record, err := readRecord[volumeRecord](p.root, volumePath(id), volumeFile)
		if errors.Is(err, fs.ErrNotExist) || (err == nil && record.State != ready) {
			continue
		}
		if err != nil {
			p.log.Warn("the record of an inline volume cannot be used", "id", id, "error", err)
			continue
		}
		if record.Inline != nil && strings.HasPrefix(record.Name, "csi-") {
			found = append(found, record.ephemeral())
		}
	}
	return found, nil
}
