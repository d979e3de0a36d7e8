package attachment

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/limits"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// aliasFree is the number of names at the head of the list that an instance without NVMe
// can use. Its guest may show the names sdX and xvdX as the same device.
const aliasFree = 52

// deviceNames are the names that EC2 accepts for data volumes, in the order in
// which the AWS EBS CSI driver uses them (EBS user guide, "Device names for
// volumes"; the names after /dev/xvdcz are accepted without being documented).
func deviceNames() []string {
	var list []string
	add := func(prefix string, from, to byte) {
		for c := from; c <= to; c++ {
			list = append(list, prefix+string(c))
		}
	}
	add("/dev/xvda", 'a', 'z')
	add("/dev/xvdb", 'a', 'z')
	add("/dev/xvdd", 'a', 'x')
	add("/dev/xvd", 'b', 'z')
	add("/dev/sd", 'b', 'z')
	return append(list, "/dev/sda2")
}

// names records which device names of instances must not be used, beyond those that
// EC2 shows as used, and when others were freed.
type names struct {
	options Options
	list    []string
	// described are the last descriptions of instances, which serve to choose a name.
	// EC2 refuses what has become wrong since, so that a new description for each call
	// is not needed.
	described concurrency.Expiring[string, cloud.Instance]

	mu       sync.Mutex // guards changes of several entries
	reserved concurrency.Expiring[deviceName, reservation]
	freed    concurrency.Expiring[deviceName, time.Time] // when
	refused  concurrency.Expiring[deviceName, bool]
}

// deviceName is a device name of an instance.
type deviceName struct{ instance, name string }

// reservation keeps a name from other volumes: while AttachVolume runs, and after it
// until EC2 certainly shows the name as used or free.
type reservation struct {
	volume   string
	card     int32
	answered bool // AttachVolume does not run any more
}

// untilAnswered is the lifetime of a reservation while AttachVolume runs.
const untilAnswered = time.Duration(math.MaxInt64)

func newNames(o Options) *names { return &names{options: o, list: deviceNames()} }

// reserve chooses a name for a volume and reserves it: a name that EC2 does not show
// as used and this process has not reserved, and of these the one freed longest ago.
// An attachment under a name that was just freed can stay attaching for ever.
func (n *names) reserve(instance cloud.Instance, volume string, cards int) (name string, card *int32, err error) {
	used := map[string]bool{}
	for _, d := range instance.Devices {
		used[d.Name] = true
	}
	list := n.list
	if limits.Xen(instance.Type) {
		list = list[:aliasFree]
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var oldest time.Time
	for _, candidate := range list {
		key := deviceName{instance.ID, candidate}
		_, reserved := n.reserved.Get(key)
		if _, refused := n.refused.Get(key); used[candidate] || reserved || refused {
			continue
		}
		if freed, _ := n.freed.Get(key); name == "" || freed.Before(oldest) {
			name, oldest = candidate, freed
		}
	}
	if name == "" {
		return "", nil, fmt.Errorf("%w: instance %s: none of %d device names is free",
			backend.ErrNoSpace, instance.ID, len(list))
	}
	r := reservation{volume: volume}
	if cards > 1 {
		r.card = n.leastOccupied(instance, cards)
		card = &r.card
	}
	n.reserved.Set(deviceName{instance.ID, name}, r, untilAnswered)
	return name, card, nil
}

// leastOccupied is the EBS card with the fewest volumes.
func (n *names) leastOccupied(instance cloud.Instance, cards int) int32 {
	count := make([]int, cards)
	occupy := func(card int32) {
		if card >= 0 && int(card) < cards {
			count[card]++
		}
	}
	shown := map[string]bool{}
	for _, d := range instance.Devices {
		shown[d.Name] = true
		occupy(d.Card)
	}
	for _, name := range n.list {
		if r, ok := n.reserved.Get(deviceName{instance.ID, name}); ok && !shown[name] {
			occupy(r.card)
		}
	}
	return int32(slices.Index(count, slices.Min(count)))
}

// extend keeps a name reserved that AttachVolume may have used, until EC2 must show
// whether it did.
func (n *names) extend(instance, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := deviceName{instance, name}
	if r, reserved := n.reserved.Get(key); reserved {
		r.answered = true
		n.reserved.Set(key, r, n.options.Uncertain)
	}
}

// release frees a name that was certainly not used.
func (n *names) release(instance, name string) { n.reserved.Delete(deviceName{instance, name}) }

// refuse excludes a name for some time.
func (n *names) refuse(instance, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.release(instance, name)
	n.refused.Set(deviceName{instance, name}, true, n.options.Refused)
}

// free records that a volume is detached, and its names with it.
func (n *names) free(instance, volume, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range n.list {
		if r, reserved := n.reserved.Get(deviceName{instance, other}); reserved && r.volume == volume && r.answered {
			n.release(instance, other)
			n.freed.Set(deviceName{instance, other}, time.Now(), n.options.Refused)
		}
	}
	if _, refused := n.refused.Get(deviceName{instance, name}); !refused && name != "" {
		n.freed.Set(deviceName{instance, name}, time.Now(), n.options.Refused)
	}
	n.described.Adjust(instance, func(i cloud.Instance) cloud.Instance {
		i.Devices = slices.DeleteFunc(slices.Clone(i.Devices),
			func(d cloud.InstanceDevice) bool { return d.VolumeID == volume })
		return i
	})
}
