package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/internal/status"
)

func newDescribeCommand() *cobra.Command {
	var c getConfig
	command := &cobra.Command{
		Use:   "describe KIND/NAME… | KIND[,KIND] [NAME…]",
		Short: "Show an object with its events, and how long each step took",
		Example: `  holdfast describe pvc/data
  holdfast describe pod web
  holdfast describe pvc,pods -l app=web`,
		Args:              cobra.ArbitraryArgs,
		RunE:              func(command *cobra.Command, given []string) error { return c.describe(command, given) },
		ValidArgsFunction: c.completeAll,
	}
	c.bind(command.Flags())
	c.bindNamespace(command.Flags())
	c.bindSelection(command.Flags())
	c.completeFlags(command)
	return command
}

func (c *getConfig) describe(command *cobra.Command, given []string) error {
	if names, ok := ofDrivers(given); ok {
		if c.selector != "" {
			return usageErrorf("drivers are not objects: -l cannot be used with them")
		}
		return c.describeDrivers(command, names)
	}
	selections, err := c.selections(given)
	if err != nil {
		return err
	}
	client := c.dial()
	defer client.Close()
	var failed []error
	shown := 0
	for _, chosen := range selections {
		objects, err := c.read(command.Context(), client, chosen)
		failed = append(failed, err)
		for _, object := range objects {
			if shown++; shown > 1 {
				if _, err := fmt.Fprintln(command.OutOrStdout()); err != nil {
					return err
				}
			}
			d := description{client: client, out: command.OutOrStdout(), now: time.Now(),
				kind: chosen.tableKind, object: object}
			if err := d.write(command.Context()); err != nil {
				return err
			}
		}
	}
	if shown == 0 && errors.Join(failed...) == nil {
		command.PrintErrln(c.nothing(selections))
	}
	return errors.Join(failed...)
}

// description is everything about one object.
type description struct {
	client *api.Client
	out    io.Writer
	now    time.Time
	kind   tableKind
	object store.Object
}

func (d description) write(ctx context.Context) error {
	facts := slices.Concat(d.common(), d.columns(), factsOf(d.object), d.usage(ctx))
	if err := alignedPainted(d.out, "", facts, d.factPaint(facts)); err != nil {
		return err
	}
	if err := d.section("Conditions", conditionsOf(d.object)); err != nil {
		return err
	}
	if d.kind.kind.Resource == "events" {
		return nil
	}
	states, err := d.client.State(ctx, d.kind.kind, store.KeyOf(d.object))
	if err != nil {
		return err
	}
	story, err := d.client.Journal(ctx, d.kind.kind.Kind, store.KeyOf(d.object))
	if err != nil {
		return err
	}
	return errors.Join(d.section("Work", d.work(states)), d.section("Timeline", d.timeline(story.Steps)),
		d.section("Events", d.events(story.Events)))
}

// section writes rows below a headline, and nothing if there are none.
func (d description) section(name string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	colours := painterOf(d.out)
	if _, err := fmt.Fprintf(d.out, "%s\n", colours.heading(name+":")); err != nil {
		return err
	}
	return alignedPainted(d.out, "  ", rows, func(row int) paint {
		switch {
		case row == 0 && isHeadings(rows[0]):
			return colours.headings
		case rows[row][0] == severityWarning:
			return func(column int, cell string) string {
				if column == 0 {
					return colours.level(status.Busy, cell)
				}
				return cell
			}
		}
		return unpainted
	})
}

// isHeadings reports whether a row has the headings of a table.
func isHeadings(row []string) bool { return strings.ToUpper(row[0]) == row[0] }

// factPaint marks the labels, and colours the object's status.
func (d description) factPaint(facts [][]string) func(row int) paint {
	colours := painterOf(d.out)
	labels := map[string]bool{}
	for _, c := range d.kind.columns {
		labels[sentence(c.header)+":"] = c.isStatus()
	}
	return func(row int) paint {
		return func(column int, cell string) string {
			switch {
			case column == 0:
				return colours.heading(cell)
			case labels[facts[row][0]]:
				return colours.level(status.LevelOf(d.object), cell)
			}
			return cell
		}
	}
}

