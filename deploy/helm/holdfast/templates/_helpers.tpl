{{- define "holdfast.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/*
The name of an object without a namespace, with a suffix: two releases of one name, in
two namespaces, have objects of their own. No namespace has a dot in its name.
*/}}
{{- define "holdfast.clusterName" -}}
{{- printf "%s%s.%s" (include "holdfast.fullname" .root) .suffix .root.Release.Namespace -}}
{{- end -}}

{{- define "holdfast.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Selectors cannot be changed: nothing that changes with a release is here. */}}
{{- define "holdfast.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "holdfast.driverName" -}}
{{- .Values.driverName | default (get (dict "local" "local.holdfast.dev" "ebs" "ebs.csi.aws.com") .Values.backend) -}}
{{- end -}}

{{/* Labels of pods: nothing of a version, so that only what matters restarts them. */}}
{{- define "holdfast.podLabels" -}}
{{ include "holdfast.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Whether one process per node does the controllers' work. */}}
{{- define "holdfast.perNode" -}}
{{- if eq .Values.backend "local" }}true{{ end -}}
{{- end -}}

{{/* Whether this release has controllers, and not only nodes of another one's. */}}
{{- define "holdfast.controls" -}}
{{- if or (include "holdfast.perNode" .) .Values.controller.enabled }}true{{ end -}}
{{- end -}}

{{/* Whether a node's process watches the objects of its node alone. */}}
{{- define "holdfast.nodeScope" -}}
{{- if and (include "holdfast.perNode" .) .Values.local.nodeObjectsOnly }}true{{ end -}}
{{- end -}}

{{/* Whether admission policies label objects for those processes. */}}
{{- define "holdfast.labelPolicy" -}}
{{- if and (include "holdfast.nodeScope" .) (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") }}true{{ end -}}
{{- end -}}

{{- define "holdfast.volumeLabelPolicy" -}}
{{- include "holdfast.clusterName" (dict "root" . "suffix" "-node-label-volumes") -}}
{{- end -}}

{{/* Whether one of the nodes' processes is elected to coordinate all nodes. */}}
{{- define "holdfast.electsNode" -}}
{{- if and (include "holdfast.nodeScope" .) (not .Values.local.coordinator.enabled) }}true{{ end -}}
{{- end -}}

{{/* Whether the Deployment coordinates all nodes. */}}
{{- define "holdfast.coordinator" -}}
{{- if and (include "holdfast.nodeScope" .) .Values.local.coordinator.enabled }}true{{ end -}}
{{- end -}}

{{/* Whether there is a Deployment: the controller of an attachable backend, or the coordinator. */}}
{{- define "holdfast.deploys" -}}
{{- if or (include "holdfast.coordinator" .) (and (not (include "holdfast.perNode" .)) .Values.controller.enabled) }}true{{ end -}}
{{- end -}}

{{- define "holdfast.image" -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- with .image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- define "holdfast.nodeAccount" -}}
{{- .Values.node.serviceAccount.name | default (printf "%s-node" (include "holdfast.fullname" .)) -}}
{{- end -}}

{{- define "holdfast.controllerAccount" -}}
{{- .Values.controller.serviceAccount.name | default (printf "%s-controller" (include "holdfast.fullname" .)) -}}
{{- end -}}

{{/* The account that the controllers act as, whichever pod they are in. */}}
{{- define "holdfast.actingAccount" -}}
{{- if include "holdfast.perNode" . }}{{ include "holdfast.nodeAccount" . }}{{ else }}{{ include "holdfast.controllerAccount" . }}{{ end -}}
{{- end -}}

{{/* Names of --controllers, as internal/kube/rights has them. */}}
{{- define "holdfast.controllers" -}}
{{- $c := .Values.controllers -}}
{{- $names := list -}}
{{- if $c.provision }}{{ $names = append $names "provision" }}{{ end -}}
{{- if not (include "holdfast.perNode" .) }}{{ $names = append $names "attach" }}{{ end -}}
{{- if $c.resize }}{{ $names = append $names "resize" }}{{ end -}}
{{- if $c.snapshot }}{{ $names = append $names "snapshot" }}{{ end -}}
{{- if $c.groupSnapshot }}{{ $names = append $names "groupsnapshot" }}{{ end -}}
{{- if $c.health }}{{ $names = append $names "health" }}{{ end -}}
{{- join "," $names -}}
{{- end -}}

{{/* Whether capacity objects are written: a backend with attachments has no capacity limit. */}}
{{- define "holdfast.capacity" -}}
{{- if and .Values.controllers.capacity (include "holdfast.perNode" .) }}true{{ else }}false{{ end -}}
{{- end -}}

{{- define "holdfast.strictTopology" -}}
{{- $strict := toString .Values.controllers.strictTopology -}}
{{- if eq $strict "auto" }}{{ eq .Values.backend "local" }}{{ else }}{{ $strict }}{{ end -}}
{{- end -}}

{{- define "holdfast.logArgs" -}}
- --log-format={{ .Values.log.format }}
- --log-level={{ .Values.log.level }}
- --metrics-address=:{{ .Values.metricsPort }}
{{- end -}}

{{/* The pages over HTTPS: arguments, mount, volume. */}}
{{- define "holdfast.metricsArgs" -}}
{{- if .root.Values.metricsSecret }}
- --metrics-cert-file={{ .dir }}tls.crt
- --metrics-key-file={{ .dir }}tls.key
{{- end }}
{{- end -}}

{{- define "holdfast.metricsMount" -}}
{{- if .root.Values.metricsSecret }}
- name: metrics-tls
  mountPath: {{ .path }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "holdfast.metricsVolume" -}}
{{- with .Values.metricsSecret }}
- name: metrics-tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "holdfast.kubernetesArgs" -}}
{{- $c := .Values.controllers -}}
- --kubernetes
{{- if $c.provision }}
- --intents-namespace={{ include "holdfast.intents" . }}
{{- end }}
- --controllers={{ include "holdfast.controllers" . }}
- --enable-capacity={{ include "holdfast.capacity" . }}
- --extra-create-metadata={{ $c.extraCreateMetadata }}
- --strict-topology={{ include "holdfast.strictTopology" . }}
{{- if include "holdfast.perNode" . }}
- --node-objects-only={{ .Values.local.nodeObjectsOnly }}
{{- if include "holdfast.labelPolicy" . }}
- --node-label-policy={{ include "holdfast.volumeLabelPolicy" . }}
{{- end }}
{{- if include "holdfast.coordinator" . }}
- --leader-election=false
{{- end }}
{{- end }}
{{- with $c.defaultFSType }}
- --default-fstype={{ . }}
{{- end }}
{{- if $c.crossNamespaceSources }}
- --cross-namespace-sources
{{- end }}
{{- with $c.timeout }}
- --timeout={{ . }}
{{- end }}
{{- with $c.workerThreads }}
- --worker-threads={{ int . }}
{{- end }}
{{- with $c.retryIntervalStart }}
- --retry-interval-start={{ . }}
{{- end }}
{{- with $c.retryIntervalMax }}
- --retry-interval-max={{ . }}
{{- end }}
{{- range $controller, $limits := $c.limits }}
{{- range $name, $value := $limits }}
{{- with $value }}
- --{{ kebabcase $controller }}-{{ kebabcase $name }}={{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "holdfast.localArgs" -}}
{{- with .Values.local -}}
- --pool={{ .pool.path }}
- --overcommit={{ .pool.overcommit }}
{{- if .pool.requireMount }}
- --require-pool-mount
{{- end }}
{{- if .pool.image.file }}
- --pool-image={{ .pool.image.file }}
- --pool-image-size={{ .pool.image.size }}
{{- end }}
{{- with .pool.reserve }}
- --reserve={{ . }}
{{- end }}
{{- if .pool.adopt }}
- --adopt-pool
{{- end }}
{{- with .inlineMaxSize }}
- --inline-max-size={{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* key=value,key=value */}}
{{- define "holdfast.pairs" -}}
{{- $pairs := list -}}
{{- range $key, $value := . }}{{ $pairs = append $pairs (printf "%s=%s" $key $value) }}{{ end -}}
{{- join "," $pairs -}}
{{- end -}}

{{- define "holdfast.ebsControllerArgs" -}}
{{- with .Values.ebs -}}
{{- if not .region }}
- --metadata-sources={{ join "," .metadataSources }}
{{- end }}
{{- with .endpoint }}
- --ec2-endpoint={{ . }}
{{- end }}
{{- with .extraTags }}
- {{ printf "--extra-tags=%s" (include "holdfast.pairs" .) | quote }}
{{- end }}
{{- with .extraVolumeTags }}
- {{ printf "--extra-volume-tags=%s" (include "holdfast.pairs" .) | quote }}
{{- end }}
{{- with .clusterID }}
- --k8s-tag-cluster-id={{ . }}
{{- end }}
{{- if .warnOnInvalidTag }}
- --warn-on-invalid-tag
{{- end }}
{{- if .strictParameters }}
- --strict-parameters
{{- end }}
{{- if .nodeLocalVolumes }}
- --enable-node-local-volumes
{{- end }}
{{- if .labelNodes }}
- --label-nodes
{{- end }}
{{- if .sdkDebugLog }}
- --aws-sdk-debug-log
{{- end }}
{{- with .userAgentExtra }}
- --user-agent-extra={{ . }}
{{- end }}
{{- with .modifyVolumeWindow }}
- --modify-volume-window={{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Of a node of any system: which instance it is, and what it takes. */}}
{{- define "holdfast.ebsInstanceArgs" -}}
{{- with .Values.ebs -}}
- --metadata-sources={{ join "," .metadataSources }}
{{- if ge (int .volumeAttachLimit) 0 }}
- --volume-attach-limit={{ int .volumeAttachLimit }}
{{- end }}
{{- if ge (int .reservedVolumeAttachments) 0 }}
- --reserved-volume-attachments={{ int .reservedVolumeAttachments }}
{{- end }}
{{- if .removeStartupTaint }}
- --remove-startup-taint
{{- end }}
{{- end }}
{{- end -}}

{{- define "holdfast.ebsNodeArgs" -}}
{{- include "holdfast.ebsInstanceArgs" . -}}
{{- with .Values.ebs -}}
{{- if .legacyXFS }}
- --legacy-xfs
{{- end }}
{{- if ne .sysRoot "/sys" }}
- --sys-root={{ .sysRoot }}
{{- end }}
{{- if ne .devRoot "/dev" }}
- --dev-root={{ .devRoot }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The controller's: nodes have no credentials. */}}
{{- define "holdfast.ebsEnv" -}}
{{- with .Values.ebs -}}
{{- with .region }}
- name: AWS_REGION
  value: {{ . }}
{{- end }}
{{- if .fips }}
- name: AWS_USE_FIPS_ENDPOINT
  value: "true"
{{- end }}
{{- if .proxy.url }}
- name: HTTP_PROXY
  value: {{ .proxy.url | quote }}
- name: HTTPS_PROXY
  value: {{ .proxy.url | quote }}
- name: NO_PROXY
  value: {{ .proxy.noProxy | quote }}
{{- end }}
{{- if .credentials.secret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom: {secretKeyRef: {name: {{ .credentials.secret }}, key: {{ .credentials.keyID }}}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ .credentials.secret }}, key: {{ .credentials.accessKey }}}}
{{- end }}
{{- end }}
{{- end -}}

{{/* Whether a source of metadata is the Node object. */}}
{{- define "holdfast.readsNode" -}}
{{- if or (has "kubernetes" .Values.ebs.metadataSources) (has "metadata-labeler" .Values.ebs.metadataSources) }}true{{ end -}}
{{- end -}}

{{/* Whether a node's process asks the API server for anything. */}}
{{- define "holdfast.nodeAsks" -}}
{{- if include "holdfast.perNode" . }}true{{ else if or .Values.ebs.removeStartupTaint .Values.ebs.waitForDetach (include "holdfast.readsNode" .) }}true{{ end -}}
{{- end -}}

{{- define "holdfast.updatePeriod" -}}
{{- with .Values.ebs -}}
{{- if .allocatableUpdatePeriodSeconds }}{{ int .allocatableUpdatePeriodSeconds }}{{ else if eq (first .metadataSources) "imds" }}10{{ else }}300{{ end -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.env" -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
# Four fifths of it are Go's memory limit.
- name: MEMORY_LIMIT
  valueFrom: {resourceFieldRef: {resource: limits.memory}}
{{- if and (eq .Values.backend "ebs") .Values.ebs.fips }}
- name: GODEBUG
  value: fips140=on
{{- end }}
{{- end -}}

{{/* What the values of a half add to its pods. */}}
{{- define "holdfast.podExtras" -}}
{{- with .dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .initContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
Where a node half runs. On EKS, Fargate and hybrid nodes cannot have EBS volumes,
Auto Mode brings a driver of its own, and nodes of SageMaker HyperPod get volumes from
SageMaker's API alone.
*/}}
{{- define "holdfast.nodeAffinity" -}}
{{- if .Values.node.affinity }}
{{- toYaml .Values.node.affinity }}
{{- else if eq .Values.backend "ebs" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          - key: eks.amazonaws.com/compute-type
            operator: NotIn
            values: [fargate, auto, hybrid]
          - key: sagemaker.amazonaws.com/compute-type
            operator: NotIn
            values: [hyperpod]
{{- end }}
{{- end -}}

{{/* Where pods of Windows run. */}}
{{- define "holdfast.windowsPlace" -}}
nodeSelector:
  kubernetes.io/os: windows
  {{- with .Values.windows.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.windows.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A start may have a pool to repair first; liveness is for a process that hangs. */}}
{{- define "holdfast.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics{{ if .Values.metricsSecret }}, scheme: HTTPS{{ end }}}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 300
livenessProbe:
  httpGet: {path: /healthz, port: metrics{{ if .Values.metricsSecret }}, scheme: HTTPS{{ end }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics{{ if .Values.metricsSecret }}, scheme: HTTPS{{ end }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{/* The namespace of intents, which has no other objects. */}}
{{- define "holdfast.intents" -}}
{{- .Values.intents.namespace | default (printf "%s-intents" (include "holdfast.fullname" .)) -}}
{{- end -}}

{{/* What the schema cannot say. */}}
{{- define "holdfast.check" -}}
{{- if hasPrefix "kube-" .Release.Namespace -}}
{{- fail (printf "the namespace %s is the cluster's own: install into one for this release alone, such as holdfast-system (--namespace, --create-namespace)" .Release.Namespace) -}}
{{- end -}}
{{- if eq .Release.Namespace (include "holdfast.intents" .) -}}
{{- fail (printf "intents.namespace: %s is the release's namespace; the controllers may change every ConfigMap there, so the namespace must be for intents only" .Release.Namespace) -}}
{{- end -}}
{{- $image := .Values.local.pool.image -}}
{{- if ne (empty $image.file) (empty $image.size) -}}
{{- fail "local.pool.image.file and local.pool.image.size go together" -}}
{{- end -}}
{{- if and $image.file (ne (dir $image.file) (dir .Values.local.pool.path)) -}}
{{- fail (printf "local.pool.image.file %s: want a file in %s, the directory that is mounted into the container" $image.file (dir .Values.local.pool.path)) -}}
{{- end -}}
{{- range list (printf "%s/plugins/%s/csi.sock" .Values.kubeletDir (include "holdfast.driverName" .)) (printf "%s/plugins_registry/%s-reg.sock" .Values.kubeletDir (include "holdfast.driverName" .)) -}}
{{- if gt (len .) 107 -}}
{{- fail (printf "%s: a socket's path has 107 bytes at most, this one has %d; shorten kubeletDir or driverName" . (len .)) -}}
{{- end -}}
{{- end -}}
{{- if and (ge (int .Values.ebs.volumeAttachLimit) 0) (ge (int .Values.ebs.reservedVolumeAttachments) 0) -}}
{{- fail "ebs.volumeAttachLimit and ebs.reservedVolumeAttachments exclude each other: a fixed limit leaves nothing to reserve" -}}
{{- end -}}
{{- if and .Values.local.coordinator.enabled (not .Values.local.nodeObjectsOnly) -}}
{{- fail "local.coordinator.enabled needs local.nodeObjectsOnly: other nodes' processes need no coordinator" -}}
{{- end -}}
{{- if and .Values.windows.enabled (eq .Values.backend "local") -}}
{{- fail "windows.enabled: the backend local has no Windows half" -}}
{{- end -}}
{{- if and .Values.controllers.groupSnapshot (not .Values.controllers.snapshot) -}}
{{- fail "controllers.groupSnapshot needs controllers.snapshot: the members of a group are snapshots" -}}
{{- end -}}
{{- if and .Values.controllers.capacity (not .Values.controllers.provision) -}}
{{- fail "controllers.capacity needs controllers.provision: capacity is offered for new volumes" -}}
{{- end -}}
{{- end -}}
