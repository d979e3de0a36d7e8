package nodeside

// xenDisks lists the disks of a Xen guest; none on other machines.
func (s sysfs) xenDisks() ([]disk, error) {
	names, err := s.names(xenDisk)
	if err != nil {
		return nil, err
	}
	var disks []disk
	for _, name := range names {
		d, err := s.xen(name)
		if err != nil {
			return nil, err
		}
		if d != nil {
			disks = append(disks, *d)
		}
	}
	return disks, nil
}

// xen reads one disk; nil when it is not there, or not a virtual disk of Xen
// (drivers/xen/xenbus/xenbus_probe.c: devtype, nodename).
func (s sysfs) xen(name string) (*disk, error) {
	kind, err := s.attribute(name, "device", "devtype")
	if err != nil || kind != "vbd" {
		return nil, err
	}
	node, err := s.attribute(name, "device", "nodename")
	if err != nil {
		return nil, err
	}
	at, isDisk := slotOfNode(node)
	number, err := s.number(name)
	if err != nil || number == 0 || !isDisk {
		return nil, err
	}
	return &disk{name: name, number: number, xen: true, slot: at}, nil
}

// hasModel reports whether there is an NVMe disk of the model.
func (s sysfs) hasModel(model string) (bool, error) {
	disks, err := s.nvmeDisks()
	for _, d := range disks {
		if d.model == model || model == AnyModel {
			return true, err
		}
	}
	return false, err
}
