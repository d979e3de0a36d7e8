package message

// WarningTrailer is the trailer of an answer that has the driver's warnings (backend.Warn).
// CSI has no field for them.
const WarningTrailer = "holdfast-warning-bin"
