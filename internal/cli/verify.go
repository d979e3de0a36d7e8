package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
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
	return v.ledger.CleanUp(ctx)
}

// agreed asks on a terminal whether something may be made; elsewhere --yes says so.
func (v *verification) agreed(command *cobra.Command, what string) error {
	if v.yes {
		return nil
	}
	if !isTerminal(command.InOrStdin()) {
		return usageErrorf("this makes %s; --yes agrees to it", what)
	}
	if !says(command, "This makes "+what+", and removes it at the end. Continue? [y/N] ") {
		return errors.New("nothing was made")
	}
	return nil
}

// runName names a run by its time and process, as tags and directories show it.
func runName() string {
	return fmt.Sprintf("holdfast-verify-%s-%d", time.Now().UTC().Format("20060102t150405z"), os.Getpid())
}
