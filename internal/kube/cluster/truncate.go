package cluster

import "unicode/utf8"

// MaxMessage is how many bytes the API server accepts as the message of an event
// or of an error in a status; a driver's error may be longer.
const MaxMessage = 1024

// Truncate shortens a message to MaxMessage bytes at a character's boundary.
func Truncate(message string) string {
	const ellipsis = "…"
	if len(message) <= MaxMessage {
		return message
	}
	end := MaxMessage - len(ellipsis)
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + ellipsis
}
