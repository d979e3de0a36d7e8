package csiproxy_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/proto/csiproxy"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1alpha1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1beta1"
)

// All versions report the same of a disk.
func FuzzDisks_acrossVersions(f *testing.F) {
	f.Add(uint32(7), true, "1", "2", "3", "4", "600508e0", "vol0123", int64(64<<30), true, false, "")
	f.Add(uint32(4294967295), true, "0", "0", "0", "4294967295", "", " ", int64(-1), false, true, "half of it")
	f.Add(uint32(0), true, "x", "-1", "4294967296", "", "\xff", "", int64(0), false, false, "")
	f.Add(uint32(1), false, "", "", "", "", "", "", int64(0), false, false, "")
	f.Fuzz(func(t *testing.T, number uint32, located bool, adapter, bus, target, lun, page83, serial string, size int64, online, readOnly bool, problem string) {
		disk := api.Disk{Number: number, Page83: page83, SerialNumber: serial, Size: size, Online: online, ReadOnly: readOnly}
		if page83 != "" {
			disk.Identifiers = []api.DiskIdentifier{{CodeSet: 1, Type: 3, Association: number, Value: page83}, {CodeSet: 2, Value: serial}}
		}
		if located {
			disk.Location = &api.DiskLocation{Adapter: adapter, Bus: bus, Target: target, LUN: lun}
		}
		if problem != "" {
			disk.Problem = errors.New(problem)
		}
		disks := []api.Disk{disk}
		all := &v1.GetDiskLocationsResponse{DiskLocations: v1.DiskLocationsFromAPI(disks)}
		stable, text := all.GetDiskLocations()[number], strconv.FormatUint(uint64(number), 10)
		beta := fromStable[*v1beta1.GetDiskLocationsResponse](t, v1beta1.Version, "GetDiskLocations", all).GetDiskLocations()[number]
		alpha := fromStable[*v1alpha1.GetDiskLocationsResponse](t, v1alpha1.Version, "GetDiskLocations", all).GetDiskLocations()[text]
		if (stable == nil) != (beta == nil) || stable != nil &&
			(stable.GetAdapter() != beta.GetAdapter() || stable.GetBus() != beta.GetBus() ||
				stable.GetTarget() != beta.GetTarget() || stable.GetLun() != beta.GetLun()) {
			t.Errorf("locations: v1 %v, v1beta1 %v", stable, beta)
		}
		if stable != nil {
			back := v1.LocationToAPI(stable)
			if again := v1.LocationFromAPI(back); !proto.Equal(stable, again) {
				t.Errorf("location %v came back as %v", stable, again)
			}
			if alpha.GetAdapter() != strconv.FormatUint(uint64(stable.GetAdapter()), 10) ||
				alpha.GetLun() != strconv.FormatUint(uint64(stable.GetLun()), 10) {
				t.Errorf("v1alpha1 has the location %v, v1 has %v", alpha, stable)
			}
		}
		allIDs := &v1.GetDiskIDsResponse{DiskIds: v1.DiskIDsFromAPI(disks)}
		ids, said := allIDs.GetDiskIds()[number],
			fromStable[*v1alpha1.GetDiskIDsResponse](t, v1alpha1.Version, "GetDiskIDs", allIDs).GetDiskIds()[text]
		if (ids == nil) != (said == nil) || ids.GetPage83() != said.GetIdentifiers()[v1alpha1.Page83Key] ||
			ids.GetSerialNumber() != said.GetIdentifiers()[v1alpha1.SerialNumberKey] {
			t.Errorf("ids: v1 %v, v1alpha1 %v", ids, said)
		}
		checkDisk(t, disk, v1.DiskToAPI(v1.DiskFromAPI(disk)))
	})
}

// fromStable converts a response of v1 to that of an older version.
func fromStable[Response proto.Message](t *testing.T, version, method string, stable proto.Message) Response {
	t.Helper()
	converted, err := csiproxy.FromStable(version, method, stable)
	if err != nil {
		t.Fatal(err)
	}
	return converted.(Response)
}

// login is the login of a MountISCSILun of an older version.
func login(version string, request proto.Message) (login api.ISCSILogin, lun uint32, err error) {
	stable, err := csiproxy.ToStable(version, "MountISCSILun", request)
	if err != nil {
		return login, 0, err
	}
	converted := stable.(*v1.MountISCSILunRequest)
	login, err = v1.LoginToAPI(converted)
	return login, converted.GetLun(), err
}

