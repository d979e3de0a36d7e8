package native

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/go-ole/go-ole"
	"github.com/go-ole/go-ole/oleutil"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// Namespaces of WMI.
const (
	namespaceStorage = `Root\Microsoft\Windows\Storage`
	namespaceSMB     = `Root\Microsoft\Windows\Smb`
)

// wmi is Windows Management Instrumentation, by its scripting objects. No query has text
// of a caller: instances are enumerated and compared in this process. The texts of its
// errors are dropped: they may repeat a parameter, such as a password.
type wmi struct {
	connect   func(namespace string) (*ole.IDispatch, error) // SWbemLocator.ConnectServer
	lastError func() (*ole.IDispatch, error)                 // a new SWbemLastError
	gate      gate
}

// Numbers of COM that are not failures of CoInitializeEx.
const (
	comAlready     = 1          // S_FALSE: initialised already; needs CoUninitialize as well
	comChangedMode = 0x80010106 // RPC_E_CHANGED_MODE: other code initialised it, in another mode
)

// run connects to a namespace and runs work with it, on one thread, which COM requires.
func (w *wmi) run(namespace string, work func(*session) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	switch err := ole.CoInitializeEx(0, ole.COINIT_MULTITHREADED); comNumber(err) {
	case 0, comAlready:
		defer ole.CoUninitialize()
	case comChangedMode:
	default:
		return comFailed("CoInitializeEx", err)
	}
	services, err := w.connect(namespace)
	if err != nil {
		return err
	}
	s := &session{object{services, w}}
	defer s.release()
	return work(s)
}

// connectServer is SWbemLocator.ConnectServer of this machine.
func connectServer(namespace string) (*ole.IDispatch, error) {
	locator, err := create("WbemScripting.SWbemLocator")
	if err != nil {
		return nil, err
	}
	defer locator.Release()
	value, err := oleutil.CallMethod(locator, "ConnectServer", ".", namespace)
	if err != nil {
		return nil, comFailed("ConnectServer "+namespace, err)
	}
	return value.ToIDispatch(), nil
}

// lastError is the error object of the last call of this thread.
func lastError() (*ole.IDispatch, error) { return create("WbemScripting.SWbemLastError") }

// create makes an object of a class of COM.
func create(class string) (*ole.IDispatch, error) {
	unknown, err := oleutil.CreateObject(class)
	if err != nil {
		return nil, comFailed(class, err)
	}
	defer unknown.Release()
	dispatch, err := unknown.QueryInterface(ole.IID_IDispatch)
	if err != nil {
		return nil, comFailed(class, err)
	}
	return dispatch, nil
}

// session is SWbemServices: a namespace.
type session struct{ object }

// object is a COM object. Its owner must call release.
type object struct {
	dispatch *ole.IDispatch
	wmi      *wmi
}

func (o *object) release() { o.dispatch.Release() }

func release(objects []*object) {
	for _, o := range objects {
		o.release()
	}
}

// member is oleutil.CallMethod or oleutil.GetProperty.
type member func(dispatch *ole.IDispatch, name string, parameters ...any) (*ole.VARIANT, error)

// value returns the value of a member.
func (o *object) value(kind member, name string, parameters ...any) (*ole.VARIANT, error) {
	value, err := kind(o.dispatch, name, parameters...)
	if err != nil {
		if value != nil {
			_ = value.Clear()
		}
		return nil, o.failed(name, err)
	}
	return value, nil
}

// failed is comFailed with the number of the provider, if it returned one.
func (o *object) failed(what string, err error) error {
	failure := comFailed(what, err)
	if !errors.Is(failure, win32.ErrorWBEMFailed) && !errors.Is(failure, win32.ErrorEFail) {
		return failure
	}
	dispatch, err := o.wmi.lastError()
	if err != nil {
		return failure
	}
	defer dispatch.Release()
	value, err := oleutil.GetProperty(dispatch, "MessageID")
	if err != nil {
		return failure
	}
	defer func() { _ = value.Clear() }()
	if value.VT != ole.VT_BSTR {
		return failure
	}
	if number, ok := win32.ParseMessageID(value.ToString()); ok {
		return fmt.Errorf("WMI: %s: %w", what, number)
	}
	return failure
}

// object returns a member that is an object.
func (o *object) object(kind member, name string, parameters ...any) (*object, error) {
	value, err := o.value(kind, name, parameters...)
	if err != nil {
		return nil, err
	}
	dispatch := value.ToIDispatch()
	if dispatch == nil {
		_ = value.Clear()
		return nil, fmt.Errorf("%s is not an object: %w", name, win32.ErrorENotImpl)
	}
	return &object{dispatch, o.wmi}, nil // the value's reference is the object's now
}

// text returns a property that is a string; "" if it is null.
func (o *object) text(name string) (string, error) {
	value, err := o.value(oleutil.GetProperty, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = value.Clear() }()
	if value.VT != ole.VT_BSTR {
		return "", nil
	}
	return value.ToString(), nil
}

