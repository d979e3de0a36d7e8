package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/verify"
)

// exitDiffers is the exit code of a verification that found a difference.
const exitDiffers = 4

// cleanUpTimeout bounds the removal of what a verification made. It begins when the checks
// have ended, also by Ctrl-C.
const cleanUpTimeout = 10 * time.Minute

// newVerifyCommand is the command of holdfast whose subcommands test one subject each.
func newVerifyCommand(version string) *cobra.Command {
	command := &cobra.Command{
		Use:   "verify",
		Short: "Test on AWS or Windows what only emulators have confirmed",
		Long: `Test the statements about EC2 and Windows that Holdfast relies on and that only an emulator
or a document has confirmed so far. The result is one file without secrets, for an issue of
the project. The exit code is 0 if each statement that was tested holds, 4 if one does not,
1 if the test could not be made or something that it made stays.`,
		Args: unknownCommand,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newVerifyEBSCommand(version), newVerifyWindowsCommand(version))
	return command
}

// verification is what the subjects have in common.
type verification struct {
	subject, version string
	report           string
	list, yes, clean bool
	ledger           verify.Ledger
	facts            map[string]string
	// findLost adds to the ledger what was made without an answer; may be nil.
	findLost func(context.Context) error
}

func (v *verification) bind(flags *pflag.FlagSet) {
	flags.StringVar(&v.report, "report", "", "`FILE` of the report (default: holdfast-verify-SUBJECT-TIME.json in this directory)")
	flags.BoolVar(&v.list, "list", false, "print the statements that would be tested, and test none")
	flags.BoolVar(&v.yes, "yes", false, "make what the checks need without asking")
	flags.BoolVar(&v.clean, "clean-up", false, "remove what earlier runs made and did not remove, and test nothing")
}

// printList prints the statements.
func (v *verification) printList(out io.Writer, checks []verify.Check) error {
	for _, c := range checks {
		if _, err := fmt.Fprintf(out, "%s: %s\n  source: %s\n  otherwise: %s\n", c.ID, c.Statement, c.Source, c.Otherwise); err != nil {
			return err
		}
	}
	return nil
}

// run tests the statements, removes what was made and writes the report.
func (v *verification) run(command *cobra.Command, checks []verify.Check) error {
	out := command.OutOrStdout()
	report := verify.Report{
		Subject: v.subject, Version: v.version, System: runtime.GOOS + "/" + runtime.GOARCH, Started: time.Now().UTC(), Facts: v.facts,
	}
	if v.report == "" {
		v.report = "holdfast-verify-" + v.subject + "-" + report.Started.Format("20060102T150405Z") + ".json"
	}
	v.ledger.Announce = func(r verify.Resource) {
		stays := "which is removed at the end"
		if r.Lasts {
			stays = "which stays until you remove it: " + r.By
		}
		_, _ = fmt.Fprintf(out, "made        %s %s, %s\n", r.Kind, r.ID, stays)
	}
	verify.Run(command.Context(), checks, func(f verify.Finding) {
		report.Findings = append(report.Findings, f)
		_ = f.Print(out)
	})
	stays := v.cleanUp(command.Context())
	report.Ended, report.Resources = time.Now().UTC(), v.ledger.Resources()
	if err := writeArchive(v.report, report.Write); err != nil {
		return errors.Join(stays, err)
	}
	_, _ = fmt.Fprintf(out, "%d hold, %d differ, %d not tested; %s has the report, read it before you send it\n",
		report.Count(verify.Holds), report.Count(verify.Differs), report.Count(verify.Untested), v.report)
	switch {
	case stays != nil:
		return stays
	case command.Context().Err() != nil:
		return errors.New("interrupted; what was made is removed")
	case report.Count(verify.Differs) > 0:
		return ExitError{Code: exitDiffers}
	}
	return nil
}

// cleanUp removes what was made, also after Ctrl-C.
func (v *verification) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	err := v.ledger.CleanUp(ctx)
	if v.findLost == nil {
		return err
	}
	if lost := v.findLost(ctx); lost != nil {
		return errors.Join(err, fmt.Errorf("it is not known whether something else was made; 'holdfast verify %s --clean-up' finds it: %w", v.subject, lost))
	}
	return v.ledger.CleanUp(ctx)
}

// agreed asks on a terminal whether an effect is meant; elsewhere --yes confirms it.
func (v *verification) agreed(command *cobra.Command, effect string) error {
	switch {
	case v.yes:
		return nil
	case !isTerminal(command.InOrStdin()):
		return usageErrorf("this %s; --yes confirms that", effect)
	case !confirms(command, "This "+effect+". Continue? [y/N] "):
		return errors.New("nothing was changed")
	}
	return nil
}

// runPrefix and runTime are the form of a run's name.
const (
	runPrefix = "holdfast-verify-"
	runTime   = "20060102t150405z"
	runLasts  = time.Hour // far longer than any run
)

// runName names a run by its time and process, as tags show it.
func runName() string {
	return fmt.Sprintf("%s%s-%d", runPrefix, time.Now().UTC().Format(runTime), os.Getpid())
}

// isOld reports whether a run has ended, by the time in its name.
func isOld(run string, now time.Time) bool {
	text, _, _ := strings.Cut(strings.TrimPrefix(run, runPrefix), "-")
	began, err := time.Parse(runTime, text)
	return err == nil && now.Sub(began) > runLasts
}
