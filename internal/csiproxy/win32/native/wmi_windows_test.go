package native

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-ole/go-ole"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

type members = map[string]func([]any) (any, error)

func constant(value any) func([]any) (any, error) {
	return func([]any) (any, error) { return value, nil }
}

// fakeWMI is one namespace: its instances by class, what was called on them, and
// what the calls give.
type fakeWMI struct {
	*fakeWorld
	t         *testing.T
	namespace string
	instances map[string][]*fakeObject
	calls     []fakeCall
	result    uint32 // ReturnValue of methods
	throws    error  // instead
	messageID string // of the last error
	failEnd   uint32 // what enumerations end with
}

type fakeCall struct {
	On, Method string
	Parameters map[string]any
}

func newFakeWMI(t *testing.T, namespace string) *fakeWMI {
	f := &fakeWMI{fakeWorld: &fakeWorld{}, t: t, namespace: namespace, instances: map[string][]*fakeObject{}}
	t.Cleanup(func() { f.released(t) })
	return f
}

// wmi connects to it.
func (f *fakeWMI) wmi() *wmi {
	return &wmi{
		gate: make(gate, 1),
		connect: func(namespace string) (*ole.IDispatch, error) {
			if namespace != f.namespace {
				f.t.Errorf("connected to %s", namespace)
			}
			return f.services().dispatch(), nil
		},
		lastError: func() (*ole.IDispatch, error) {
			if f.messageID == "" {
				return nil, win32.ErrorEFail
			}
			return f.object("last error", members{"MessageID": constant(f.messageID)}).dispatch(), nil
		},
	}
}

func (f *fakeWMI) services() *fakeObject {
	return f.object("services", members{
		"InstancesOf": func(arguments []any) (any, error) {
			return f.collection(f.failEnd, f.instances[arguments[0].(string)]...), nil
		},
		"Get": func(arguments []any) (any, error) { return f.instance(arguments[0].(string), nil), nil },
	})
}

// instance is an instance or a class that has a method of any name.
func (f *fakeWMI) instance(name string, properties map[string]any) *fakeObject {
	all := members{
		"Methods_": constant(f.object("methods", members{"Item": func(arguments []any) (any, error) {
			spawn := func([]any) (any, error) { return f.object("parameters of "+arguments[0].(string), nil), nil }
			class := f.object("class of parameters", members{"SpawnInstance_": spawn})
			return f.object("method", members{"InParameters": constant(class)}), nil
		}})),
		"ExecMethod_": func(arguments []any) (any, error) {
			f.calls = append(f.calls, fakeCall{name, arguments[0].(string), arguments[1].(*fakeObject).put})
			return f.object("result", members{"ReturnValue": constant(f.result)}), f.throws
		},
	}
	for property, value := range properties {
		all[property] = constant(value)
	}
	return f.object(name, all)
}

func (f *fakeWMI) add(class, name string, properties map[string]any) {
	f.instances[class] = append(f.instances[class], f.instance(name, properties))
}

