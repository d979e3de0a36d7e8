package nodeside

// DiskOf returns the NVMe serial and model numbers of the disk that has a volume's serial,
// below sysRoot; "" if this machine has no such disk.
func DiskOf(sysRoot, volumeID string) (serial, model string, err error) {
	want, err := serialOf(volumeID)
	if err != nil {
		return "", "", err
	}
	disks, err := sysfs{sysRoot}.nvmeDisks()
	for _, d := range disks {
		if d.serial == want {
			return d.serial, d.model, nil
		}
	}
	return "", "", err
}
