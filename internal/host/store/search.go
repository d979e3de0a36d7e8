package store

import "bytes"

// Containing returns the records, in the order of the keys, that have a text
// somewhere in them as they are stored. It preselects the records that may name an
// object: only these are decoded. JSON must write the text unchanged, such as an
// object's name. Encrypted texts are not found.
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
