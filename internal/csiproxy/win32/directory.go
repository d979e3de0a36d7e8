package win32

// directoryEntryFixed is the part of FILE_FULL_DIR_INFORMATION before the name.
const directoryEntryFixed = 68

// DecodeDirectory reads the entries that NtQueryDirectoryFile returns with
// FileFullDirectoryInformation, without . and ..: for a reparse point the field
// EaSize is its tag ([MS-FSCC] 2.4.14).
func DecodeDirectory(data []byte) ([]FileInfo, error) {
	const structure = "FILE_FULL_DIR_INFORMATION"
	var list []FileInfo
	for {
		if err := atLeast(structure, data, directoryEntryFixed); err != nil {
			return nil, err
		}
		size := uint64(le.Uint32(data[60:]))
		if size%2 != 0 || directoryEntryFixed+size > uint64(len(data)) {
			return nil, malformed(structure, "a name of %d bytes in %d", size, len(data)-directoryEntryFixed)
		}
		entry := FileInfo{
			Name:       wideName(data[directoryEntryFixed : directoryEntryFixed+size]),
			Attributes: le.Uint32(data[56:]),
		}
		if entry.IsReparse() {
			entry.ReparseTag = le.Uint32(data[64:])
		}
		if entry.Name != "." && entry.Name != ".." {
			list = append(list, entry)
		}
		next := le.Uint32(data)
		if next == 0 {
			return list, nil
		}
		if next < directoryEntryFixed || uint64(next) > uint64(len(data)) {
			return nil, malformed(structure, "an entry at %d of %d", next, len(data))
		}
		data = data[next:]
	}
}

// EncodeDirectory is the opposite of DecodeDirectory.
func EncodeDirectory(list []FileInfo) []byte {
	var data []byte
	for i, entry := range list {
		name := widenName(entry.Name)
		at := make([]byte, directoryEntryFixed, directoryEntryFixed+len(name)+8)
		le.PutUint32(at[56:], entry.Attributes)
		le.PutUint32(at[60:], uint32(len(name)))
		if entry.IsReparse() {
			le.PutUint32(at[64:], entry.ReparseTag)
		}
		at = append(at, name...)
		if i < len(list)-1 {
			for len(at)%8 != 0 {
				at = append(at, 0)
			}
			le.PutUint32(at, uint32(len(at)))
		}
		data = append(data, at...)
	}
	return data
}