func checkDisk(t *testing.T, disk, back api.Disk) {
	t.Helper()
	if fmt.Sprint(disk.Problem) != fmt.Sprint(back.Problem) {
		t.Errorf("problem %v came back as %v", disk.Problem, back.Problem)
	}
	disk.Problem, back.Problem = nil, nil
	if disk.Location != nil && v1.LocationFromAPI(disk.Location) == nil {
		disk.Location = nil // not in digits
	} else if disk.Location != nil {
		disk.Location = v1.LocationToAPI(v1.LocationFromAPI(disk.Location)) // 007 is 7
	}
	if diff := cmp.Diff(disk, back); diff != "" {
		t.Errorf("a disk came back otherwise:\n%s", diff)
	}
}

// A login of v1alpha1 reaches the host as the same login of v1 does, whatever
// is sent, and a portal keeps its meaning.
func FuzzLogin_acrossVersions(f *testing.F) {
	f.Add("10.0.0.1", uint32(3261), "iqn.x", uint32(4), int32(1), "u", "s")
	f.Add("fe80::1", uint32(0), "iqn.x", uint32(4294967295), int32(0), "", "")
	f.Add("[fe80::1]", uint32(65536), "", uint32(0), int32(2), "", "s")
	f.Add("host:1", uint32(1), "", uint32(0), int32(7), "u", "")
	f.Fuzz(func(t *testing.T, address string, port uint32, iqn string, lun uint32, auth int32, user, secret string) {
		stable, err := v1.LoginToAPI(&v1.MountISCSILunRequest{
			Portal: &v1.ISCSIPortal{Address: address, Port: port}, Iqn: iqn, Lun: lun, AuthType: v1.ISCSIAuthType(auth),
			ChapUsername: user, ChapSecret: secret,
		})
		if (err == nil) != (auth >= 0 && auth <= 2) || err != nil && !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("auth %d: %v", auth, err)
		}
		if err == nil && v1.AuthTypeFromAPI(stable.Auth) != v1.ISCSIAuthType(auth) {
			t.Errorf("auth %d came back as %d", auth, v1.AuthTypeFromAPI(stable.Auth))
		}
		beta, _, err := login(v1beta1.Version, &v1beta1.MountISCSILunRequest{
			Portal: &v1beta1.ISCSIPortal{Address: address, Port: port}, Iqn: iqn, Lun: lun,
			AuthType: v1beta1.ISCSIAuthType(auth), ChapUsername: user, ChapSecret: secret,
		})
		if err == nil &&
			(beta.Auth != stable.Auth || beta.Portal != stable.Portal || beta.IQN != stable.IQN ||
				beta.Username != stable.Username || beta.Secret != stable.Secret) {
			t.Errorf("v1beta1 %v, v1 %v", beta, stable)
		}
		portal := address
		if port != 0 {
			portal = fmt.Sprintf("[%s]:%d", address, port)
		}
		alpha, number, err := login(v1alpha1.Version, &v1alpha1.MountISCSILunRequest{
			Portal: portal, Iqn: iqn, Lun: strconv.FormatUint(uint64(lun), 10), ChapUsername: user, ChapSecret: secret,
		})
		switch plain := !strings.ContainsAny(address, "[]:"); {
		case err != nil && !errors.Is(err, backend.ErrInvalid):
			t.Error(err)
		case err != nil && plain && port < 65536:
			t.Errorf("portal %q: %v", portal, err)
		case err == nil && (number != lun || alpha.IQN != iqn || alpha.Username != user || alpha.Secret != api.Secret(secret)):
			t.Errorf("v1alpha1 %v, LUN %d", alpha, number)
		case err == nil && plain && alpha.Portal != (api.Portal{Address: address, Port: port}):
			t.Errorf("portal %q is %v", portal, alpha.Portal)
		}
		if err != nil && len(secret) > 8 && strings.Contains(err.Error(), secret) && !strings.Contains(portal, secret) {
			t.Errorf("the secret is in %v", err)
		}
	})
}

// portalOf is the portal that v1alpha1 has as a text.
func portalOf(text string) (api.Portal, error) {
	asked, _, err := login(v1alpha1.Version, &v1alpha1.MountISCSILunRequest{Portal: text, Lun: "0"})
	return asked.Portal, err
}

