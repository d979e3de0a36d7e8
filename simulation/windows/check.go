package windows

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// Check returns an error if the machine's state contradicts itself. A test that runs anything
// on it calls this at the end. No call of a process can make it fail; if it
// fails, the simulation is wrong.
func (m *Machine) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	c := &checker{m: m, numbers: map[uint32]bool{}, names: map[string]bool{}, mounted: map[*node]struct{}{},
		held: m.openHandles()}
	for _, d := range m.disks {
		c.disk(d)
	}
	if len(c.mounted) > len(m.mounted) {
		c.wrong("%d mounted folders are known of %d", len(m.mounted), len(c.mounted))
	}
	c.handles()
	c.network()
	return errors.Join(c.problems...)
}

type counts struct{ open, pins int }

type checker struct {
	m        *Machine
	numbers  map[uint32]bool
	names    map[string]bool
	mounted  map[*node]struct{}
	held     map[*node]counts
	problems []error
}

func (c *checker) wrong(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf("simulated: "+format, args...))
}

// openHandles counts the handles that are open at each node and below it.
func (m *Machine) openHandles() map[*node]counts {
	held := map[*node]counts{}
	count := func(n *node, generation int, shareDelete bool) {
		if generation != n.fs.generation {
			return
		}
		if !shareDelete {
			at := held[n]
			at.pins++
			held[n] = at
		}
		for ; n != nil; n = n.parent {
			at := held[n]
			at.open++
			held[n] = at
		}
	}
	for cl := range m.clients {
		for h := range cl.handles {
			if d, ok := h.(*directory); ok {
				count(d.node, d.generation, false)
			}
		}
	}
	for f := range m.files {
		count(f.node, f.generation, f.shareDelete)
	}
	return held
}

func (c *checker) disk(d *disk) {
	if c.numbers[d.number] {
		c.wrong("two disks have the number %d", d.number)
	}
	c.numbers[d.number] = true
	if err := d.checkEntries(d.table.partitions); err != nil {
		c.wrong("disk %d: its partitions overlap or leave the disk", d.number)
	}
	if d.known > d.size || d.table.end > d.size {
		c.wrong("disk %d: Windows knows %d bytes of %d", d.number, d.known, d.size)
	}
	for _, p := range d.table.partitions {
		v := p.volume
		if v == nil {
			continue
		}
		if !d.online() || !d.present || v.gone || v.disk != d || v.partition != p {
			c.wrong("volume %s is on no disk that is online", v.name)
		}
		if c.names[v.name] {
			c.wrong("two volumes are %s", v.name)
		}
		c.names[v.name] = true
		c.volume(v)
	}
}

func (c *checker) volume(v *volume) {
	fs := v.filesystem()
	if fs == nil {
		return
	}
	if total, free := fs.space(); free < 0 || free > total || fs.sectors*fs.sector > v.partition.Length {
		c.wrong("volume %s: %d bytes are free of %d in %d", v.name, free, total, v.partition.Length)
	}
	if fs.volume != v || fs.root.parent != nil || fs.root.reparse != nil {
		c.wrong("volume %s: its filesystem is another's", v.name)
	}
	c.tree(fs, fs.root)
}

func (c *checker) tree(fs *filesystem, n *node) {
	if held := c.held[n]; held.open != n.open || held.pins != n.pins {
		c.wrong("%q: %d handles are open, %d pin it; counted are %d and %d", n.name, held.open, held.pins, n.open, n.pins)
	}
	if n.reparse != nil {
		if len(n.children) > 0 {
			c.wrong("the reparse point %q has children", n.name)
		}
		if n.target().IsVolume() {
			c.mounted[n] = struct{}{}
			if _, known := c.m.mounted[n]; !known {
				c.wrong("the mounted folder %q is not known", n.name)
			}
		}
	}
	for key, child := range n.children {
		if child.parent != n || child.fs != fs || key != fold(child.name) && key != child.short {
			c.wrong("%q is in %q by the name %q", child.name, n.name, key)
		}
		if key == fold(child.name) {
			c.tree(fs, child)
		}
	}
}

// handles: who has a volume locked has it open.
func (c *checker) handles() {
	for v := range c.m.allVolumes() {
		for d := range v.devices {
			if _, open := d.c.handles[d]; !open || d.access == win32.Query {
				c.wrong("volume %s counts a handle that is closed", v.name)
			}
		}
		if v.lock == nil {
			continue
		}
		if _, open := v.devices[v.lock]; !open {
			c.wrong("volume %s is locked by a handle that is closed", v.name)
		}
	}
}

// network: one user per server, sessions and their disks agree.
func (c *checker) network() {
	users := map[string]string{}
	for _, mapped := range c.m.mappings {
		server, user := strings.ToLower(mapped.server), strings.ToLower(mapped.user)
		if other, ok := users[server]; ok && other != user {
			c.wrong("server %s is used by %s and %s", server, other, user)
		}
		users[server] = user
	}
	for _, d := range c.m.disks {
		if d.session != nil && !slices.Contains(c.m.iscsi.sessions, d.session) {
			c.wrong("disk %d is of a session that has ended", d.number)
		}
	}
	for _, s := range c.m.services {
		if s.state < serviceStopped || s.state > serviceRunning {
			c.wrong("service %s is in state %d", s.Name, s.state)
		}
	}
}
