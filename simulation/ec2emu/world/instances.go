package world

import (
	"cmp"
	"slices"
	"time"
)

func (w *World) touchInstance(i *instance) {
	w.dirty = true
	if w.knobs.Consistency.StaleOneIn > 0 {
		view := w.instanceView(i)
		i.before, i.changed = &view, w.now()
	}
}

func (w *World) findInstance(id string) (*instance, *Error) {
	if refusal := checkInstanceID(id); refusal != nil {
		return nil, refusal
	}
	if i := w.Instances[id]; i != nil {
		return i, nil
	}
	return nil, instanceNotFound(id)
}

// StopInstance stops an instance: its volumes stay attached, its devices are removed.
func (w *World) StopInstance(id string) error {
	return w.changeInstance(id, func(i *instance) *Error {
		if i.State != running {
			return incorrectInstance(i)
		}
		i.State = stopping
		i.Gen, _ = w.schedule(w.knobs.Times.Stop, event{Kind: instanceMoves, ID: i.ID})
		return nil
	})
}

// StartInstance starts a stopped instance.
func (w *World) StartInstance(id string) error {
	return w.changeInstance(id, func(i *instance) *Error {
		if i.State != stopped {
			return incorrectInstance(i)
		}
		i.State = pending
		w.boot(i)
		i.Gen, _ = w.schedule(w.knobs.Times.Start, event{Kind: instanceMoves, ID: i.ID})
		return nil
	})
}

// RebootInstance frees the names that forced detaches have blocked.
func (w *World) RebootInstance(id string) error {
	return w.changeInstance(id, func(i *instance) *Error {
		if i.State != running {
			return incorrectInstance(i)
		}
		w.boot(i)
		return nil
	})
}

// TerminateInstance terminates an instance. It deletes the volumes that belong to the
// instance; the others become available. Describes show the instance for a while.
func (w *World) TerminateInstance(id string) error {
	return w.changeInstance(id, func(i *instance) *Error {
		if i.State == shutting || i.State == terminated {
			return nil
		}
		i.State = shutting
		i.Gen, _ = w.schedule(w.knobs.Times.Terminate, event{Kind: instanceMoves, ID: i.ID})
		return nil
	})
}

func (w *World) changeInstance(id string, change func(*instance) *Error) (err error) {
	w.begin()
	defer w.end(&err)
	i, refusal := w.findInstance(id)
	if refusal != nil {
		return refusal
	}
	w.touchInstance(i)
	if refusal := change(i); refusal != nil {
		return refusal
	}
	return nil
}

func incorrectInstance(i *instance) *Error {
	return refuse("IncorrectInstanceState", "The instance '%s' is in the state '%s', in which this cannot be done.",
		i.ID, i.State)
}

// boot updates the device names, and the block device mapping of the metadata service, when
// an instance starts.
func (w *World) boot(i *instance) {
	i.Spoiled, i.Freed, i.AtBoot = nil, nil, nil
	for _, id := range i.Volumes {
		if v := w.Volumes[id]; v != nil {
			if a := v.at(i.ID); a != nil && a.State == attached {
				i.AtBoot = append(i.AtBoot, a.name())
			}
		}
	}
}

// moveInstance takes the next step of an instance's transition.
func (w *World) moveInstance(i *instance) {
	w.touchInstance(i)
	switch i.State {
	case pending:
		i.State = running
		w.eachAttached(i, func(v *volume, a *attachment) {
			if a.State == attached {
				w.present(v, a)
			}
		})
	case stopping:
		i.State = stopped
		w.halt(i)
	case shutting:
		w.terminate(i)
	case terminated:
		delete(w.Instances, i.ID)
	}
}

// halt ends the guest. It uses no device any more, so that every detachment under way
// ends, also a stuck one.
func (w *World) halt(i *instance) {
	w.eachAttached(i, func(v *volume, a *attachment) {
		w.withdraw(v, a)
		if a.State == detaching || a.State == busy {
			w.touchVolume(v)
			w.drop(v, a)
		}
	})
	i.Spoiled = nil
}

func (w *World) terminate(i *instance) {
	w.eachAttached(i, func(v *volume, a *attachment) {
		w.withdraw(v, a)
		w.touchVolume(v)
		w.drop(v, a)
		if a.DeleteOnTermination && len(v.Attachments) == 0 {
			w.deleteVolume(v)
		}
	})
	if w.devices != nil {
		w.deviceError("remove instance", i.ID, w.devices.RemoveInstance(i.ID))
	}
	i.State, i.Interfaces = terminated, nil
	forget := w.knobs.Times.Forget
	if forget == (Takes{}) {
		forget = Fixed(30 * time.Minute)
	}
	i.Gen, _ = w.schedule(forget, event{Kind: instanceMoves, ID: i.ID})
}

// withdraw removes a device from a guest that does not run.
func (w *World) withdraw(v *volume, a *attachment) {
	if w.devices == nil || !a.Presented {
		return
	}
	w.deviceError("detach", v.ID, w.devices.Detach(a.InstanceID, v.ID, true))
	a.Presented = false
}

func (w *World) eachAttached(i *instance, do func(*volume, *attachment)) {
	for _, id := range slices.Clone(i.Volumes) {
		if v := w.Volumes[id]; v != nil {
			if a := v.at(i.ID); a != nil {
				do(v, a)
			}
		}
	}
}

func stateCode(state string) int32 {
	return map[string]int32{pending: 0, running: 16, shutting: 32, terminated: 48, stopping: 64, stopped: 80}[state]
}

