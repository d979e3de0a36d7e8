package journal

import "time"

// trim removes entries above the limits of number and age, oldest first.
func (f *file) trim(stored int, since time.Time) (dropped int, err error) {
	for {
		_, data := f.entries.Cursor().First()
		if data == nil {
			return dropped, nil
		}
		entry, err := decode(data)
		if err != nil {
			return dropped, err
		}
		if stored-dropped <= most && !entry.last().Before(since) {
			return dropped, nil
		}
		if err := f.remove(entry, entry.identity()); err != nil {
			return dropped, err
		}
		dropped++
	}
}
