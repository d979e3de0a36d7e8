// Package v1beta1 has the messages of the second version of the KEP's API, which can
// undo what it mounts.
package v1beta1

// Version is the name of this version, also in its pipe's name.
const Version = "v1beta1"
