package volumes

// cutFinalizer keeps a claim while a snapshot of it is being taken.
const cutFinalizer = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
