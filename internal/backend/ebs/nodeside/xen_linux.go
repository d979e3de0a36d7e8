package nodeside

// xenDisks lists the disks of a Xen guest; none on other machines.
func (s sysfs) xenDisks() ([]disk, error) { return s.disks(xenDisk, s.xen) }

// xen reads a disk; nil if it does not exist or is not a virtual disk of Xen
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

// hasModel reports whether the machine has an NVMe disk of the model.
func (s sysfs) hasModel(model string) (bool, error) {
	disks, err := s.nvmeDisks()
	for _, d := range disks {
		if d.model == model || model == AnyModel {
			return true, err
		}
	}
	return false, err
}
