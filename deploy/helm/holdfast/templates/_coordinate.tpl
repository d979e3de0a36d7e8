{{/* Rights of the process that labels the objects of all nodes and selects nodes. */}}
{{- define "holdfast.coordinateRules" }}
  # Of the process that labels the objects of all nodes and selects nodes.
  - apiGroups: [""]
    resources: [persistentvolumeclaims, persistentvolumes]
    verbs: [list, watch, patch]
  - apiGroups: [snapshot.storage.k8s.io]
    resources: [volumesnapshots]
    verbs: [list, watch, patch]
  - apiGroups: [snapshot.storage.k8s.io]
    resources: [volumesnapshotcontents]
    verbs: [get, list, watch, patch]
  - apiGroups: [groupsnapshot.storage.k8s.io]
    resources: [volumegroupsnapshotcontents]
    verbs: [list, watch, patch]
  - apiGroups: [""]
    resources: [nodes]
    verbs: [get, list, watch]
  - apiGroups: [storage.k8s.io]
    resources: [csinodes, storageclasses]
    verbs: [list, watch]
{{- end -}}
