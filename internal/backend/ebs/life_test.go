package ebs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// life makes one volume after the other and does with it what claims and pods
// lead to.
type life struct {
	*chaos
	number, turn int
	random       *rand.Rand
	name, id     string
	size         int64
}

const gibibyte = 1 << 30

func jitter(random *rand.Rand) time.Duration {
	return time.Duration(random.IntN(3000)) * time.Millisecond
}

func (l *life) live(ctx context.Context) {
	for l.turn = 0; l.left.Load() > 0; l.turn++ {
		l.name = fmt.Sprintf("pvc-%d-%d", l.number, l.turn)
		if !l.create(ctx) {
			return
		}
		for range 1 + l.random.IntN(6) {
			l.use(ctx)
		}
		l.end(ctx)
	}
}

// caller is a caller of this life, with a separate random source.
func (l *life) caller() caller {
	return caller{share: l.number, random: rand.New(rand.NewPCG(l.seed, l.random.Uint64()))}
}

func (l *life) request() guard.CreateRequest {
	parameters := map[string]string{"type": "gp3"}
	if l.number%8 == 0 {
		parameters["encrypted"] = "true"
	}
	return guard.CreateRequest{
		Name: l.name, Range: backend.SizeRange{Required: (20 + int64(l.turn%3)) * gibibyte},
		Parameters:   parameters,
		Capabilities: []backend.Capability{{Mode: backend.SingleNodeWriter, FSType: "ext4"}},
		Topology:     &backend.TopologyRequirement{Requisite: []backend.Topology{{"topology.kubernetes.io/zone": chaosZone}}},
	}
}

// create asks one controller, or two at once, which must agree.
func (l *life) create(ctx context.Context) bool {
	if l.prompt && l.number == 2 {
		return l.createByHand(ctx)
	}
	var ids [2]string
	var both sync.WaitGroup
	one, two := l.caller(), l.caller()
	two.share++
	both.Go(func() { ids[0] = l.createOnce(ctx, one) })
	if l.random.IntN(4) == 0 {
		both.Go(func() { ids[1] = l.createOnce(ctx, two) })
	}
	both.Wait()
	l.id = ids[0]
	if ids[1] != "" && ids[1] != ids[0] {
		l.Errorf("%s was created as %s and as %s", l.name, ids[0], ids[1])
	}
	l.size = (20 + int64(l.turn%3)) * gibibyte
	return l.id != ""
}

// createByHand makes a volume without a tag, as a person does for a
// PersistentVolume.
func (l *life) createByHand(ctx context.Context) bool {
	size := int32(20)
	made, err := l.emulator.World().CreateVolume(&world.CreateVolumeRequest{AvailabilityZone: chaosZone, VolumeType: "gp3", Size: &size})
	if err != nil {
		l.Error(err)
		return false
	}
	l.id, l.size = made.VolumeID, 20*gibibyte
	for l.emulator.World().Ended(world.CreateTransition, l.id).IsZero() && concurrency.Sleep(ctx, time.Second) == nil {
	}
	return true
}

func (l *life) createOnce(ctx context.Context, by caller) (id string) {
	request := l.request()
	_ = l.until(ctx, by, "create "+l.name, func(ctx context.Context, p *process) error {
		called := time.Now()
		volume, err := p.CreateVolume(ctx, request)
		if err == nil {
			id = volume.ID
			l.promptly(world.CreateTransition, id, called)
		}
		return err
	})
	return id
}

// use does one of the things that happen to a volume.
func (l *life) use(ctx context.Context) {
	node := l.nodes[l.random.IntN(len(l.nodes))]
	switch l.random.IntN(6) {
	case 0:
		l.grow(ctx)
	case 1:
		l.snapshot(ctx)
	case 2:
		l.changeOfMind(ctx, node)
	default:
		l.visit(ctx, node)
	}
}

func (l *life) attach(node string) func(context.Context, *process) error {
	return func(ctx context.Context, p *process) error {
		called := time.Now()
		published, err := p.Attach(ctx, l.id, node, backend.AttachSpec{Capability: l.request().Capabilities[0]})
		if err == nil && published["devicePath"] == "" {
			return errors.New("attached without a device path")
		}
		if err == nil {
			l.promptly(world.AttachTransition, l.id, called)
		}
		return err
	}
}

func (l *life) detach(node string) func(context.Context, *process) error {
	return func(ctx context.Context, p *process) error {
		called := time.Now()
		err := p.Detach(ctx, l.id, node)
		if err == nil {
			l.promptly(world.DetachTransition, l.id, called)
		}
		return err
	}
}

