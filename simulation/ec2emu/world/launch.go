package world

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// InstanceSpec describes an instance to start.
type InstanceSpec struct {
	// ID is given when empty.
	ID string `json:"id,omitempty"`
	// Type is m5.large and Zone the first one when empty.
	Type string `json:"type,omitempty"`
	Zone string `json:"zone,omitempty"`
	// Interfaces is how many network interfaces it has; 1 when 0.
	Interfaces int `json:"interfaces,omitempty"`
	// RootName is /dev/xvda when empty; RootSize is in GiB, 8 when 0.
	RootName string `json:"rootName,omitempty"`
	RootSize int32  `json:"rootSize,omitempty"`
	// Devices are further volumes that the image or the launch brings.
	Devices []BootDevice `json:"devices,omitempty"`
	// HiddenNames are device names that the image uses and that no describe shows.
	HiddenNames []string          `json:"hiddenNames,omitempty"`
	OutpostARN  string            `json:"outpostArn,omitempty"`
	PrivateDNS  string            `json:"privateDns,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
}

// BootDevice is a volume that an instance starts with.
type BootDevice struct {
	Name string `json:"name"`
	Size int32  `json:"size"` // GiB
	// Keep keeps the volume when the instance is terminated.
	Keep bool `json:"keep,omitempty"`
}

// RunInstance starts an instance and returns its ID.
func (w *World) RunInstance(spec InstanceSpec) (id string, err error) {
	w.begin()
	defer w.end(&err)
	i, err := w.planInstance(spec)
	if err != nil {
		return "", err
	}
	if w.devices != nil {
		if err := w.devices.AddInstance(i.ID); err != nil {
			return "", internal(err)
		}
	}
	w.Instances[i.ID] = i
	devices := slices.Concat([]BootDevice{{Name: i.RootName, Size: max(spec.RootSize, 8)}}, spec.Devices)
	for n, d := range devices {
		if err := w.bootVolume(i, d, n == 0); err != nil {
			return "", err
		}
	}
	i.Gen, _ = w.schedule(w.knobs.Times.Start, event{Kind: instanceMoves, ID: i.ID})
	return i.ID, nil
}

func (w *World) planInstance(spec InstanceSpec) (*instance, error) {
	if spec.ID == "" {
		spec.ID = w.newID("i-")
	}
	if refusal := checkInstanceID(spec.ID); refusal != nil {
		return nil, refusal
	}
	if w.Instances[spec.ID] != nil {
		return nil, fmt.Errorf("run instance %s: there is one of this ID", spec.ID)
	}
	spec.Zone = orElse(spec.Zone, w.zones[0].Name)
	if w.zone(spec.Zone) == nil {
		return nil, fmt.Errorf("run instance %s: unknown zone %q", spec.ID, spec.Zone)
	}
	n := w.order()
	ip := fmt.Sprintf("10.0.%d.%d", n/250%250, n%250+4)
	i := &instance{
		ID: spec.ID, Type: orElse(spec.Type, "m5.large"), State: pending, Zone: spec.Zone, Order: n, Launched: w.now(),
		RootName: orElse(spec.RootName, "/dev/xvda"), Outpost: spec.OutpostARN, Hidden: slices.Clone(spec.HiddenNames),
		PrivateIP: ip, PrivateDNS: spec.PrivateDNS, Tags: cloneTags(spec.Tags),
	}
	if i.PrivateDNS == "" {
		i.PrivateDNS = "ip-" + strings.ReplaceAll(ip, ".", "-") + "." + w.region + ".compute.internal"
	}
	for index := range max(spec.Interfaces, 1) {
		i.Interfaces = append(i.Interfaces, w.newInterface(index))
	}
	return i, nil
}

func (w *World) newInterface(index int) NetworkInterface {
	n := w.order()
	return NetworkInterface{
		NetworkInterfaceID: w.newID("eni-"),
		MACAddress:         fmt.Sprintf("0a:00:%02x:%02x:%02x:%02x", byte(n>>24), byte(n>>16), byte(n>>8), byte(n)),
		Attachment: InterfaceAttachment{AttachmentID: w.newID("eni-attach-"), DeviceIndex: int32(index),
			Status: attached},
	}
}

// bootVolume attaches a volume that the instance starts with.
func (w *World) bootVolume(i *instance, d BootDevice, root bool) error {
	if !deviceName.MatchString(d.Name) {
		return fmt.Errorf("run instance %s: %q is not a device name", i.ID, d.Name)
	}
	v := &volume{
		Type: "gp3", Size: max(d.Size, 1), IOPS: 3000, Throughput: 125, Zone: i.Zone, Outpost: i.Outpost,
		Encrypted: w.knobs.Encryption.ByDefault, Tags: tags{},
	}
	v, refusal := w.makeVolume(v, DataSource{})
	if refusal != nil {
		return refusal
	}
	v.State, v.Visible, v.TagsVisible, v.Doom = inUse, v.Created, v.Created, ""
	if root {
		v.BootOf = i.ID
	}
	a := &attachment{InstanceID: i.ID, State: attached, Device: d.Name, Since: w.now(), DeleteOnTermination: !d.Keep}
	v.Attachments = []*attachment{a}
	i.Volumes = append(i.Volumes, v.ID)
	i.AtBoot = append(i.AtBoot, d.Name)
	w.present(v, a)
	return nil
}

// SetInterfaces changes how many network interfaces the instance has, at least one.
func (w *World) SetInterfaces(id string, count int) (err error) {
	w.begin()
	defer w.end(&err)
	i := w.Instances[id]
	if i == nil {
		return instanceNotFound(id)
	}
	w.touchInstance(i)
	count = max(count, 1)
	for len(i.Interfaces) < count {
		i.Interfaces = append(i.Interfaces, w.newInterface(len(i.Interfaces)))
	}
	i.Interfaces = i.Interfaces[:count]
	return nil
}

// SetHiddenNames changes the device names that the image uses invisibly.
func (w *World) SetHiddenNames(id string, names []string) (err error) {
	w.begin()
	defer w.end(&err)
	i := w.Instances[id]
	if i == nil {
		return instanceNotFound(id)
	}
	w.dirty = true
	i.Hidden = slices.Clone(names)
	return nil
}

// InstanceInfo has the data of an instance for the metadata service.
type InstanceInfo struct {
	Instance
	// BootDevices are the keys of the block device mapping, as it was when the
	// instance last started: ami, root, ebs1, ebs2, …
	BootDevices map[string]string
}

// Info returns the current data of an instance, without the lag of describes.
func (w *World) Info(id string) (_ InstanceInfo, err error) {
	defer w.read(&err)()
	i := w.Instances[id]
	if i == nil {
		return InstanceInfo{}, instanceNotFound(id)
	}
	info := InstanceInfo{Instance: w.instanceView(i),
		BootDevices: map[string]string{"ami": i.RootName, "root": i.RootName}}
	n := 0
	for _, name := range i.AtBoot {
		if name == i.RootName {
			continue
		}
		n++
		info.BootDevices["ebs"+strconv.Itoa(n)] = strings.TrimPrefix(name, "/dev/")
	}
	return info, nil
}

// InstanceIDs lists the instances that are not terminated, oldest first.
func (w *World) InstanceIDs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	for _, i := range w.sortedInstances() {
		if i.State != terminated {
			ids = append(ids, i.ID)
		}
	}
	return ids
}