func (w *World) instanceView(i *instance) Instance {
	view := Instance{
		InstanceID: i.ID, InstanceType: i.Type, State: InstanceState{Code: stateCode(i.State), Name: i.State},
		Placement:      Placement{AvailabilityZone: i.Zone, AvailabilityZoneID: w.zoneID(i.Zone)},
		RootDeviceName: i.RootName, RootDeviceType: "ebs", Interfaces: slices.Clone(i.Interfaces), Hypervisor: "nitro",
		OutpostARN: i.Outpost, LaunchTime: i.Launched, PrivateDNSName: i.PrivateDNS, PrivateIPAddress: i.PrivateIP,
		ImageID: "ami-0123456789abcdef0", Tags: tagItems(i.Tags),
	}
	if w.typeOf(i).Xen {
		view.Hypervisor = "xen"
	}
	w.eachAttached(i, func(v *volume, a *attachment) {
		state := a.State
		if state == busy { // the mapping has no such state
			state = detaching
		}
		view.BlockDevices = append(view.BlockDevices, InstanceDevice{DeviceName: a.name(), EBS: InstanceEBSDevice{
			VolumeID: v.ID, Status: state, AttachTime: a.Since, DeleteOnTermination: a.DeleteOnTermination,
			EBSCardIndex: w.card(a), VolumeOwnerID: w.account,
		}})
	})
	return view
}

func (w *World) sortedInstances() []*instance {
	all := make([]*instance, 0, len(w.Instances))
	for _, i := range w.Instances {
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b *instance) int { return cmp.Compare(a.Order, b.Order) })
	return all
}

// instanceRow is an instance as one describe shows it.
type instanceRow struct {
	order int64
	tags  tags
	Instance
}

func (w *World) instanceRow(i *instance, stale bool) *instanceRow {
	if stale && i.before != nil && w.fresh(i.changed) {
		return &instanceRow{i.Order, i.Tags, *i.before}
	}
	return &instanceRow{i.Order, i.Tags, w.instanceView(i)}
}

func instanceFilters() filterTable[instanceRow] {
	one := func(value func(*instanceRow) string) func(*instanceRow) []string {
		return func(i *instanceRow) []string { return []string{value(i)} }
	}
	ofDevices := func(value func(InstanceDevice) string) func(*instanceRow) []string {
		return func(i *instanceRow) []string {
			values := make([]string, len(i.BlockDevices))
			for n, d := range i.BlockDevices {
				values[n] = value(d)
			}
			return values
		}
	}
	return filterTable[instanceRow]{
		"instance-id":                      one(func(i *instanceRow) string { return i.InstanceID }),
		"instance-state-name":              one(func(i *instanceRow) string { return i.State.Name }),
		"availability-zone":                one(func(i *instanceRow) string { return i.Placement.AvailabilityZone }),
		"availability-zone-id":             one(func(i *instanceRow) string { return i.Placement.AvailabilityZoneID }),
		"instance-type":                    one(func(i *instanceRow) string { return i.InstanceType }),
		"private-dns-name":                 one(func(i *instanceRow) string { return i.PrivateDNSName }),
		"private-ip-address":               one(func(i *instanceRow) string { return i.PrivateIPAddress }),
		"block-device-mapping.volume-id":   ofDevices(func(d InstanceDevice) string { return d.EBS.VolumeID }),
		"block-device-mapping.device-name": ofDevices(func(d InstanceDevice) string { return d.DeviceName }),
		"block-device-mapping.status":      ofDevices(func(d InstanceDevice) string { return d.EBS.Status }),
	}
}

// DescribeInstances lists instances, each in a separate reservation.
func (w *World) DescribeInstances(r *DescribeInstancesRequest) (_ *DescribeInstancesResponse, err error) {
	defer w.read(&err)()
	if refusal := pageWithIDs(r.InstanceIDs, r.Page, "instancesSet"); refusal != nil {
		return nil, refusal
	}
	matches, refusal := compileFilters(r.Filters, instanceFilters(), func(i *instanceRow) tags { return i.tags })
	if refusal != nil {
		return nil, refusal
	}
	p, refusal := w.openPage(r.Page, maxPage, []any{"instances", r.InstanceIDs, r.Filters})
	if refusal != nil {
		return nil, refusal
	}
	if refusal := w.checkInstances(r.InstanceIDs); refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	chosen, next := paginate(p, w.instanceRows(r.InstanceIDs, r.Filters), func(i *instanceRow) int64 { return i.order },
		matches)
	answer := &DescribeInstancesResponse{NextToken: next}
	for _, i := range chosen {
		answer.Reservations = append(answer.Reservations, Reservation{
			ReservationID: "r-" + i.InstanceID[2:], OwnerID: w.account, Instances: []Instance{i.Instance},
		})
	}
	return answer, nil
}

func (w *World) checkInstances(ids []string) *Error {
	var unknown []string
	for _, id := range ids {
		if refusal := checkInstanceID(id); refusal != nil {
			return refusal
		}
		if w.Instances[id] == nil {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) > 0 {
		return instanceNotFound(unknown...)
	}
	return nil
}

// instanceRows builds only what is asked for by ID: a view lists all devices.
func (w *World) instanceRows(ids []string, filters []Filter) []*instanceRow {
	stale := w.stale()
	exact, restricted := exactValues(filters, "instance-id")
	var rows []*instanceRow
	for _, i := range w.sortedInstances() {
		if (!restricted || exact[i.ID]) && selected(ids, i.ID) {
			rows = append(rows, w.instanceRow(i, stale))
		}
	}
	return rows
}
