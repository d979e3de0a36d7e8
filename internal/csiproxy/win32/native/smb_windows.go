package native

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-ole/go-ole/oleutil"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

type smb struct{ wmi *wmi }

const classGlobalMapping = "MSFT_SmbGlobalMapping"

// Mappings implements win32.SMB.
func (m smb) Mappings(ctx context.Context) ([]win32.SMBMapping, error) {
	return await(ctx, m.wmi.gate, func() (list []win32.SMBMapping, err error) {
		err = m.wmi.run(namespaceSMB, func(s *session) error {
			return s.each(classGlobalMapping, func(instance *object) (bool, error) {
				var row win32.SMBMapping
				var err error
				if row.Remote, err = instance.text("RemotePath"); err != nil {
					return false, err
				}
				if row.Status, err = instance.number("Status"); err != nil {
					return false, err
				}
				list = append(list, row)
				return false, nil
			})
		})
		return list, err
	})
}

// Create implements win32.SMB.
func (m smb) Create(ctx context.Context, request win32.SMBMappingRequest) error {
	return awaitError(ctx, m.wmi.gate, func() error {
		return m.wmi.run(namespaceSMB, func(s *session) error {
			class, err := s.object.object(oleutil.CallMethod, "Get", classGlobalMapping)
			if err != nil {
				return err
			}
			defer class.release()
			return class.call("Create", smbResult,
				parameter{"RemotePath", request.Remote},
				parameter{"RequirePrivacy", request.RequirePrivacy},
				parameter{"Credential", win32.SMBCredential(request.Username, request.Password).Reveal()})
		})
	})
}

// Remove implements win32.SMB.
func (m smb) Remove(ctx context.Context, remote string, force bool) error {
	return awaitError(ctx, m.wmi.gate, func() error {
		return m.wmi.run(namespaceSMB, func(s *session) error {
			found, err := s.find(classGlobalMapping, "RemotePath", func(path string) bool {
				return strings.EqualFold(path, remote)
			})
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return fmt.Errorf("%s: no mapping of %s: %w", classGlobalMapping, remote, win32.ErrorNotFound)
			}
			defer release(found)
			var failures []error
			for _, mapping := range found {
				failures = append(failures, mapping.call("Remove", smbResult, parameter{"Force", force}))
			}
			return errors.Join(failures...)
		})
	})
}
