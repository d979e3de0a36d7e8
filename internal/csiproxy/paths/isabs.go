package paths

// IsAbs reports whether a path, once it is normalised, begins at the root of a
// drive. Rules decide whether it is acceptable.
func IsAbs(text string) bool {
	text = Normalize(text)
	return len(text) > 2 && isLetter(text[0]) && text[1:3] == `:`+separator
}
