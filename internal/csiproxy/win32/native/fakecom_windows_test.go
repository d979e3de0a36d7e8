package native

import (
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/go-ole/go-ole"
)

// fakeObject is an object of COM made in Go: an IDispatch whose members are
// functions, or an IEnumVARIANT over other objects. It counts its references.
type fakeObject struct {
	vtable  *[7]uintptr // first, as COM requires
	refs    atomic.Int32
	world   *fakeWorld
	name    string
	members map[string]func(arguments []any) (any, error)
	put     map[string]any // what was put into it
	isEnum  bool
	rest    []*fakeObject // of an enumeration
	failEnd uint32        // what an enumeration ends with, instead of S_FALSE
}

// fakeWorld is all objects of a test, which also keeps them from being collected:
// what points to them are numbers in variants.
type fakeWorld struct {
	objects []*fakeObject
	ids     []string // members by their DISPID, less 1
}

// comError is an exception of a member: its number, and a text that must not show.
type comError struct {
	number uint32
	text   string
}

func (comError) Error() string { return "exception" }

func (w *fakeWorld) object(name string, members map[string]func([]any) (any, error)) *fakeObject {
	o := &fakeObject{vtable: dispatchVTable, world: w, name: name, members: members, put: map[string]any{}}
	w.objects = append(w.objects, o)
	return o
}

// collection is an object with _NewEnum.
func (w *fakeWorld) collection(failEnd uint32, items ...*fakeObject) *fakeObject {
	return w.object("collection", map[string]func([]any) (any, error){
		"_NewEnum": func([]any) (any, error) {
			enum := &fakeObject{vtable: enumVTable, isEnum: true, world: w, name: "enumeration", rest: items, failEnd: failEnd}
			w.objects = append(w.objects, enum)
			return enum, nil
		},
	})
}

// released checks that no object is held any more.
func (w *fakeWorld) released(t *testing.T) {
	t.Helper()
	for _, o := range w.objects {
		if n := o.refs.Load(); n != 0 {
			t.Errorf("%s has %d references left", o.name, n)
		}
	}
}

// dispatch hands the object out.
func (o *fakeObject) dispatch() *ole.IDispatch {
	o.refs.Add(1)
	return (*ole.IDispatch)(unsafe.Pointer(o))
}

const (
	comOK            = 0
	comUnknownName   = 0x80020006 // DISP_E_UNKNOWNNAME
	comException     = 0x80020009 // DISP_E_EXCEPTION
	comNoInterface   = 0x80004002 // E_NOINTERFACE
	comNotHere       = 0x80004001 // E_NOTIMPL
	propertyPutCalls = 4          // DISPATCH_PROPERTYPUT
)

var (
	dispatchVTable = newTable(fakeTypeInfo, fakeTypeInfo, fakeIDs, fakeInvoke)
	enumVTable     = newTable(fakeNext, fakeTypeInfo, fakeTypeInfo, fakeTypeInfo)
)

// newTable is a table of IUnknown and four more.
func newTable(more ...any) *[7]uintptr {
	table := [7]uintptr{syscall.NewCallback(fakeQuery), syscall.NewCallback(fakeAddRef), syscall.NewCallback(fakeRelease)}
	for i, f := range more {
		table[3+i] = syscall.NewCallback(f)
	}
	return &table
}

func fakeQuery(o *fakeObject, iid *ole.GUID, out **fakeObject) uintptr {
	wanted := ole.IID_IDispatch
	if o.isEnum {
		wanted = ole.IID_IEnumVariant
	}
	if !ole.IsEqualGUID(iid, wanted) && !ole.IsEqualGUID(iid, ole.IID_IUnknown) {
		*out = nil
		return comNoInterface
	}
	o.refs.Add(1)
	*out = o
	return comOK
}

func fakeAddRef(o *fakeObject) uintptr  { return uintptr(o.refs.Add(1)) }
func fakeRelease(o *fakeObject) uintptr { return uintptr(o.refs.Add(-1)) }

func fakeTypeInfo(*fakeObject, uintptr, uintptr, uintptr) uintptr { return comNotHere }

func fakeIDs(o *fakeObject, _ uintptr, names **uint16, count uintptr, _ uintptr, id *int32) uintptr {
	if count != 1 {
		return comNotHere
	}
	o.world.ids = append(o.world.ids, ole.LpOleStrToString(*names))
	*id = int32(len(o.world.ids))
	return comOK
}

func fakeInvoke(o *fakeObject, id uintptr, _, _, flags uintptr, parameters *fakeParameters, result *ole.VARIANT, exception *fakeException, _ uintptr) uintptr {
	name := o.world.ids[int32(id)-1]
	arguments := parameters.values()
	if uint16(flags) == propertyPutCalls {
		o.put[name] = arguments[0]
		return comOK
	}
	member, ok := o.members[name]
	if !ok {
		return comUnknownName
	}
	value, err := member(arguments)
	if failure, ok := err.(comError); ok { //nolint:errorlint // A member returns it bare.
		exception.description = uintptr(unsafe.Pointer(ole.SysAllocString(failure.text)))
		exception.number = failure.number
		return comException
	}
	put(result, value)
	return comOK
}

// fakeParameters is DISPPARAMS, the last first.
type fakeParameters struct {
	arguments *ole.VARIANT
	_         uintptr
	count     uint32
}

func (p *fakeParameters) values() []any {
	var values []any
	for i := int(p.count) - 1; i >= 0; i-- {
		argument := unsafe.Slice(p.arguments, p.count)[i]
		if argument.VT == ole.VT_DISPATCH {
			values = append(values, (*fakeObject)(unsafe.Pointer(argument.ToIDispatch())))
			continue
		}
		values = append(values, argument.Value())
	}
	return values
}

// fakeException is EXCEPINFO.
type fakeException struct {
	_, _        uintptr // code; source
	description uintptr
	_           uintptr // file of help
	_           uint32
	_, _        uintptr
	number      uint32
}

// put makes a variant of a value, with a reference of its own.
func put(result *ole.VARIANT, value any) {
	if result == nil {
		return
	}
	switch v := value.(type) {
	case string:
		*result = ole.NewVariant(ole.VT_BSTR, int64(uintptr(unsafe.Pointer(ole.SysAllocStringLen(v)))))
	case uint32:
		*result = ole.NewVariant(ole.VT_I4, int64(v)) // scripting has no unsigned numbers
	case *fakeObject:
		kind := ole.VT_DISPATCH
		if v.isEnum {
			kind = ole.VT_UNKNOWN
		}
		v.refs.Add(1)
		*result = ole.NewVariant(kind, int64(uintptr(unsafe.Pointer(v))))
	}
}

func fakeNext(o *fakeObject, count uintptr, item *ole.VARIANT, fetched *uint32) uintptr {
	*fetched = 0
	if count != 1 || len(o.rest) == 0 {
		if o.failEnd != 0 {
			return uintptr(o.failEnd)
		}
		return comEnd
	}
	put(item, o.rest[0])
	o.rest = o.rest[1:]
	*fetched = 1
	return comOK
}