func (f *fakeWMI) called(want ...fakeCall) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.calls); diff != "" {
		f.t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func mappingsOf(t *testing.T) *fakeWMI {
	f := newFakeWMI(t, namespaceSMB)
	f.add(classGlobalMapping, "one", map[string]any{"RemotePath": `\\srv\one`, "Status": uint32(0)})
	f.add(classGlobalMapping, "two", map[string]any{"RemotePath": `\\srv\two`, "Status": uint32(2)})
	f.add(classGlobalMapping, "null", map[string]any{"RemotePath": nil, "Status": nil})
	return f
}

func TestSMB_listsMappings(t *testing.T) {
	got, err := smb{mappingsOf(t).wmi()}.Mappings(context.Background())
	want := []win32.SMBMapping{{Remote: `\\srv\one`}, {Remote: `\\srv\two`, Status: 2}, {}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n-want +got:\n%s", err, diff)
	}
}

func TestSMB_takesABrokenListForAnError(t *testing.T) {
	f := mappingsOf(t)
	f.failEnd = uint32(win32.ErrorWBEMInvalidClass)
	_, err := smb{f.wmi()}.Mappings(context.Background())
	refused(t, "list", err, win32.ErrorWBEMInvalidClass)
}

func TestSMB_createsAMapping(t *testing.T) {
	f := newFakeWMI(t, namespaceSMB)
	request := win32.SMBMappingRequest{Remote: `\\srv\share`, Username: `DOM\user`, Password: `pass:word`, RequirePrivacy: true}
	must(t, smb{f.wmi()}.Create(context.Background(), request))
	f.called(fakeCall{classGlobalMapping, "Create", map[string]any{
		"RemotePath": `\\srv\share`, "RequirePrivacy": true, "Credential": `DOM\\user:pass:word`,
	}})
}

func TestSMB_givesTheNumberAndNeverThePassword(t *testing.T) {
	const password = "very-secret"
	for name, c := range map[string]struct {
		result    uint32
		throws    error
		messageID string
		want      win32.Errno
	}{
		"by its result":                {result: 86, want: win32.ErrorInvalidPassword},
		"by an HRESULT as its result":  {result: 0x80070035, want: win32.ErrorBadNetPath},
		"by an exception":              {throws: comError{0x800704C3, "user:" + password}, want: win32.ErrorSessionCredentialConflict},
		"by an exception without more": {throws: comError{uint32(win32.ErrorWBEMFailed), password}, want: win32.ErrorWBEMFailed},
		"by the last error": {
			throws: comError{uint32(win32.ErrorWBEMFailed), password}, messageID: "Windows System Error 1326", want: win32.ErrorLogonFailure,
		},
		"by a last error that says nothing": {
			throws: comError{uint32(win32.ErrorWBEMFailed), password}, messageID: "MI RESULT 1 " + password, want: win32.ErrorWBEMFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeWMI(t, namespaceSMB)
			f.result, f.throws, f.messageID = c.result, c.throws, c.messageID
			err := smb{f.wmi()}.Create(context.Background(), win32.SMBMappingRequest{Remote: `\\srv\x`, Username: "user", Password: password})
			refused(t, "create", err, c.want)
			if err == nil || strings.Contains(err.Error(), password) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// The mapping is found by comparison; no query has the name.
func TestSMB_removesTheMappingOfAShareOnly(t *testing.T) {
	f := mappingsOf(t)
	must(t, smb{f.wmi()}.Remove(context.Background(), `\\SRV\Two`, true))
	f.called(fakeCall{"two", "Remove", map[string]any{"Force": true}})
	for _, remote := range []string{`\\srv\three`, `' OR '1'='1`, `\\srv\%`} {
		f := mappingsOf(t)
		refused(t, remote, smb{f.wmi()}.Remove(context.Background(), remote, true), win32.ErrorNotFound)
		f.called()
	}
}

const (
	volumeA = `\\?\Volume{aaaaaaaa-1111-2222-3333-444444444444}\`
	volumeB = `\\?\Volume{bbbbbbbb-1111-2222-3333-444444444444}\`
)

func volumesOf(t *testing.T) *fakeWMI {
	f := newFakeWMI(t, namespaceStorage)
	f.add("MSFT_Volume", "a", map[string]any{"Path": volumeA})
	f.add("MSFT_Volume", "b", map[string]any{"Path": volumeB})
	f.add("MSFT_Volume", "null", map[string]any{"Path": nil})
	return f
}

func TestFormat_formatsTheVolumeThatIsMeantAsAsked(t *testing.T) {
	f := volumesOf(t)
	v := volumes{wmi: f.wmi()}
	must(t, v.Format(context.Background(), strings.ToUpper(volumeB), win32.FormatRequest{
		FileSystem: "NTFS", Label: "data", ClusterSize: 65536,
	}))
	f.called(fakeCall{"b", "Format", map[string]any{
		"FileSystem": "NTFS", "FileSystemLabel": "data", "AllocationUnitSize": int32(65536), "Full": false, "Force": false,
	}})

	f = volumesOf(t)
	v = volumes{wmi: f.wmi()}
	must(t, v.Format(context.Background(), volumeA, win32.FormatRequest{FileSystem: "NTFS"}))
	f.called(fakeCall{"a", "Format", map[string]any{"FileSystem": "NTFS", "FileSystemLabel": "", "Full": false, "Force": false}})
}

func TestFormat_touchesNothingElse(t *testing.T) {
	for _, volume := range []string{noVolume, "", `\`, `C:\`, strings.TrimSuffix(volumeA, `}\`)} {
		f := volumesOf(t)
		err := volumes{wmi: f.wmi()}.Format(context.Background(), volume, win32.FormatRequest{FileSystem: "NTFS"})
		if err == nil || len(f.calls) != 0 {
			t.Errorf("%q: %v, %v", volume, f.calls, err)
		}
	}
}

func TestFormat_ofOneVolumeInTwoInstancesIsRefused(t *testing.T) {
	f := volumesOf(t)
	f.add("MSFT_Volume", "again", map[string]any{"Path": volumeA})
	err := volumes{wmi: f.wmi()}.Format(context.Background(), volumeA, win32.FormatRequest{FileSystem: "NTFS"})
	if err == nil || len(f.calls) != 0 {
		t.Errorf("%v, %v", f.calls, err)
	}
}

func TestFormat_givesTheNumber(t *testing.T) {
	for result, want := range map[win32.StorageResult]win32.Errno{
		5: win32.ErrorInvalidParameter, 6: win32.ErrorBusy, 40001: win32.ErrorAccessDenied, 43013: win32.ErrorSharingViolation,
	} {
		f := volumesOf(t)
		f.result = uint32(result)
		err := volumes{wmi: f.wmi()}.Format(context.Background(), volumeA, win32.FormatRequest{FileSystem: "NTFS"})
		if !errors.Is(err, result) || !errors.Is(err, want) {
			t.Errorf("result %d: %v", result, err)
		}
	}
}
