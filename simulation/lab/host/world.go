package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing/synctest"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	product "github.com/holdfast-csi/holdfast/internal/host"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// Options of a world.
type Options struct {
	// Steps is how many steps have faults; DefaultSteps if 0.
	Steps int
	// Directory is where the host has its root; a filesystem in memory is fastest. It is
	// os.TempDir if empty.
	Directory string
	// Log receives the log of the hosts; nil for none.
	Log *bytes.Buffer
}

// DefaultSteps are the steps with faults of a world.
const DefaultSteps = 300

// world is one machine with its users.
type world struct {
	lab     *lab.Lab
	options Options
	machine *machine
	storage *storage
	// kernel takes the steps of the machine.
	kernel     *lab.Process
	containers map[string]*container
	// instances are the driver's processes that serve, by endpoint.
	instances   map[string]*instance
	sockets     map[string]string   // endpoints of the registration sockets that exist
	disconnects map[string][]func() // of the clients of an endpoint
	arrived     chan struct{}       // closed and replaced when an instance begins to serve
	made        int
	host        *hostProcess // nil while none runs
	lives       int
	// storeFails is how many of the next commits of the store fail, with storeError.
	storeFails int
	storeError error
	asked      int
	log        *bytes.Buffer
	// background are goroutines of users and of the machine.
	background sync.WaitGroup
	objects    *objects
	calls      map[string]int // when a controller's running call began, by controller and key
	tick       int
	violations []string
	broken     error
	ended      bool // users do nothing more
	// repairs: what users removed is to be made again.
	repairs bool
}

// instance is one process of the driver.
type instance struct {
	process  *lab.Process
	ctx      context.Context //nolint:containedctx // ends with the process
	cancel   context.CancelFunc
	socket   string
	endpoint string
}

// hostProcess is one process of the host.
type hostProcess struct {
	w       *world
	process *lab.Process
	ctx     context.Context //nolint:containedctx // ends with the process
	cancel  context.CancelFunc
	host    *product.Host
	ready   bool
	over    bool // it ended by itself
	ended   chan error
	changes chan socketChange
}

// World returns the world of the host door.
func World(options Options) lab.World {
	return func(l *lab.Lab) (err error) {
		if options.Steps == 0 {
			options.Steps = DefaultSteps
		}
		root, err := newRoot(options.Directory)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
		w := newWorld(l, options, root)
		defer w.stop()
		if err := w.live(); err != nil {
			// The directory is another one in each run, and the trace is to be the same.
			return errors.New(strings.ReplaceAll(err.Error(), root, "/root"))
		}
		return nil
	}
}

// newRoot makes a directory whose path has the same length in each run: what is allocated for
// it must not differ.
func newRoot(directory string) (string, error) {
	if directory == "" {
		directory = os.TempDir()
	}
	for number := os.Getpid(); ; number++ {
		root := filepath.Join(directory, fmt.Sprintf("simulated-host-%010d", number))
		if err := os.Mkdir(root, 0o700); !errors.Is(err, fs.ErrExist) {
			return root, err
		}
	}
}

func newWorld(l *lab.Lab, options Options, root string) *world {
	w := &world{
		lab: l, options: options, machine: newMachine(root), kernel: l.Process("machine"), containers: map[string]*container{},
		instances: map[string]*instance{}, sockets: map[string]string{}, disconnects: map[string][]func(){},
		arrived: make(chan struct{}), log: options.Log, calls: map[string]int{}, objects: newObjects(),
	}
	if w.log == nil {
		w.log = &bytes.Buffer{}
	}
	w.storage = newStorage(w)
	return w
}

// live is the whole life of the world.
func (w *world) live() error {
	w.startInstance("")
	if err := w.startHost(); err != nil {
		return err
	}
	synctest.Wait()
	w.prepare()
	plan := lab.Plan{Check: w.check, Actions: w.actions, FaultEvery: 4}
	if err := w.lab.Chaos(w.options.Steps, plan); err != nil {
		return err
	}
	plan.Actions = nil
	if err := w.calm(); err != nil {
		return err
	}
	if err := w.lab.Converge(plan, w.converged); err != nil {
		return fmt.Errorf("without faults: %w", err)
	}
	if err := w.restart(w.lab.OneIn(3)); err != nil {
		return err
	}
	if err := w.lab.Converge(plan, w.converged); err != nil {
		return fmt.Errorf("after a restart: %w", err)
	}
	w.ended = true
	w.deleteEverything()
	if err := w.lab.Converge(plan, w.empty); err != nil {
		return fmt.Errorf("after everything was deleted: %w", err)
	}
	return w.noSecrets()
}

