package world

import (
	"slices"
	"strings"
)

// name is the device name that describes show.
func (a *attachment) name() string { return orElse(a.Shown, a.Device) }

func (w *World) volumeView(v *volume) Volume {
	view := Volume{
		VolumeID: v.ID, Size: v.Size, VolumeType: v.Type, State: v.State,
		AvailabilityZone: v.Zone, AvailabilityZoneID: w.zoneID(v.Zone), CreateTime: v.Created,
		Encrypted: v.Encrypted, IOPS: positive(v.IOPS), Throughput: positive(v.Throughput),
		SnapshotID: v.SnapshotID, SourceVolumeID: v.SourceID, KMSKeyID: v.KMSKey, OutpostARN: v.Outpost,
		MultiAttachEnabled: v.Multi, VolumeInitializationRate: positive(v.Rate),
		Tags: tagItems(v.Tags),
	}
	if v.SnapshotID != "" {
		view.FastRestored = &v.FastRestored
	}
	if v.Operator != "" {
		view.Operator = &OperatorItem{Managed: true, Principal: v.Operator}
	}
	for _, a := range v.Attachments {
		view.Attachments = append(view.Attachments, w.attachmentView(v, a))
	}
	return view
}

func (w *World) attachmentView(v *volume, a *attachment) VolumeAttachment {
	return VolumeAttachment{
		VolumeID: v.ID, InstanceID: a.InstanceID, Device: a.name(), State: a.State, AttachTime: a.Since,
		DeleteOnTermination: a.DeleteOnTermination, EBSCardIndex: w.card(a),
	}
}

// card is the index of the card, for instances with several.
func (w *World) card(a *attachment) *int32 {
	i := w.Instances[a.InstanceID]
	if i == nil || w.typeOf(i).cards() < 2 {
		return nil
	}
	index := a.Card
	return &index
}

func positive(n int32) *int32 {
	if n <= 0 {
		return nil
	}
	return &n
}

func tagItems(t tags) []TagItem {
	items := make([]TagItem, 0, len(t))
	for key, value := range t {
		items = append(items, TagItem{Key: key, Value: value})
	}
	slices.SortFunc(items, func(a, b TagItem) int { return strings.Compare(a.Key, b.Key) })
	return items
}

// paginate returns the part of a listing that is on the page, and the token of the next page.
func paginate[T any](p *page, all []*T, order func(*T) int64, matches func(*T) bool) (chosen []*T, next string) {
	last := p.after
	for _, one := range all {
		at := order(one)
		if at <= p.after || !matches(one) {
			continue
		}
		if !p.take(last) {
			break
		}
		chosen, last = append(chosen, one), at
	}
	return chosen, p.next
}
