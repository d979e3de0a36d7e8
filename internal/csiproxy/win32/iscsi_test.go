package win32

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// sessionBuffer is what GetIScsiSessionListW would write at address base.
func sessionBuffer(base uint64, sessions []Session) []byte {
	data := make([]byte, len(sessions)*sessionSize)
	text := func(value string) uint64 {
		at := base + uint64(len(data))
		data = append(append(data, widen(value)...), 0, 0)
		return at
	}
	for i, session := range sessions {
		name := text(session.IQN)
		connections := make([]byte, len(session.Portals)*connectionSize)
		for j, portal := range session.Portals {
			le.PutUint64(connections[j*connectionSize+24:], text(portal.Address))
			le.PutUint16(connections[j*connectionSize+34:], uint16(portal.Port))
		}
		for len(data)%8 != 0 {
			data = append(data, 0)
		}
		list := base + uint64(len(data))
		data = append(data, connections...)
		at := data[i*sessionSize:]
		le.PutUint64(at, session.ID.AdapterUnique)
		le.PutUint64(at[8:], session.ID.AdapterSpecific)
		le.PutUint64(at[32:], name)
		le.PutUint32(at[48:], uint32(len(session.Portals)))
		le.PutUint64(at[56:], list)
	}
	return data
}

func TestISCSISessions_areReadFromTheirBuffer(t *testing.T) {
	want := []Session{
		{ID: SessionID{1, 2}, IQN: "iqn.2026-11.example:a", Portals: []api.Portal{
			{Address: "10.0.0.1", Port: 3260}, {Address: "fd00::1", Port: 3261},
		}},
		{ID: SessionID{3, 4}, IQN: "iqn.2026-11.example:b"},
	}
	const base = 0x7ff6_0000_1000
	data := sessionBuffer(base, want)
	got, err := DecodeISCSISessions(data, base, 2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestISCSISessions_followNoPointerOutOfTheBuffer(t *testing.T) {
	const base = 0x10000
	fresh := func() []byte {
		return sessionBuffer(base, []Session{{IQN: "iqn", Portals: []api.Portal{{Address: "10.0.0.1", Port: 3260}}}})
	}
	size := uint64(len(fresh()))
	for name, change := range map[string]func(data []byte){
		"a name before it":          func(data []byte) { le.PutUint64(data[32:], base-2) },
		"a name behind it":          func(data []byte) { le.PutUint64(data[32:], base+size+2) },
		"a name at the end of all":  func(data []byte) { le.PutUint64(data[32:], ^uint64(0)) },
		"connections behind it":     func(data []byte) { le.PutUint64(data[56:], base+size-connectionSize+1) },
		"connections nowhere":       func(data []byte) { le.PutUint64(data[56:], 0) },
		"too many connections":      func(data []byte) { le.PutUint32(data[48:], 0xFFFFFFFF) },
		"an address outside":        func(data []byte) { le.PutUint64(data[le.Uint64(data[56:])-base+24:], 1) },
		"connections that overflow": func(data []byte) { le.PutUint64(data[56:], ^uint64(0)-8) },
	} {
		data := fresh()
		change(data)
		if _, err := DecodeISCSISessions(data, base, 1); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := DecodeISCSISessions(fresh(), base, 0xFFFFFFFF); !errors.Is(err, ErrMalformed) {
		t.Errorf("too many sessions: %v", err)
	}
}

func TestISCSIArrays_boundTheirCount(t *testing.T) {
	data := make([]byte, 3000)
	for name, decode := range map[string]func(count uint32) (int, error){
		"portals":           func(n uint32) (int, error) { l, err := DecodeISCSIPortals(data, n); return len(l), err },
		"portal infos":      func(n uint32) (int, error) { l, err := DecodeISCSIPortalInfos(data, n); return len(l), err },
		"devices":           func(n uint32) (int, error) { l, err := DecodeISCSIDevices(data, n); return len(l), err },
		"persistent logins": func(n uint32) (int, error) { l, err := DecodeISCSIPersistentLogins(data, n); return len(l), err },
	} {
		for count, fits := range map[uint32]bool{0: true, 1: true, 3: false, 0xFFFFFFFF: false} {
			got, err := decode(count)
			if fits && (err != nil || got != int(count)) || !fits && !errors.Is(err, ErrMalformed) {
				t.Errorf("%d %s: %d, %v", count, name, got, err)
			}
		}
	}
}

// A port is never truncated to 16 bits.
func TestISCSIPortal_isEncodedOrRefused(t *testing.T) {
	for _, portal := range []api.Portal{
		{Address: "10.0.0.1", Port: 3260}, {Address: "fd00::1", Port: 65535}, {Address: strings.Repeat("a", 255), Port: 1},
	} {
		data, err := EncodeISCSIPortal(portal)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeISCSIPortals(data, 1); err != nil || back[0] != portal {
			t.Errorf("%v became %v, %v", portal, back, err)
		}
	}
	data, err := EncodeISCSIPortal(api.Portal{Address: "a"})
	if back, _ := DecodeISCSIPortals(data, 1); err != nil || back[0].Port != 3260 {
		t.Errorf("port 0 became %v, %v", back, err)
	}
	for _, portal := range []api.Portal{
		{Address: "a", Port: 65536}, {Address: "a", Port: 65536 + 3260}, {Port: 3260}, {Address: strings.Repeat("a", 256)},
	} {
		if _, err := EncodeISCSIPortal(portal); !errors.Is(err, ErrorInvalidParameter) {
			t.Errorf("%v: %v", portal, err)
		}
	}
}

func TestISCSILoginOptions_holdOnlyWhatIsGiven(t *testing.T) {
	const base = 0x4000
	options := ISCSILoginOptions{Auth: api.NoAuth}
	data := make([]byte, options.Size())
	options.Put(data, base)
	if le.Uint32(data[4:]) != loginOptionAuthType || le.Uint64(data[48:]) != 0 || le.Uint64(data[56:]) != 0 {
		t.Errorf("without CHAP: % x", data)
	}
	options = ISCSILoginOptions{Auth: api.MutualCHAP, Secret: "0123456789ab"}
	data = make([]byte, options.Size())
	options.Put(data, base)
	at := le.Uint64(data[56:]) - base
	if le.Uint32(data[12:]) != 2 || le.Uint64(data[48:]) != 0 || string(data[at:at+uint64(le.Uint32(data[40:]))]) != "0123456789ab" {
		t.Errorf("with a secret: % x", data)
	}
	if text := fmt.Sprintf("%v %+v %#v", options, options, options); strings.Contains(text, "0123456789ab") {
		t.Errorf("the secret shows in %s", text)
	}
}

func TestSMBCredential_escapesTheUserOnly(t *testing.T) {
	for _, c := range [][3]string{
		{"user", "password", "user:password"},
		{`DOMAIN\user`, `pass\word`, `DOMAIN\\user:pass\word`},
		{"a:b", "c:d", `a\:b:c:d`},
		{"", "", ":"},
	} {
		credential := SMBCredential(c[0], api.Secret(c[1]))
		if credential.Reveal() != c[2] {
			t.Errorf("%q and %q: %q", c[0], c[1], credential.Reveal())
		}
		if strings.Contains(fmt.Sprintf("%v %#v %s", credential, credential, credential), "pass") {
			t.Error("the credential shows")
		}
	}
}

func FuzzDecodeISCSISessions(f *testing.F) {
	const base = 0x10000
	f.Add(sessionBuffer(base, []Session{
		{ID: SessionID{1, 2}, IQN: "iqn.x", Portals: []api.Portal{{Address: "10.0.0.1", Port: 3260}}},
	}), uint32(1))
	f.Fuzz(func(t *testing.T, data []byte, count uint32) {
		sessions, err := DecodeISCSISessions(data, base, count)
		if err != nil {
			return
		}
		size := 0
		for _, session := range sessions {
			size += len(session.Portals)
		}
		if size > 1000 || len(sessions) > 100 || len(data) > 10000 {
			return // tables that overlap decode to more than the data has
		}
		again, err := DecodeISCSISessions(sessionBuffer(base, sessions), base, count)
		if err != nil || !cmp.Equal(sessions, again) {
			t.Fatalf("%v\n-once +twice:\n%s", err, cmp.Diff(sessions, again))
		}
	})
}

func FuzzDecodeISCSIArrays(f *testing.F) {
	f.Add(make([]byte, 2080), uint32(1))
	f.Fuzz(func(_ *testing.T, data []byte, count uint32) {
		_, _ = DecodeISCSIPortals(data, count)
		_, _ = DecodeISCSIPortalInfos(data, count)
		_, _ = DecodeISCSIDevices(data, count)
		_, _ = DecodeISCSIPersistentLogins(data, count)
	})
}