// calm ends what is broken, and repairs what users removed.
func (w *world) calm() error {
	w.lab.Calm()
	w.storeFails, w.storage.full, w.machine.busy = 0, false, map[string]bool{}
	if w.host != nil && w.host.over {
		if err := w.crashHost(); err != nil {
			return err
		}
	}
	if w.host == nil {
		if err := w.startHost(); err != nil {
			return err
		}
	}
	for len(w.instances) > 1 {
		w.removeInstance(slices.Sorted(maps.Keys(w.instances))[0])
	}
	if len(w.instances) == 0 {
		w.startInstance("")
	}
	w.repairs = true
	return nil
}

// restart ends the host between two steps and starts the next one, perhaps after a reboot.
func (w *world) restart(reboot bool) error {
	if err := w.crashHost(); err != nil {
		return err
	}
	if reboot {
		if err := w.reboot(); err != nil {
			return err
		}
	}
	return w.startHost()
}

// startHost starts a process of the host.
func (w *world) startHost() error {
	w.lives++
	hp := &hostProcess{w: w, process: w.lab.Process("host"), ended: make(chan error, 1), changes: make(chan socketChange, 1000)}
	hp.ctx, hp.cancel = context.WithCancel(context.Background())
	w.host = hp
	var err error
	hp.host, err = product.Open(hp.ctx, product.Options{
		Root: w.machine.root, Logger: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Failpoints: failpoint.Deciding(hp.passes), Machine: product.Machine{
			BootID: w.machine.bootID(), Name: "here", Mounts: w.machine, Containers: w.container, Network: hp, Watch: hp.watch,
		},
	})
	if err != nil {
		hp.cancel()
		w.host = nil
		return fmt.Errorf("the host does not start: %w", err)
	}
	w.objects.follow(hp.host.Store())
	go func() {
		err := hp.host.Work(hp.ctx, func() { hp.ready = true })
		switch {
		case hp.process.Dead():
		case slices.ContainsFunc(storeErrors(), func(one error) bool { return errors.Is(err, one) }):
			hp.over = true // it could not begin; it is started again
		default:
			w.broken = fmt.Errorf("the host ended: %w", err)
		}
		hp.ended <- err
	}()
	return nil
}

// crashHost ends the host between two steps.
func (w *world) crashHost() error {
	hp := w.host
	w.host = nil
	hp.process.Crash()
	hp.cancel()
	<-hp.ended //nolint:errcheck // the error of a process that was killed
	w.objects.unfollow()
	w.calls = map[string]int{}
	return hp.host.Close()
}

// reboot ends everything that runs on the machine; no host runs.
func (w *world) reboot() error {
	for _, c := range w.running() {
		c.die()
	}
	for _, endpoint := range slices.Sorted(maps.Keys(w.instances)) {
		w.removeInstance(endpoint)
	}
	clear(w.sockets)
	err := w.machine.reboot()
	w.storage.reboot(w.lab.Choose(2) == 1)
	w.startInstance("")
	return err
}

// passes is called at each failpoint of the host. Those with a subject, and the changes of
// the store, are steps.
func (hp *hostProcess) passes(name, subject string) error {
	if hp.process.Dead() {
		return lab.ErrDead
	}
	switch name {
	case "store/commit":
		if hp.w.storeFails > 0 {
			hp.w.storeFails--
			return hp.w.storeError
		}
		return nil
	case "store/change", "reconcile/call":
		_, err := hp.process.Pass(hp.ctx, lab.Step{Kind: name, Object: subject})
		if err == nil && name == "reconcile/call" {
			hp.w.calls[subject] = hp.w.tick
		}
		return err
	}
	return nil
}

// stop ends everything.
func (w *world) stop() {
	w.ended = true
	if w.host != nil {
		_ = w.crashHost() // the run is over
	}
	for _, endpoint := range slices.Sorted(maps.Keys(w.instances)) {
		w.removeInstance(endpoint)
	}
	for _, c := range w.running() {
		c.die()
	}
	w.kernel.Crash()
	w.background.Wait()
}

// storeErrors are what a full or failed disk answers to the store.
func storeErrors() []error { return []error{syscall.ENOSPC, syscall.EIO, syscall.EROFS} }

// violated records that a rule was broken.
func (w *world) violated(format string, arguments ...any) {
	w.violations = append(w.violations, fmt.Sprintf(format, arguments...))
}

// check is called after each step.
func (w *world) check() error {
	w.tick++
	if w.broken != nil {
		return w.broken
	}
	if err := w.objects.read(w.tick); err != nil {
		return err
	}
	if len(w.violations) > 0 {
		return errors.New(w.violations[0])
	}
	return errors.Join(w.machine.lost(func(volume string) bool { return w.storage.of(volume).givenUp }), w.volumesOfContainers())
}

func (w *world) path(elements ...string) string {
	return filepath.Join(append([]string{w.machine.root}, elements...)...)
}
