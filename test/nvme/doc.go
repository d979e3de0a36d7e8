// Package nvme tests the node half of the EBS backend on NVMe disks, in a
// virtual machine: `make test-nvme`. The tests are behind the build tag nvme,
// since they need the machine that test/nvme/run boots: they plug and unplug its
// disks through the emulator's monitor.
package nvme
