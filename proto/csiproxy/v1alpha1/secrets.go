package v1alpha1

import (
	"fmt"
	"log/slog"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// These messages have a secret, which no verb of package fmt and no log shows.
// Their String methods do, and belong to the generated code.

// Format implements fmt.Formatter.
func (x *MountSMBShareRequest) Format(state fmt.State, _ rune) { api.FormatRedacted(state, x) }

// LogValue implements slog.LogValuer.
func (x *MountSMBShareRequest) LogValue() slog.Value { return api.RedactedValue(x) }

// Format implements fmt.Formatter.
func (x *MountISCSILunRequest) Format(state fmt.State, _ rune) { api.FormatRedacted(state, x) }

// LogValue implements slog.LogValuer.
func (x *MountISCSILunRequest) LogValue() slog.Value { return api.RedactedValue(x) }
