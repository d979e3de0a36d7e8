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

// names knows per instance which device names must not be given, beyond those
// that EC2 shows as used, and which were freed when.
type names struct {
	options Options
	list    []string

	mu    sync.Mutex
	nodes map[string]*node
	swept time.Time
}

// node is one instance's part. It is forgotten when nothing in it matters any more.
type node struct {
	users int // guarded by names.mu

	mu sync.Mutex
	// described is the instance as it was a moment ago, until when that is good
	// enough to choose a name.
	described      cloud.Instance
	describedUntil time.Time

	held    map[string]hold
	freed   map[string]time.Time // when
	refused map[string]time.Time // until when
}

// hold keeps a name from being given: while AttachVolume runs, and after it until
// EC2 certainly shows the name as used or free.
type hold struct {
	volume string
	card   int32
	until  time.Time // zero: AttachVolume runs
}

func newNames(o Options) *names {
	return &names{options: o, list: deviceNames(), nodes: map[string]*node{}}
}

// with works on an instance's part.
func (n *names) with(instance string, work func(*node, time.Time)) {
	now := time.Now()
	n.mu.Lock()
	n.sweep(now)
	at := n.nodes[instance]
	if at == nil {
		at = &node{held: map[string]hold{}, freed: map[string]time.Time{}, refused: map[string]time.Time{}}
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

// sweep forgets what is out of date, everywhere; n.mu is held.
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
		if len(at.held)+len(at.freed)+len(at.refused) == 0 && !now.Before(at.describedUntil) {
			delete(n.nodes, instance)
		}
	}
}

func (at *node) expire(now time.Time, o Options) {
	for name, h := range at.held {
		if !h.until.IsZero() && !now.Before(h.until) {
			delete(at.held, name)
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

// take chooses a name for a volume and holds it: one that neither EC2 shows as
// used nor this process holds, and of these the one that was freed longest ago,
// since a name that was just freed can leave an attachment without end.
func (n *names) take(instance cloud.Instance, volume string, cards int) (name string, card *int32, err error) {
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
			_, held := at.held[candidate]
			_, refused := at.refused[candidate]
			if used[candidate] || held || refused {
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
		at.held[name] = hold{volume: volume}
		if card != nil {
			at.held[name] = hold{volume: volume, card: *card}
		}
	})
	return name, card, err
}

// leastOccupied is the EBS card with the fewest volumes; nil where there is only one.
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
	for name, h := range at.held {
		if !shown[name] {
			occupy(h.card)
		}
	}
	card := int32(slices.Index(count, slices.Min(count)))
	return &card
}

// described is an instance as it was described a moment ago, if it was. EC2
// refuses what became wrong since, and so does not have to be asked each time.
func (n *names) described(instance string) (i cloud.Instance, ok bool) {
	n.with(instance, func(at *node, now time.Time) {
		i, ok = at.described, now.Before(at.describedUntil)
	})
	return i, ok
}

// describe keeps a description for a while; one without ID ends the one there was.
func (n *names) describe(instance string, i cloud.Instance) {
	n.with(instance, func(at *node, now time.Time) {
		at.described, at.describedUntil = i, now.Add(n.options.Described)
		if i.ID == "" {
			at.describedUntil = time.Time{}
		}
	})
}

// keep holds a name that AttachVolume may have used until it is certain that
// EC2 shows it if so.
func (n *names) keep(instance, name string) {
	n.with(instance, func(at *node, now time.Time) {
		if h, held := at.held[name]; held {
			h.until = now.Add(n.options.Uncertain)
			at.held[name] = h
		}
	})
}

// drop gives back a name that was certainly not used.
func (n *names) drop(instance, name string) {
	n.with(instance, func(at *node, _ time.Time) { delete(at.held, name) })
}

// refuse keeps a name from being given for some time.
func (n *names) refuse(instance, name string) {
	n.with(instance, func(at *node, now time.Time) {
		delete(at.held, name)
		at.refused[name] = now.Add(n.options.Refused)
	})
}

// free notes that a volume's detachment is over, and with it the use of its names.
func (n *names) free(instance, volume, name string) {
	n.with(instance, func(at *node, now time.Time) {
		for held, h := range at.held {
			if h.volume == volume && !h.until.IsZero() {
				delete(at.held, held)
				at.freed[held] = now
			}
		}
		if _, refused := at.refused[name]; !refused && name != "" {
			at.freed[name] = now
		}
		at.described.Devices = slices.DeleteFunc(slices.Clone(at.described.Devices), func(d cloud.InstanceDevice) bool { return d.VolumeID == volume })
	})
}
