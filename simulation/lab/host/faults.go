package host

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// machineActions are faults of the machine, its processes and the driver.
func (w *world) machineActions() []lab.Action {
	actions := []lab.Action{
		{Name: "a container ends", Do: w.endContainer, Weight: 4},
		{Name: "crash the host", Do: w.tryCrash, Weight: 5},
		{Name: "the store fails", Do: w.failStore, Weight: 2},
		{Name: "the storage is full", Do: func() { w.storage.full = true }, Weight: 1},
		{Name: "the storage has room", Do: func() { w.storage.full = false }, Weight: 2},
		{Name: "a mount is busy", Do: w.occupy, Weight: 2},
		{Name: "no mount is busy", Do: func() { clear(w.machine.busy) }, Weight: 2},
		{Name: "the clock jumps", Do: func() { time.Sleep(lab.Pick(w.lab, time.Minute, time.Hour, 30*time.Hour)) }, Weight: 1},
	}
	if len(w.instances) < 2 {
		actions = append(actions, lab.Action{Name: "start a driver", Do: w.startDriver, Weight: 12 - 10*len(w.instances)})
	}
	if len(w.instances) > 0 {
		actions = append(actions, lab.Action{Name: "end a driver", Do: w.endDriver, Weight: 3})
	}
	return actions
}

func (w *world) endContainer() {
	if all := w.running(); len(all) > 0 {
		all[w.lab.Choose(len(all))].end(w.lab.Choose(2), 0)
	}
}

func (w *world) tryStart() {
	if err := w.startHost(); err != nil {
		w.broken = err
	}
}

func (w *world) tryCrash() {
	if err := w.crashHost(); err != nil {
		w.broken = err
	}
}

func (w *world) tryReboot() {
	if err := w.reboot(); err != nil {
		w.broken = err
	}
}

func (w *world) failStore() {
	w.storeError, w.storeFails = lab.Pick(w.lab, storeErrors()...), lab.Pick(w.lab, 1, 2, 3, 10)
}

func (w *world) occupy() {
	if len(w.machine.mounts) > 0 {
		w.machine.busy[w.machine.mounts[w.lab.Choose(len(w.machine.mounts))].path] = true
	}
}

// vacated is called before a volume is unmounted.
func (w *world) vacated(path string) {
	if !w.lab.Troubled() {
		delete(w.machine.busy, path)
	}
}

// startDriver starts an instance, at the socket of one that crashed if there is one.
func (w *world) startDriver() {
	for _, socket := range slices.Sorted(maps.Keys(w.sockets)) {
		if endpoint := w.sockets[socket]; w.instances[endpoint] == nil && w.lab.Choose(2) == 0 {
			w.startInstance(endpoint)
			return
		}
	}
	w.startInstance("")
}

func (w *world) endDriver() {
	endpoints := slices.Sorted(maps.Keys(w.instances))
	endpoint := endpoints[w.lab.Choose(len(endpoints))]
	if w.lab.Choose(2) == 0 {
		w.removeInstance(endpoint)
		return
	}
	w.crashInstance(endpoint)
}
