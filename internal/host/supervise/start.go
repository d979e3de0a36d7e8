package supervise

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-csi/holdfast/internal/unixsocket"
)

// tokenVariable identifies a process whose ID was not recorded.
const tokenVariable = "HOLDFAST_UNIT_TOKEN"

// endpoint is where the instance of a slot serves. A unit has two slots, so that
// a new instance can serve next to the old one.
func (r *runner) endpoint(slot int) string {
	name := "csi.sock"
	if slot > 0 {
		name = "csi-" + strconv.Itoa(slot) + ".sock"
	}
	return filepath.Join(r.supervisor.options.Root, "plugins", r.name, name)
}

// start starts an instance. It writes the intent before it creates the process.
func (r *runner) start(ctx context.Context, unit *Unit, slot int) bool {
	one, err := r.launch(ctx, unit, slot)
	if err != nil {
		r.backOff(0)
		r.supervisor.options.Logger.Error("a driver is not started", "unit", r.name, "error", err, "retry", r.pause)
		r.say(StateWaiting, err)
		return false
	}
	r.supervisor.options.Logger.Info("driver started", "unit", r.name, "pid", one.PID)
	r.attend(ctx, one, unit.Register)
	return true
}

func (r *runner) launch(ctx context.Context, unit *Unit, slot int) (*instance, error) {
	endpoint := r.endpoint(slot)
	if err := os.MkdirAll(filepath.Dir(endpoint), 0o750); err != nil {
		return nil, fmt.Errorf("make the directory of the driver's socket: %w", err)
	}
	if err := chownTo(filepath.Dir(endpoint), unit.User); err != nil {
		return nil, fmt.Errorf("give the directory of the driver's socket to its user: %w", err)
	}
	// Few drivers bind to a path where an earlier process left its socket file.
	if err := unixsocket.RemoveStale(ctx, endpoint); err != nil {
		return nil, err
	}
	one := &instance{processRecord: processRecord{
		Slot: slot, Token: rand.Text(), Hash: hashOf(unit), BootID: r.supervisor.options.BootID, Started: time.Now(),
	}}
	command, err := r.command(unit, one, endpoint)
	if err != nil {
		return nil, err
	}
	log, err := r.supervisor.logs.open(r.name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	command.Stdout, command.Stderr = log, log
	if err := r.intend(unit, one); err != nil {
		return nil, err
	}
	if one.process, err = launch(command, unit.User); err != nil {
		r.drop(one)
		return nil, fmt.Errorf("start %s: %w", unit.Command[0], err)
	}
	one.PID, one.Start = one.process.PID(), one.process.Start()
	r.record.Processes[len(r.record.Processes)-1] = one.processRecord
	r.save() // if this fails, the token finds the process
	return one, nil
}

// intend writes the intent of a process that does not exist yet.
func (r *runner) intend(unit *Unit, one *instance) error {
	r.record.File, _ = r.desired()
	r.record.Unit = unit
	r.record.Processes = append(r.record.Processes, one.processRecord)
	err := r.supervisor.records.write(r.name, r.record)
	if err != nil {
		r.record.Processes = r.record.Processes[:len(r.record.Processes)-1]
		return fmt.Errorf("record the processes before their start: %w", err)
	}
	return nil
}

func (r *runner) drop(one *instance) {
	r.record.Processes = slices.DeleteFunc(r.record.Processes, func(p processRecord) bool { return p.Token == one.Token })
	r.save()
}

// command replaces the variables in the unit's texts. Of the host's own environment
// the driver gets PATH only.
func (r *runner) command(unit *Unit, one *instance, endpoint string) (*exec.Cmd, error) {
	options := r.supervisor.options
	values := map[string]string{
		"CSI_ENDPOINT": "unix://" + endpoint, "ROOT": options.Root, "NODE_NAME": options.NodeName,
		"REGISTRY": filepath.Join(options.Root, "plugins_registry"), "INSTANCE": strconv.Itoa(one.Slot),
	}
	value := func(name string) (string, bool) { text, known := values[name]; return text, known }
	var failed []error
	text := func(text string) string {
		text, err := replace(text, value)
		failed = append(failed, err)
		return text
	}
	var arguments []string
	for _, argument := range unit.Command {
		arguments = append(arguments, text(argument))
	}
	command := exec.Command(arguments[0], arguments[1:]...) //nolint:gosec,noctx // the file says so, and the driver outlives every context
	command.Dir = unit.WorkingDirectory
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "CSI_ENDPOINT=" + values["CSI_ENDPOINT"]}
	for _, name := range slices.Sorted(maps.Keys(unit.Environment)) {
		command.Env = append(command.Env, name+"="+text(unit.Environment[name]))
	}
	command.Env = append(command.Env, tokenVariable+"="+one.Token)
	return command, errors.Join(failed...)
}

// attend watches a running process.
func (r *runner) attend(ctx context.Context, one *instance, register bool) {
	r.instances = append(r.instances, one)
	if register {
		one.offer = r.supervisor.options.Registry.Offer(r.endpoint(one.Slot))
	}
	r.supervisor.running.Go(func() {
		if err := one.process.exited(ctx); err != nil {
			if ctx.Err() == nil {
				r.supervisor.options.Logger.Error("a driver is not watched", "unit", r.name, "pid", one.PID, "error", err)
			}
			return
		}
		one.how = one.process.reap()
		select {
		case r.ended <- one:
		case <-ctx.Done():
		}
	})
	r.say(StateRunning, nil)
}

// adopt takes over the processes that an earlier host started and that still run.
func (r *runner) adopt(ctx context.Context) {
	known := r.record.Processes
	r.record.Processes = nil
	for _, one := range known {
		if one.BootID != r.supervisor.options.BootID {
			continue
		}
		found, err := adopt(one)
		if err != nil {
			r.supervisor.options.Logger.Error("cannot find a driver's process", "unit", r.name, "pid", one.PID, "error", err)
			continue
		}
		if found == nil {
			continue
		}
		one.PID, one.Start = found.PID(), found.Start()
		r.record.Processes = append(r.record.Processes, one)
		r.supervisor.options.Logger.Info("driver taken over", "unit", r.name, "pid", one.PID)
		r.attend(ctx, &instance{processRecord: one, process: found}, r.record.Unit.Register)
	}
	if len(known) > 0 {
		r.save()
	}
}
