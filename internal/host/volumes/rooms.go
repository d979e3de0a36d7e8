package volumes

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Room is what a driver has promised, and what it has left.
type Room struct {
	// Volumes is the number of PersistentVolumes, Promised the sum of their sizes in bytes.
	Volumes  int
	Promised int64
	// Available is nil if the driver has not said yet, or does not say.
	Available *int64
}

// Rooms returns the room of the named drivers, and of those that have volumes. What drivers
// report is asked for in the background, like how full volumes are.
func (m *Manager) Rooms(names []string) (map[string]Room, error) {
	rooms := map[string]Room{}
	for name, available := range m.figures.rooms.current(m.roomQuestions(names)) {
		rooms[name] = Room{Available: available}
	}
	return rooms, m.view(func(tx *store.Tx) error {
		all, err := tx.Volumes().All()
		for _, pv := range all {
			if pv.Spec.CSI == nil {
				continue
			}
			room := rooms[pv.Spec.CSI.Driver]
			size := pv.Spec.Capacity[corev1.ResourceStorage]
			room.Volumes++
			room.Promised += size.Value()
			rooms[pv.Spec.CSI.Driver] = room
		}
		return err
	})
}

// roomQuestions ask each driver for the room for new volumes on this machine.
func (m *Manager) roomQuestions(names []string) []question[int64] {
	questions := make([]question[int64], 0, len(names))
	for _, name := range names {
		ask := func(ctx context.Context) (*int64, error) { return m.askRoom(ctx, name) }
		questions = append(questions, question[int64]{key: name, driver: name, ask: ask})
	}
	return questions
}

func (m *Manager) askRoom(ctx context.Context, name string) (*int64, error) {
	driver, err := m.options.Drivers.Driver(name)
	if err != nil {
		return nil, err
	}
	can, err := driver.Client.ControllerCapabilities(ctx)
	if err != nil || !can.Capacity {
		return nil, err
	}
	request := &csi.GetCapacityRequest{}
	if len(driver.Node.Topology) > 0 {
		request.AccessibleTopology = &csi.Topology{Segments: driver.Node.Topology}
	}
	answer, err := driver.Client.GetCapacity(ctx, request)
	if err != nil {
		return nil, err
	}
	available := answer.GetAvailableCapacity()
	return &available, nil
}
