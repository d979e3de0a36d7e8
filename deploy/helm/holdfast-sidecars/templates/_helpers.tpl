{{- define "sidecars.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of an object without a namespace: two releases of one name have their own. */}}
{{- define "sidecars.clusterName" -}}
{{- printf "%s.%s" (include "sidecars.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "sidecars.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sidecars.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "sidecars.intents" -}}
{{- .Values.intents.namespace | default (printf "%s-intents" (include "sidecars.fullname" .)) -}}
{{- end -}}

{{/* The account of the pods whose process runs the controllers. */}}
{{- define "sidecars.account" -}}
{{- printf "%s-%s" (include "sidecars.fullname" .root) .component -}}
{{- end -}}

{{- define "sidecars.acting" -}}
{{- include "sidecars.account" (dict "root" . "component" (ternary "node" "controller" .Values.nodeDeployment)) -}}
{{- end -}}

{{/* What the schema cannot say. */}}
{{- define "sidecars.check" -}}
{{- if hasPrefix "kube-" .Release.Namespace -}}
{{- fail (printf "the namespace %s is the cluster's own: install into one for this driver, such as %s-system (--namespace, --create-namespace)" .Release.Namespace .Release.Name) -}}
{{- end -}}
{{- if eq .Release.Namespace (include "sidecars.intents" .) -}}
{{- fail (printf "intents.namespace: %s is the release's namespace; the controllers may change every ConfigMap there, so the namespace must be for intents only" .Release.Namespace) -}}
{{- end -}}
{{- if and (not .Values.nodeDeployment) (not .Values.controller.driver.image) -}}
{{- fail "controller.driver.image: the image of the driver's controller service is missing; or set nodeDeployment" -}}
{{- end -}}
{{- range list (printf "%s/plugins/%s/csi.sock" .Values.kubeletDir .Values.driverName) (printf "%s/plugins_registry/%s-reg.sock" .Values.kubeletDir .Values.driverName) -}}
{{- if gt (len .) 107 -}}
{{- fail (printf "%s: a socket's path has 107 bytes at most, this one has %d; shorten kubeletDir" . (len .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A pod with the driver and Holdfast. Given: root, component, pod (its values), controllers (whether they run here). */}}
{{- define "sidecars.pod" -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "sidecars.selector" (dict "root" $root "component" .component) | nindent 4 }}
    {{- with $root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ .pod.driver.name | default "driver" }}
    {{- with $root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "sidecars.account" (dict "root" $root "component" .component) }}
  priorityClassName: {{ .pod.priorityClassName }}
  hostNetwork: {{ .pod.hostNetwork }}
  {{- if .pod.hostNetwork }}
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  enableServiceLinks: false
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  nodeSelector:
    kubernetes.io/os: linux
    {{- with .pod.nodeSelector }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .pod.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq .component "controller" }}
  topologySpreadConstraints:
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "sidecars.selector" (dict "root" $root "component" "controller") | nindent 10 }}
    {{- end }}
  {{- end }}
  containers:
    {{- $driver := omit .pod.driver "volumeMounts" "livenessProbe" }}
    - {{- toYaml (merge (dict "name" (.pod.driver.name | default "driver")) $driver) | nindent 6 }}
      livenessProbe:
        {{- if .pod.driver.livenessProbe }}
        {{- toYaml .pod.driver.livenessProbe | nindent 8 }}
        {{- else }}
        httpGet: {path: /healthz, port: driver-health}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
        {{- end }}
      volumeMounts:
        - name: socket-dir
          mountPath: /csi
        {{- with .pod.driver.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    - name: holdfast
      image: {{ printf "%s:%s" $root.Values.image.repository ($root.Values.image.tag | default $root.Chart.AppVersion) }}{{ with $root.Values.image.digest }}@{{ . }}{{ end }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args:
        - sidecars
        - --csi-address=/csi/csi.sock
        {{- if eq .component "node" }}
        - --registration-dir=/registration
        - --kubelet-registration-path={{ $root.Values.kubeletDir }}/plugins/{{ $root.Values.driverName }}/csi.sock
        {{- end }}
        - --log-format={{ $root.Values.log.format }}
        - --log-level={{ $root.Values.log.level }}
        - --metrics-address=:{{ $root.Values.metricsPort }}
        - --driver-health-address=:{{ $root.Values.driverHealthPort }}
        {{- if .controllers }}
        - --intents-namespace={{ include "sidecars.intents" $root }}
        {{- if $root.Values.nodeDeployment }}
        - --node-deployment
        - --strict-topology
        {{- end }}
        {{- with $root.Values.args }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- else }}
        - --controllers=none
        {{- end }}
      env:
        - name: NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: POD_UID
          valueFrom: {fieldRef: {fieldPath: metadata.uid}}
        - name: POD_NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
      ports:
        - {name: metrics, containerPort: {{ $root.Values.metricsPort }}}
        - {name: driver-health, containerPort: {{ $root.Values.driverHealthPort }}}
      livenessProbe:
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: metrics}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 3
      resources: {{- toYaml .pod.resources | nindent 8 }}
      securityContext:
        # The driver's socket is root's.
        runAsUser: 0
        runAsNonRoot: false
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
        seccompProfile: {type: RuntimeDefault}
      volumeMounts:
        - name: socket-dir
          mountPath: /csi
        {{- if eq .component "node" }}
        - name: registration-dir
          mountPath: /registration
        {{- end }}
  volumes:
    - name: socket-dir
      {{- if eq .component "node" }}
      hostPath: {path: {{ $root.Values.kubeletDir }}/plugins/{{ $root.Values.driverName }}, type: DirectoryOrCreate}
    - name: registration-dir
      hostPath: {path: {{ $root.Values.kubeletDir }}/plugins_registry, type: Directory}
      {{- else }}
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
      {{- end }}
    {{- with .pod.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
