package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// driversWord is an argument of get and describe next to the kinds: the drivers'
// processes are not objects.
const driversWord = "drivers"

// ofDrivers reports whether drivers are requested, and returns their names.
func ofDrivers(given []string) (names []string, ok bool) {
	if len(given) == 0 {
		return nil, false
	}
	if first, name, slash := strings.Cut(given[0], "/"); slash && isDrivers(first) {
		return append([]string{name}, given[1:]...), true
	}
	return given[1:], isDrivers(given[0])
}

func isDrivers(word string) bool { return word == driversWord || word == "driver" }

// readDrivers reads the drivers of the host, those with the names if there are any.
func readDrivers(ctx context.Context, client *api.Client, names []string) ([]api.Driver, error) {
	drivers, err := client.Drivers(ctx)
	if err != nil || len(names) == 0 {
		return drivers, err
	}
	return chooseDrivers(drivers, names)
}

func chooseDrivers(drivers []api.Driver, names []string) ([]api.Driver, error) {
	var chosen []api.Driver
	for _, name := range names {
		at := slices.IndexFunc(drivers, func(driver api.Driver) bool { return name != "" && shownName(driver) == name })
		if at < 0 {
			return nil, fmt.Errorf("no driver %q is known to this host: it has no socket in ROOT/plugins_registry and no unit in ROOT/drivers.d", name)
		}
		chosen = append(chosen, drivers[at])
	}
	return chosen, nil
}

func (c *getConfig) drivers(command *cobra.Command, names []string) error {
	if c.watch || c.selector != "" || c.sortBy != "" || !slices.Contains([]string{outputTable, outputWide, outputYAML, outputJSON}, c.output) {
		return usageErrorf("drivers are not objects: -w, -l, --sort-by and -o name, jsonpath, go-template and custom-columns cannot be used with them")
	}
	client := c.dial()
	defer client.Close()
	drivers, err := readDrivers(command.Context(), client, names)
	if err != nil {
		return err
	}
	out := command.OutOrStdout()
	switch c.output {
	case outputJSON:
		return writeJSON(command, drivers)
	case outputYAML:
		data, err := yaml.Marshal(drivers)
		if err == nil {
			_, err = out.Write(data)
		}
		return err
	}
	var rows [][]string
	if !c.noHeaders {
		rows = append(rows, driverHeaders(c.output == outputWide))
	}
	colours := painterOf(out)
	paints := make([]paint, 0, len(rows))
	for range rows {
		paints = append(paints, colours.headings)
	}
	for _, driver := range drivers {
		added := driverRows(driver, c.output == outputWide, time.Now())
		rows = append(rows, added...)
		for range added {
			paints = append(paints, colours.drivers)
		}
	}
	return alignedPainted(out, "", rows, func(row int) paint { return paints[row] })
}

// driverStateColumn is the index of STATE.
const driverStateColumn = 1

func driverHeaders(wide bool) []string {
	headers := []string{"NAME", "STATE", "SERVING", "VERSION", "UNIT", "RESTARTS", "AGE"}
	if wide {
		headers = append(headers, "NODE ID", "ENDPOINT", "ERROR")
	}
	return headers
}

// driverRows has a row for each process of a driver, and one for a unit without any.
func driverRows(driver api.Driver, wide bool, now time.Time) [][]string {
	unit, restarts, failure := noneText, "", ""
	if driver.Unit != nil {
		unit, restarts, failure = driver.Unit.State, strconv.Itoa(driver.Unit.Restarts), driver.Unit.Error
	}
	instances := driver.Instances
	if len(instances) == 0 {
		instances = []api.DriverInstance{{State: noneText}}
		if driver.Unit != nil {
			instances[0].Since = driver.Unit.Since
		}
	}
	name := firstOf(shownName(driver), "<unknown>")
	var rows [][]string
	for _, one := range instances {
		row := []string{
			name, shownState(one), strconv.FormatBool(one.Serving), orNone(one.Version), unit, restarts,
			age(metav1.NewTime(one.Since), now),
		}
		if wide {
			row = append(row, orNone(one.NodeID), orNone(one.Endpoint), printable(firstOf(one.Error, failure)))
		}
		rows = append(rows, row)
	}
	return rows
}

// stateNotReady is the state of a registered driver that fails Probe.
const stateNotReady = "NotReady"

// shownState is the state of a process, or that it fails Probe.
func shownState(one api.DriverInstance) string {
	if one.Unready {
		return stateNotReady
	}
	return one.State
}

// shownName is a driver's name, or its file's if the file is refused.
func shownName(driver api.Driver) string {
	if driver.Name == "" && driver.Unit != nil {
		return driver.Unit.File
	}
	return driver.Name
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// describeDrivers shows everything about drivers.
func (h *hostClient) describeDrivers(command *cobra.Command, names []string) error {
	client := h.dial()
	defer client.Close()
	drivers, err := readDrivers(command.Context(), client, names)
	if err != nil {
		return err
	}
	for i, driver := range drivers {
		if i > 0 {
			if _, err := fmt.Fprintln(command.OutOrStdout()); err != nil {
				return err
			}
		}
		if err := describeDriver(command.OutOrStdout(), driver, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

func describeDriver(out io.Writer, driver api.Driver, now time.Time) error {
	facts := [][]string{{"Name:", orNone(driver.Name)}}
	if unit := driver.Unit; unit != nil {
		facts = append(facts, unitFacts(*unit, now)...)
	}
	for _, one := range driver.Instances {
		facts = append(facts, instanceFacts(one, now)...)
	}
	if err := aligned(out, "", facts); err != nil {
		return err
	}
	if driver.Unit == nil || len(driver.Unit.Log) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(out, "Log:"); err != nil {
		return err
	}
	for _, line := range driver.Unit.Log {
		if _, err := fmt.Fprintln(out, "  "+printable(line)); err != nil {
			return err
		}
	}
	return nil
}

func unitFacts(unit api.DriverUnit, now time.Time) [][]string {
	return given([][]string{
		{"Unit:", unit.File},
		{"  State:", unit.State + ", since " + age(metav1.NewTime(unit.Since), now)},
		{"  PID:", number(int64(unit.PID))},
		{"  Restarts:", number(int64(unit.Restarts))},
		{"  Last Error:", printable(unit.Error)},
	})
}

func instanceFacts(one api.DriverInstance, now time.Time) [][]string {
	state := one.State + ", since " + age(metav1.NewTime(one.Since), now)
	if one.Serving {
		state += ", serves"
	}
	if one.Attempts > 0 {
		state += fmt.Sprintf(", failed %d times", one.Attempts)
	}
	var topology []string
	for key, value := range one.Topology {
		topology = append(topology, key+"="+value)
	}
	slices.Sort(topology)
	return given([][]string{
		{"Socket:", one.Socket},
		{"  State:", state},
		{"  Error:", printable(one.Error)},
		{"  Warnings:", printable(strings.Join(one.Warnings, "; "))},
		{"  Endpoint:", one.Endpoint},
		{"  Version:", printable(one.Version)},
		{"  Node ID:", printable(one.NodeID)},
		{"  Topology:", printable(strings.Join(topology, ", "))},
		{"  Volumes:", number(one.MaxVolumes)},
		{"  Capabilities:", strings.Join(one.Capabilities, ", ")},
	})
}

// given are the facts that there are.
func given(facts [][]string) [][]string {
	return slices.DeleteFunc(facts, func(fact []string) bool { return fact[1] == "" })
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