// number returns a property that is an integer; 0 if it is null.
func (o *object) number(name string) (uint32, error) {
	value, err := o.value(oleutil.GetProperty, name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = value.Clear() }()
	switch value.VT {
	case ole.VT_I1, ole.VT_I2, ole.VT_I4, ole.VT_UI1, ole.VT_UI2, ole.VT_UI4, ole.VT_INT, ole.VT_UINT:
		return uint32(value.Val), nil
	}
	return 0, nil
}

// parameter is one of a method of WMI. Those of scripting have no unsigned
// numbers.
type parameter struct {
	name  string
	value any // string, bool or int32
}

// call executes a method of WMI on an instance or class. meaning converts a result other
// than 0 to an error: each namespace has its own numbers.
func (o *object) call(method string, meaning func(result uint32) error, parameters ...parameter) error {
	in, err := o.parameters(method)
	if err != nil {
		return err
	}
	defer in.release()
	for _, p := range parameters {
		value, err := oleutil.PutProperty(in.dispatch, p.name, p.value)
		if value != nil {
			_ = value.Clear()
		}
		if err != nil {
			return o.failed(method+" parameter "+p.name, err)
		}
	}
	out, err := o.object(oleutil.CallMethod, "ExecMethod_", method, in.dispatch)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	defer out.release()
	result, err := out.number("ReturnValue")
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if result != 0 {
		return fmt.Errorf("%s: %w", method, meaning(result))
	}
	return nil
}

// The meanings of results: of methods of SMB, and of those of storage.
func smbResult(result uint32) error     { return win32.FromHRESULT(result) }
func storageResult(result uint32) error { return win32.StorageResult(result) }

// parameters makes the object with a method's parameters.
func (o *object) parameters(method string) (*object, error) {
	methods, err := o.object(oleutil.GetProperty, "Methods_")
	if err != nil {
		return nil, err
	}
	defer methods.release()
	description, err := methods.object(oleutil.CallMethod, "Item", method)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	defer description.release()
	class, err := description.object(oleutil.GetProperty, "InParameters")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	defer class.release()
	return class.object(oleutil.CallMethod, "SpawnInstance_")
}

// find returns the instances of a class with a string property that matches. The
// caller releases them.
func (s *session) find(class, property string, matches func(string) bool) (found []*object, err error) {
	defer func() {
		if err != nil {
			release(found)
			found = nil
		}
	}()
	err = s.each(class, func(instance *object) (keep bool, err error) {
		text, err := instance.text(property)
		if err != nil || !matches(text) {
			return false, err
		}
		found = append(found, instance)
		return true, nil
	})
	return found, err
}

// each calls a function for all instances of a class, and releases those that it does not
// keep.
func (s *session) each(class string, see func(*object) (keep bool, err error)) error {
	set, err := s.object.object(oleutil.CallMethod, "InstancesOf", class)
	if err != nil {
		return fmt.Errorf("%s: %w", class, err)
	}
	defer set.release()
	enum, err := set.enumerate()
	if err != nil {
		return fmt.Errorf("%s: %w", class, err)
	}
	defer enum.Release()
	for {
		item, count, err := enum.Next(1)
		if count == 0 {
			if number := comNumber(err); number != 0 && number != comEnd {
				return s.failed(class, err)
			}
			return nil
		}
		instance := &object{item.ToIDispatch(), s.wmi}
		if instance.dispatch == nil {
			_ = item.Clear()
			return fmt.Errorf("%s: an instance is not an object: %w", class, win32.ErrorENotImpl)
		}
		keep, err := see(instance)
		if !keep {
			instance.release()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", class, err)
		}
	}
}

// comEnd is S_FALSE: the end of an enumeration.
const comEnd = 1

// enumerate returns the enumeration of a collection.
func (o *object) enumerate() (*ole.IEnumVARIANT, error) {
	value, err := o.value(oleutil.GetProperty, "_NewEnum")
	if err != nil {
		return nil, err
	}
	defer func() { _ = value.Clear() }()
	unknown := value.ToIUnknown()
	if unknown == nil {
		return nil, fmt.Errorf("_NewEnum is not an object: %w", win32.ErrorENotImpl)
	}
	enum, err := unknown.IEnumVARIANT(ole.IID_IEnumVariant)
	if err != nil {
		return nil, o.failed("IEnumVARIANT", err)
	}
	return enum, nil
}

// comNumber is the HRESULT of an error of COM; 0 for none.
func comNumber(err error) uint32 {
	if err == nil {
		return 0
	}
	var oleError *ole.OleError
	if !errors.As(err, &oleError) {
		return uint32(win32.ErrorEFail)
	}
	var exception ole.EXCEPINFO
	if errors.As(oleError.SubError(), &exception) && exception.SCODE() != 0 {
		return exception.SCODE()
	}
	return uint32(oleError.Code())
}

// comFailed returns an error with the step and its number, without its text.
func comFailed(what string, err error) error {
	return fmt.Errorf("WMI: %s: %w", what, win32.FromHRESULT(comNumber(err)))
}
