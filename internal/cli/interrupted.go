package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// duringApply explains an apply whose answer was not awaited.
func duringApply(ctx context.Context, err error) error {
	if !isInterrupted(ctx, err) {
		return err
	}
	return errors.New("interrupted before the host answered; it applies all objects or none: " +
		"'holdfast get all' shows whether they exist")
}

// howToRemove names the command that deletes what an apply created, "" if it created
// nothing. Objects that it changed are not among them.
func howToRemove(applied []api.Applied) string {
	byNamespace := map[string][]string{}
	var namespaces []string
	for _, one := range applied {
		kind, ok := kindNamed(one.Kind)
		if one.Action != api.Created || !ok {
			continue
		}
		namespace, name, both := strings.Cut(one.Key, "/")
		if !both {
			namespace, name = manifest.DefaultNamespace, one.Key
		}
		if byNamespace[namespace] == nil {
			namespaces = append(namespaces, namespace)
		}
		byNamespace[namespace] = append(byNamespace[namespace], singular(kind)+"/"+name)
	}
	if len(namespaces) == 0 {
		return ""
	}
	var commands []string
	for _, namespace := range namespaces {
		slices.Reverse(byNamespace[namespace]) // the users of an object before it
		command := "holdfast delete " + strings.Join(byNamespace[namespace], " ")
		if namespace != manifest.DefaultNamespace {
			command += " -n " + namespace
		}
		commands = append(commands, "'"+command+"'")
	}
	return "; to remove what was created: " + strings.Join(commands, " and ")
}

// staysLimit bounds the question which claims stay after a run.
const staysLimit = 5 * time.Second

// whatStays names the claims of an interrupted run and the command that deletes them, ""
// if none exists. The run's pods have ended.
func (c runConfig) whatStays(ctx context.Context, client *api.Client, objects *manifest.Objects) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), staysLimit)
	defer cancel()
	kind, _ := kindNamed("PersistentVolumeClaim")
	var names []string
	for _, pvc := range objects.Claims {
		if _, err := client.Get(ctx, kind, pvc.Namespace, pvc.Name); err == nil {
			names = append(names, fmt.Sprintf("%q", store.KeyOf(pvc)))
		}
	}
	if len(names) == 0 {
		return ""
	}
	command := "holdfast run"
	for _, file := range c.files {
		command += " -f " + file
	}
	if c.root != rootDefault() {
		command += " --root " + c.root
	}
	what := "PersistentVolumeClaim " + names[0] + " stays with its data"
	if len(names) > 1 {
		what = "the PersistentVolumeClaims " + strings.Join(names, ", ") + " stay with their data"
	}
	return fmt.Sprintf("interrupted; %s; to delete: '%s --delete'", what, command)
}
