package claim

// TraceparentAnnotation on a PersistentVolume has the trace in which it was created, as a W3C
// traceparent. It is absent if no traces were exported then.
const TraceparentAnnotation = "holdfast.dev/traceparent"
