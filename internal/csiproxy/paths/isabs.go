package paths

// IsAbs reports whether a path names, once it is normalised, a drive and a place
// from its root. Whether it is acceptable is for Rules to say.
func IsAbs(text string) bool {
	text = Normalize(text)
	return len(text) > 2 && isLetter(text[0]) && text[1:3] == `:`+separator
}