func (d description) common() [][]string {
	o := d.object
	facts := [][]string{{"Name:", o.GetName()}}
	if o.GetNamespace() != "" {
		facts = append(facts, []string{"Namespace:", o.GetNamespace()})
	}
	facts = append(facts, pairs("Labels:", o.GetLabels())...)
	facts = append(facts, pairs("Annotations:", o.GetAnnotations())...)
	facts = append(facts, []string{"Created:", timeOf(new(o.GetCreationTimestamp()))})
	if deleted := o.GetDeletionTimestamp(); deleted != nil {
		facts = append(facts, []string{"Deleted:", timeOf(deleted) + " (" + age(*deleted, d.now) + " ago)"})
	}
	if finalizers := o.GetFinalizers(); len(finalizers) > 0 {
		facts = append(facts, []string{"Finalizers:", strings.Join(finalizers, ", ")})
	}
	return facts
}

// pairs are keys with values, the first next to the headline.
func pairs(headline string, values map[string]string) [][]string {
	if len(values) == 0 {
		return [][]string{{headline, noneText}}
	}
	var rows [][]string
	for key, value := range values {
		rows = append(rows, []string{"", printable(key + "=" + value)})
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[1], b[1]) })
	rows[0][0] = headline
	return rows
}

// columns are the cells of the table that are not printed already.
func (d description) columns() [][]string {
	var facts [][]string
	for _, c := range d.kind.columns {
		if c.header == "NAME" || c.header == "AGE" || c.header == "NAMESPACE" {
			continue
		}
		facts = append(facts, []string{sentence(c.header) + ":", printable(orNone(c.cell(d.object, d.now)))})
	}
	return facts
}

// sentence turns a header into a label of a text: ACCESS MODES, Access Modes.
func sentence(header string) string {
	words := strings.Fields(strings.ToLower(header))
	for i, word := range words {
		words[i] = strings.ToUpper(word[:1]) + word[1:]
	}
	text := strings.Join(words, " ")
	for _, pair := range [][2]string{
		{"Storageclass", "StorageClass"}, {"Volumeattributesclass", "VolumeAttributesClass"}, {"Volumemode", "Volume Mode"},
		{"Reclaimpolicy", "Reclaim Policy"}, {"Volumebindingmode", "Volume Binding Mode"}, {"Pv", "PV"},
		{"Allowvolumeexpansion", "Allow Volume Expansion"}, {"Readytouse", "Ready To Use"}, {"Sourcepvc", "Source PVC"},
		{"Sourcesnapshotcontent", "Source Content"}, {"Restoresize", "Restore Size"}, {"Creationtime", "Taken"},
		{"Snapshotclass", "Snapshot Class"}, {"Snapshotcontent", "Snapshot Content"}, {"Drivername", "Driver"},
		{"Deletionpolicy", "Deletion Policy"}, {"Volumesnapshotnamespace", "Snapshot Namespace"},
		{"Volumesnapshotclass", "Snapshot Class"}, {"Volumesnapshot", "Snapshot"}, {"Attachrequired", "Attach Required"},
		{"Podinfoonmount", "Pod Info On Mount"}, {"Storagecapacity", "Storage Capacity"},
		{"Tokenrequests", "Token Requests"}, {"Requiresrepublish", "Requires Republish"},
	} {
		if text == pair[0] {
			return pair[1]
		}
	}
	return text
}

