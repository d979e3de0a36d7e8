package windows

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// bringOnline lets the volumes of the disk's partitions arrive.
func (m *Machine) bringOnline(d *disk) {
	if !d.online() || !d.present {
		return
	}
	for _, p := range d.table.partitions {
		if p.volume != nil || p.Style == win32.StyleGPT && p.Type == win32.PartitionReserved {
			continue
		}
		p.volume = &volume{name: d.volumeName(p), disk: d, partition: p, arrives: time.Now().Add(m.options.VolumeDelay)}
		if p.Style == win32.StyleMBR || p.Type == win32.PartitionBasicData && p.Attributes&win32.GPTNoDriveLetter == 0 {
			p.volume.letter = m.freeLetter()
		}
		if fs := p.volume.filesystem(); fs != nil {
			fs.volume = p.volume
		}
	}
}

// takeOffline removes the disk's volumes, even if files on them are open.
func (m *Machine) takeOffline(d *disk) {
	for _, p := range d.table.partitions {
		m.takeVolume(p)
	}
}

func (m *Machine) takeVolume(p *partition) {
	if p.volume == nil {
		return
	}
	if fs := p.volume.filesystem(); fs != nil {
		if fs.dirty {
			m.lose("volume %s: it went away with files that were not written to the disk", p.volume.name)
			fs.dirty = false
		}
		fs.dismount()
		fs.volume = nil
	}
	p.volume.gone = true
	p.volume = nil
}

// volumeName is the name that Windows gives to a partition's volume: that of the
// partition itself in a GPT, one made from the disk's signature in an MBR.
func (d *disk) volumeName(p *partition) string {
	id := p.ID
	if d.table.style == win32.StyleMBR {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %d", d.table.signature, p.Offset))
		id = win32.GUID(sum[:16])
	}
	return `\\?\Volume` + id.String() + `\`
}

func (m *Machine) freeLetter() byte {
	used := map[byte]bool{}
	for v := range m.allVolumes() {
		used[v.letter] = true
	}
	for letter := byte('D'); letter <= 'Z'; letter++ {
		if !used[letter] {
			return letter
		}
	}
	return 0
}