// The texts of v1alpha1 are read whole or refused.
func FuzzPortal_ofV1alpha1(f *testing.F) {
	for _, text := range []string{"10.0.0.1", "10.0.0.1:3260", "[fe80::1]:3260", "[fe80::1]", "fe80::1", "host:0", "host:65536", ":1", "[", "[]", "[]:1", "a:b:1", "a:1:", "[a]b:1", "a:+1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		portal, err := portalOf(text)
		switch {
		case err != nil && !errors.Is(err, backend.ErrInvalid):
			t.Error(err)
		case err == nil && portal.Port > 65535:
			t.Errorf("%q has port %d", text, portal.Port)
		case err == nil && len(portal.Address) > len(text):
			t.Errorf("%q is %q", text, portal.Address)
		}
	})
}

func TestPortal_ofV1alpha1(t *testing.T) {
	for text, want := range map[string]api.Portal{
		"10.0.0.1":       {Address: "10.0.0.1"},
		"10.0.0.1:3261":  {Address: "10.0.0.1", Port: 3261},
		"storage":        {Address: "storage"},
		"storage:1":      {Address: "storage", Port: 1},
		"fe80::1":        {Address: "fe80::1"},
		"[fe80::1]":      {Address: "fe80::1"},
		"[fe80::1]:3261": {Address: "fe80::1", Port: 3261},
	} {
		if got, err := portalOf(text); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"h:0", "h:65536", "h:-1", "h:+1", "h:x", "h:", "[fe80::1]:", "[fe80::1]x"} {
		if got, err := portalOf(text); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

// Secrets are in nothing that prints or logs a request.
func TestSecrets_areShownByNoVerbAndNoLog(t *testing.T) {
	const word = "hidden-word"
	for _, request := range []proto.Message{
		&v1alpha1.MountSMBShareRequest{RemotePath: "shown", Password: word},
		&v1alpha1.MountISCSILunRequest{Iqn: "shown", ChapSecret: word},
		&v1beta1.MountSMBShareRequest{RemotePath: "shown", Password: word},
		&v1beta1.MountISCSILunRequest{Iqn: "shown", ChapSecret: word},
		&v1.MountSMBShareRequest{RemotePath: "shown", Password: word},
		&v1.MountISCSILunRequest{Iqn: "shown", ChapSecret: word},
		&v1.ConnectISCSITargetRequest{Iqn: "shown", ChapSecret: word},
		&v1.SetISCSIMutualSecretRequest{Secret: word},
	} {
		texts := map[string]string{}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			texts[verb] = fmt.Sprintf(verb, request)
		}
		var log strings.Builder
		slog.New(slog.NewJSONHandler(&log, nil)).Info("call", "request", request)
		texts["JSON log"] = log.String()
		log.Reset()
		slog.New(slog.NewTextHandler(&log, nil)).Info("call", "request", request)
		texts["text log"] = log.String()
		for how, text := range texts {
			if strings.Contains(text, word) || strings.Contains(text, fmt.Sprintf("%x", word)) {
				t.Errorf("%T by %s: %s", request, how, text)
			}
			if !strings.Contains(text, "***") ||
				request.ProtoReflect().Descriptor().Name() != "SetISCSIMutualSecretRequest" && !strings.Contains(text, "shown") {
				t.Errorf("%T by %s shows nothing: %s", request, how, text)
			}
		}
	}
}

// Every field that is a secret by its name belongs to a message that hides it.
func TestSecrets_everyMessageWithOneHidesIt(t *testing.T) {
	for _, file := range []protoreflect.FileDescriptor{v1alpha1.File_proto_csiproxy_v1alpha1_api_proto, v1beta1.File_proto_csiproxy_v1beta1_api_proto, v1.File_proto_csiproxy_v1_api_proto} {
		messages := file.Messages()
		for i := range messages.Len() {
			fields := messages.Get(i).Fields()
			for j := range fields.Len() {
				name := string(fields.Get(j).Name())
				if !strings.Contains(name, "secret") && !strings.Contains(name, "password") {
					continue
				}
				found, err := protoregistry.GlobalTypes.FindMessageByName(messages.Get(i).FullName())
				if err != nil {
					t.Fatal(err)
				}
				if _, ok := found.New().Interface().(fmt.Formatter); !ok {
					t.Errorf("%s shows its %s", messages.Get(i).FullName(), name)
				}
			}
		}
	}
}