// visit attaches the volume to a node, perhaps repeats it, and takes it away.
func (l *life) visit(ctx context.Context, node string) {
	if l.until(ctx, l.caller(), "attach "+l.id+" to "+node, l.attach(node)) != nil {
		return
	}
	l.wantAt(node)
	if l.prompt {
		l.wantListed(ctx, node)
	}
	if l.random.IntN(3) == 0 {
		l.grow(ctx)
	}
	if l.until(ctx, l.caller(), "detach "+l.id+" from "+node, l.detach(node)) == nil {
		l.wantAt()
	}
}

// changeOfMind publishes and, while that runs, unpublishes: the later wins.
func (l *life) changeOfMind(ctx context.Context, node string) {
	var first sync.WaitGroup
	other := l.caller()
	first.Go(func() { _ = l.once(ctx, other, l.attach(node)) })
	_ = concurrency.Sleep(ctx, jitter(l.random))
	_ = l.once(ctx, l.caller(), l.detach(node))
	first.Wait()
	if l.until(ctx, l.caller(), "detach "+l.id+" from "+node, l.detach(node)) == nil {
		l.wantAt()
	}
}

// grow expands, and modifies at the same time.
func (l *life) grow(ctx context.Context) {
	size := l.size + gibibyte
	var modified sync.WaitGroup
	if l.random.IntN(2) == 0 {
		other := l.caller()
		iops := fmt.Sprint(3000 + 100*l.random.IntN(10))
		modified.Go(func() {
			_ = l.until(ctx, other, "modify "+l.id, func(ctx context.Context, p *process) error {
				return p.Modify(ctx, l.id, map[string]string{"iops": iops}, nil)
			})
		})
	}
	_ = l.until(ctx, l.caller(), "expand "+l.id, func(ctx context.Context, p *process) error {
		called := time.Now()
		grown, err := p.Expand(ctx, l.id, backend.SizeRange{Required: size})
		if err == nil && grown.Size < size {
			l.Errorf("%s was grown to %d, not %d", l.id, grown.Size, size)
		}
		if err == nil {
			l.promptly(world.ModifyTransition, l.id, called)
		}
		return err
	})
	modified.Wait()
	l.size = size
}

// snapshot makes a snapshot and takes it away, or the one before.
func (l *life) snapshot(ctx context.Context) {
	spec := backend.SnapshotSpec{Name: l.name + "-snapshot", SourceID: l.id}
	var id string
	err := l.until(ctx, l.caller(), "snapshot of "+l.id, func(ctx context.Context, p *process) error {
		snapshot, err := p.CreateSnapshot(ctx, spec)
		if err == nil && id != "" && snapshot.ID != id {
			l.Errorf("snapshot %s was %s before and is %s now", spec.Name, id, snapshot.ID)
		}
		id = snapshot.ID
		return err
	})
	if err != nil {
		return
	}
	_ = l.until(ctx, l.caller(), "delete snapshot "+id, func(ctx context.Context, p *process) error { return p.DeleteSnapshot(ctx, id) })
}

// end takes the volume away from everywhere and deletes it.
func (l *life) end(ctx context.Context) {
	if l.until(ctx, l.caller(), "detach "+l.id+" from everywhere", l.detach("")) != nil {
		return
	}
	_ = l.until(ctx, l.caller(), "delete "+l.id, func(ctx context.Context, p *process) error { return p.DeleteVolume(ctx, l.id) })
}

// wantListed checks that the controller that attached the volume lists it at the node,
// because an orchestrator would otherwise attach it again.
func (l *life) wantListed(ctx context.Context, node string) {
	volumes, _, err := l.of(l.number).Volumes(ctx, "", 0)
	if err != nil {
		l.Error(err)
	}
	if !slices.ContainsFunc(volumes, func(v backend.Volume) bool { return v.ID == l.id && slices.Equal(v.PublishedNodes, []string{node}) }) {
		l.Errorf("%s is attached to %s and not listed there", l.id, node)
	}
}

// wantAt inspects the machines themselves, which do not lag.
func (l *life) wantAt(nodes ...string) {
	var found []string
	for _, id := range l.emulator.World().InstanceIDs() {
		info, err := l.emulator.World().Info(id)
		if err != nil {
			l.Error(err)
			continue
		}
		if slices.ContainsFunc(info.BlockDevices, func(d world.InstanceDevice) bool { return d.EBS.VolumeID == l.id }) {
			found = append(found, id)
		}
	}
	if !slices.Equal(found, nodes) {
		l.Errorf("%s is at %v; the answers say %v", l.id, found, nodes)
	}
}
