{{/* The accounts that may have the pipe: this chart's own node plugin, and the given ones. */}}
{{- define "holdfast.pipeAccounts" -}}
{{- $own := printf "%s/%s" .Release.Namespace (include "holdfast.nodeAccount" .) -}}
{{- concat (ternary (list $own) list .Values.windows.enabled) .Values.pipePolicy.allow | uniq | toJson -}}
{{- end -}}

{{/* The kinds that contain a pod, by the path of the pod in them. */}}
{{- define "holdfast.pipePolicyKinds" -}}
- name: pods
  pod: object.spec
  labels: object.metadata
  rules:
    # The volumes of a pod that exists do not change.
    - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
    - {apiGroups: [""], apiVersions: [v1], resources: [pods/ephemeralcontainers], operations: [CREATE, UPDATE]}
- name: templates
  pod: object.spec.template.spec
  labels: object.spec.template.metadata
  rules:
    - {apiGroups: [apps], apiVersions: [v1], resources: [deployments, replicasets, statefulsets, daemonsets], operations: [CREATE, UPDATE]}
    - {apiGroups: [batch], apiVersions: [v1], resources: [jobs], operations: [CREATE, UPDATE]}
    - {apiGroups: [""], apiVersions: [v1], resources: [replicationcontrollers], operations: [CREATE, UPDATE]}
- name: cronjobs
  pod: object.spec.jobTemplate.spec.template.spec
  labels: object.spec.jobTemplate.spec.template.metadata
  rules:
    - {apiGroups: [batch], apiVersions: [v1], resources: [cronjobs], operations: [CREATE, UPDATE]}
- name: podtemplates
  pod: object.template.spec
  labels: object.template.metadata
  rules:
    - {apiGroups: [""], apiVersions: [v1], resources: [podtemplates], operations: [CREATE, UPDATE]}
{{- end -}}

{{/* What is neither a pipe, canonically written, nor a plain share, of the device paths. */}}
{{- define "holdfast.pipeForbidden" -}}
variables.devices.all(p, p.matches(r'^\\\\\.\\pipe\\[A-Za-z0-9._-]*[A-Za-z0-9_-]$') || p.matches(r'^[\\/]{2}[A-Za-z0-9_\[\]:%$@-][^\\/]*([\\/]|$)') && !p.matches(r'(?i)^[\\/]{2}[^\\/]+[\\/]+(pipe|ipc\$)[\s.]*([\\/]|$)|[\\/]\s*\.{1,2}[\s.]*([\\/]|$)'))
{{- end -}}

{{- define "holdfast.pipeDevices" -}}
variables.paths.filter(p, p.matches(r'(?i)^[\s\x{200b}\x{feff}]*([\\/]\s*[\\/]|[\\/]\?\?|[\\/](device|global\?\?|dosdevices|objectmanager)([\\/]|$)|npipe:)'))
{{- end -}}

{{- define "holdfast.pipeProxy" -}}
variables.devices.exists(p, p.matches(r'^\\\\\.\\pipe\\[A-Za-z0-9._-]*[A-Za-z0-9_-]$') && p.matches(r'(?i)^\\\\\.\\pipe\\csi-proxy'))
{{- end -}}

{{- define "holdfast.pipeForbiddenMessage" -}}
"device path " + variables.devices.join(", ") + ": no pod may have another spelling of a pipe, or a device; a pipe is written \\\\.\\pipe\\NAME with exactly these separators, a directory by its drive"
{{- end -}}

{{/* What is being deleted must be able to lose its finalizers. */}}
{{- define "holdfast.pipeConditions" -}}
matchConditions:
  - {name: not-being-deleted, expression: "!has(object.metadata.deletionTimestamp)"}
{{- end -}}