// usage is how full a claim's volume is, if its driver can say that now.
func (d description) usage(ctx context.Context) [][]string {
	if d.kind.kind.Resource != "persistentvolumeclaims" {
		return nil
	}
	stats, err := d.client.Stats(ctx, store.KeyOf(d.object))
	if err != nil {
		return nil // it is not in use, or the driver has no word for it
	}
	var facts [][]string
	if stats.Bytes != nil {
		facts = append(facts, []string{"Used:", fmt.Sprintf("%s of %s", progress.Size(stats.Bytes.Used),
			progress.Size(stats.Bytes.Total))})
	}
	if stats.Inodes != nil {
		facts = append(facts, []string{"Inodes Used:", fmt.Sprintf("%d of %d", stats.Inodes.Used, stats.Inodes.Total)})
	}
	if stats.Abnormal != "" {
		facts = append(facts, []string{"Abnormal:", printable(stats.Abnormal)})
	}
	return facts
}

// work lists the host's running and failed work on the object.
func (d description) work(states []api.WorkState) [][]string {
	var rows [][]string
	for _, state := range states {
		var texts []string
		if state.Running {
			texts = append(texts, "runs for "+duration(d.now.Sub(state.Since)))
		}
		if state.Attempts > 0 {
			texts = append(texts, "failed "+times(state.Attempts))
		}
		if !state.Next.IsZero() {
			texts = append(texts, "again in "+duration(max(0, state.Next.Sub(d.now))))
		}
		if state.LastError != "" {
			texts = append(texts, printable(state.LastError))
		}
		if len(texts) > 0 {
			rows = append(rows, []string{state.Controller, strings.Join(texts, ", ")})
		}
	}
	return rows
}

// severityWarning is the type of events that need attention.
const severityWarning = "Warning"

func times(count int) string {
	if count == 1 {
		return "once"
	}
	return strconv.Itoa(count) + " times"
}

// timeline is one row for each step, and how long they took together. Steps of
// an earlier object of that name are its own.
func (d description) timeline(steps []journal.StepEntry) [][]string {
	rows := [][]string{{"STEP", "VOLUME", "STARTED", "TOOK", "RESULT"}}
	var total time.Duration
	for _, step := range steps {
		if !d.isMine(step.About) {
			continue
		}
		took := step.Took
		if step.Status == journal.Started {
			took = d.now.Sub(step.Started)
		}
		total += took
		rows = append(rows, []string{step.Step, printable(step.Volume),
			step.Started.Local().Format("2006-01-02 15:04:05.000"), duration(took), result(step)})
	}
	if len(rows) == 1 {
		return nil
	}
	return append(rows, []string{"total", "", "", duration(total)})
}

func (d description) isMine(about []journal.Ref) bool {
	return isAbout(about, d.kind.kind, d.object)
}

func result(step journal.StepEntry) string {
	var texts []string
	switch step.Status {
	case journal.Started:
		texts = append(texts, "runs")
	case journal.Retrying:
		texts = append(texts, "is repeated")
	default:
		texts = append(texts, string(step.Status))
	}
	if step.Count > 1 {
		texts[0] += " " + times(step.Count)
	}
	if step.Progress != nil {
		texts = append(texts, printable(step.Progress.String()))
	}
	detail := step.Detail
	if step.Step == string(volumes.StepPublish) {
		detail = "" // a path that says nothing
	}
	for _, text := range []string{detail, step.Code, step.Error} {
		if text != "" {
			texts = append(texts, printable(text))
		}
	}
	return strings.Join(texts, ", ")
}

// events are as kubectl shows them.
func (d description) events(events []journal.Event) [][]string {
	rows := [][]string{{"TYPE", "REASON", "AGE", "MESSAGE"}}
	for _, event := range events {
		if !d.isMine([]journal.Ref{event.About}) {
			continue
		}
		severity := "Normal"
		if event.Warning {
			severity = severityWarning
		}
		when := age(metav1.NewTime(event.Last), d.now)
		if event.Count > 1 {
			when = fmt.Sprintf("%s (x%d over %s)", when, event.Count, age(metav1.NewTime(event.First), d.now))
		}
		rows = append(rows, []string{severity, event.Reason, when, printable(event.Message)})
	}
	if len(rows) == 1 {
		return nil
	}
	return rows
}
