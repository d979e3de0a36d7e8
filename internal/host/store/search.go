package store

import "bytes"

// Containing returns the records, in the order of the keys, that have a text
// somewhere in them as they are stored. It is for finding those that may name an
// object: only these are decoded. The text must be one that JSON writes as it
// is, such as an object's name; what is encrypted is not found.
func (t Table[T]) Containing(text string) ([]*T, error) {
	var found []*T
	err := t.tx.each(t.kind, func(key string, data []byte) error {
		if !bytes.Contains(data, []byte(text)) {
			return nil
		}
		value, err := t.decode(key, data)
		found = append(found, value)
		return err
	})
	return found, err
}
