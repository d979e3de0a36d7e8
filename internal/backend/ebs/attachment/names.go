package attachment

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/limits"
)

// aliasFree is how many names at the head of the list a guest without NVMe does
// not confuse with another: such a guest may call sdX what is attached as xvdX.
const aliasFree = 52

// deviceNames are the names that EC2 accepts for data volumes, in the order in
// which the AWS EBS CSI driver gives them (EBS user guide, "Device names for
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

// names records per instance which device names must not be used, beyond those
// that EC2 shows as used, and when others were freed.
type names struct {
	options Options
	list    []string

	mu    sync.Mutex
	nodes map[string]*node
	swept time.Time
}

// node is the record of one instance. It is removed when all its entries have expired.
type node struct {
	users int // guarded by names.mu

	mu sync.Mutex
	// described is the last description of the instance, which serves to choose a
	// name until describedUntil.
	described      cloud.Instance
	describedUntil time.Time

	reserved map[string]reservation
	freed    map[string]time.Time // when
	refused  map[string]time.Time // until when
}

// reservation keeps a name from other volumes: while AttachVolume runs, and after it
// until EC2 certainly shows the name as used or free.
type reservation struct {
	volume string
	card   int32
	until  time.Time // zero: AttachVolume runs
}

func newNames(o Options) *names {
	return &names{options: o, list: deviceNames(), nodes: map[string]*node{}}
}

// with calls work with the record of an instance.
func (n *names) with(instance string, work func(*node, time.Time)) {
	now := time.Now()
	n.mu.Lock()
	n.sweep(now)
	at := n.nodes[instance]
	if at == nil {
		at = &node{reserved: map[string]reservation{}, freed: map[string]time.Time{}, refused: map[string]time.Time{}}
		n.nodes[instance] = at
	}
	at.users++
	n.mu.Unlock()

	at.mu.Lock()
	work(at, now)
	at.mu.Unlock()

	n.mu.Lock()
	at.users--
	n.mu.Unlock()
}

// sweep removes expired entries of all instances; the caller holds n.mu.
func (n *names) sweep(now time.Time) {
	if now.Sub(n.swept) < n.options.Uncertain {
		return
	}
	n.swept = now
	for instance, at := range n.nodes {
		if at.users > 0 {
			continue
		}
		at.expire(now, n.options)
		if len(at.reserved)+len(at.freed)+len(at.refused) == 0 && !now.Before(at.describedUntil) {
			delete(n.nodes, instance)
		}
	}
}

func (at *node) expire(now time.Time, o Options) {
	for name, h := range at.reserved {
		if !h.until.IsZero() && !now.Before(h.until) {
			delete(at.reserved, name)
		}
	}
	for name, until := range at.refused {
		if !now.Before(until) {
			delete(at.refused, name)
		}
	}
	for name, when := range at.freed {
		if now.Sub(when) >= o.Refused {
			delete(at.freed, name)
		}
	}
}

// reserve chooses a name for a volume and reserves it: a name that EC2 does not show
// as used and this process has not reserved, and of these the one freed longest ago.
// A name that was just freed can leave an attachment attaching for ever.
func (n *names) reserve(instance cloud.Instance, volume string, cards int) (name string, card *int32, err error) {
	used := map[string]bool{}
	for _, d := range instance.Devices {
		used[d.Name] = true
	}
	list := n.list
	if limits.Xen(instance.Type) {
		list = list[:aliasFree]
	}
	n.with(instance.ID, func(at *node, now time.Time) {
		at.expire(now, n.options)
		for _, candidate := range list {
			_, reserved := at.reserved[candidate]
			_, refused := at.refused[candidate]
			if used[candidate] || reserved || refused {
				continue
			}
			if name == "" || at.freed[candidate].Before(at.freed[name]) {
				name = candidate
			}
		}
		if name == "" {
			err = fmt.Errorf("%w: instance %s: none of %d device names is free", backend.ErrNoSpace, instance.ID, len(list))
			return
		}
		card = at.leastOccupied(instance, cards)
		at.reserved[name] = reservation{volume: volume}
		if card != nil {
			at.reserved[name] = reservation{volume: volume, card: *card}
		}
	})
	return name, card, err
}

// leastOccupied is the EBS card with the fewest volumes; nil if there is only one.
func (at *node) leastOccupied(instance cloud.Instance, cards int) *int32 {
	if cards < 2 {
		return nil
	}
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
	for name, h := range at.reserved {
		if !shown[name] {
			occupy(h.card)
		}
	}
	card := int32(slices.Index(count, slices.Min(count)))
	return &card
}

// described is the last description of an instance, if it is recent. EC2 refuses
// what has become wrong since, so that a new description for each call is not needed.
func (n *names) described(instance string) (i cloud.Instance, ok bool) {
	n.with(instance, func(at *node, now time.Time) {
		i, ok = at.described, now.Before(at.describedUntil)
	})
	return i, ok
}

// describe caches a description for a while; one without ID removes the cached one.
func (n *names) describe(instance string, i cloud.Instance) {
	n.with(instance, func(at *node, now time.Time) {
		at.described, at.describedUntil = i, now.Add(n.options.Described)
		if i.ID == "" {
			at.describedUntil = time.Time{}
		}
	})
}

// extend keeps a name reserved that AttachVolume may have used, until EC2 must show
// whether it did.
func (n *names) extend(instance, name string) {
	n.with(instance, func(at *node, now time.Time) {
		if h, reserved := at.reserved[name]; reserved {
			h.until = now.Add(n.options.Uncertain)
			at.reserved[name] = h
		}
	})
}

// release frees a name that was certainly not used.
func (n *names) release(instance, name string) {
	n.with(instance, func(at *node, _ time.Time) { delete(at.reserved, name) })
}

// refuse keeps a name from being given for some time.
func (n *names) refuse(instance, name string) {
	n.with(instance, func(at *node, now time.Time) {
		delete(at.reserved, name)
		at.refused[name] = now.Add(n.options.Refused)
	})
}

// free records that a volume is detached, and its names with it.
func (n *names) free(instance, volume, name string) {
	n.with(instance, func(at *node, now time.Time) {
		for reserved, h := range at.reserved {
			if h.volume == volume && !h.until.IsZero() {
				delete(at.reserved, reserved)
				at.freed[reserved] = now
			}
		}
		if _, refused := at.refused[name]; !refused && name != "" {
			at.freed[name] = now
		}
		at.described.Devices = slices.DeleteFunc(slices.Clone(at.described.Devices), func(d cloud.InstanceDevice) bool { return d.VolumeID == volume })
	})
}
