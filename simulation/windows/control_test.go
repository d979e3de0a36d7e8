package windows_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// Each endpoint of the package's comment does what it says there, and says no in
// the same form.
func TestControl_drivesTheMachine(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	server := httptest.NewServer(windows.Control(m))
	defer server.Close()
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string // part of it
	}{
		{"POST", "/disks",
			`{"serial":"vol1","size":1073741824,"bus":10,"location":{"port":1,"lun":2},"arrivesAfter":"0s","bytes":{"512":"ff"}}`, 200, `"Number":1`},
		{"POST", "/disks", `{"serial":"vol2","size":1073741824,"style":"data","fileSystem":"NTFS","driveLetter":true}`, 200, `"Number":2`},
		{"POST", "/disks", `{"size":100}`, 400, `a disk of 100 bytes`},
		{"POST", "/disks", `{"colour":1}`, 400, `unknown field`},
		{"POST", "/disks", `{"size":1073741824,"bytes":{"0":"zz"}}`, 400, `bytes at 0`},
		{"POST", "/disks", `{"size":1073741824,"arrivesAfter":"soon"}`, 400, `invalid duration`},
		{"POST", "/disks/1/grow", `{"size":2147483648}`, 200, `{}`},
		{"POST", "/disks/9/grow", `{"size":2147483648}`, 400, `disk 9`},
		{"POST", "/disks/x/grow", `{}`, 400, `invalid syntax`},
		{"POST", "/disks/1/move", ``, 200, `"Number":3`},
		{"DELETE", "/disks/3", ``, 200, `{}`},
		{"DELETE", "/disks/0", ``, 400, `cannot be removed`},
		{"POST", "/shares", `{"server":"srv","share":"data","users":{"ann":"x"},"total":10,"free":5}`, 200, `{}`},
		{"POST", "/shares", `{"server":"srv"}`, 400, `a share`},
		{"POST", "/targets", `{"address":"10.0.0.1","iqn":"iqn.x:y","luns":[{"serial":"l","size":1073741824}]}`, 200, `{}`},
		{"POST", "/targets", `{"address":"10.0.0.1","iqn":"iqn.x:y"}`, 400, `there already`},
		{"POST", "/servers", `{"server":"srv","iqn":"iqn.x:y","reachable":false}`, 200, `{}`},
		{"POST", "/services", `{"name":"svc","startType":2,"dependsOn":["MSiSCSI"],"startDelay":"1ms"}`, 200, `{}`},
		{"POST", "/services", `{}`, 400, `without a name`},
		{"POST", "/files", `{"path":"C:\\x\\y","kind":"directory"}`, 200, `{}`},
		{"POST", "/files", `{"path":"C:\\x\\f","kind":"file","size":10}`, 200, `{}`},
		{"POST", "/files", `{"path":"C:\\x\\l","kind":"symlink","target":"C:\\x\\y"}`, 200, `{}`},
		{"POST", "/files", `{"path":"C:\\x\\j","kind":"junction","target":"C:\\x\\y"}`, 200, `{}`},
		{"POST", "/files", `{"path":"C:\\x\\j","kind":"junction","target":"C:\\x\\y"}`, 409, `ERROR_ALREADY_EXISTS (183)`},
		{"POST", "/files", `{"path":"C:\\x\\z","kind":"socket"}`, 400, `not one of`},
		{"GET", `/files?path=C:\x`, ``, 200, `"Entries":["f","j","l","y"]`},
		{"GET", `/files?path=C:\x\l`, ``, 200, `"Target":"C:\\x\\y"`},
		{"GET", `/files?path=C:\nothing`, ``, 404, `ERROR_FILE_NOT_FOUND (2)`},
		{"DELETE", `/files?path=C:\x\l`, ``, 200, `{}`},
		{"POST", "/faults", `{"call":"Directory.Mkdir","action":"fail","errno":5}`, 200, `"ID":1`},
		{"POST", "/faults", `{"action":"fail"}`, 400, `needs an errno`},
		{"POST", "/faults", `{"action":"explode"}`, 400, `unknown`},
		{"GET", "/faults/1", ``, 200, `"Hits":0`},
		{"POST", "/faults/1/release", ``, 200, `"ID":1`},
		{"DELETE", "/faults/1", ``, 200, `"ID":1`},
		{"GET", "/faults/7", ``, 404, `fault`},
		{"POST", "/disks/2/clone", `{"serial":"copy"}`, 200, `"Number"`},
		{"POST", "/disks/9/clone", `{"serial":"copy"}`, 400, `disk 9`},
		{"POST", "/options", `{"volumeDelay":"1ms","usableLag":1,"biosSerial":"x"}`, 200, `{}`},
		{"POST", "/options", `{"volumeDelay":1}`, 400, `the request`},
		{"POST", "/reboot", ``, 200, `{}`},
		{"GET", "/check", ``, 200, `{}`},
		{"GET", "/state", ``, 200, `"Serial":"vol2"`},
		{"GET", "/nothing", ``, 404, `not found`},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method,
			server.URL+strings.ReplaceAll(c.path, `\`, "%5C"), strings.NewReader(c.body))
		must(t, err)
		response, err := server.Client().Do(request)
		must(t, err)
		body, err := io.ReadAll(response.Body)
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != c.status || !strings.Contains(string(body), c.answer) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, response.StatusCode, body)
		}
		if c.path != "/nothing" && !json.Valid(body) {
			t.Errorf("%s %s answers no JSON: %s", c.method, c.path, body)
		}
	}
	d := openDisk(t, calls, numbers(m)["vol2"])
	if layout := layoutOf(t, d); layout.Style != win32.StyleGPT || len(layout.Partitions) != 2 {
		t.Errorf("layout %+v", layout)
	}
}
