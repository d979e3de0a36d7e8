{{/*
A webhook of "holdfast policy webhook" as a server: everything but its
configuration. Given: root, name, component, webhook (its values), args (of the
rule, YAML), and token, whether it asks the API server.
*/}}
{{- define "holdfast.webhook" -}}
{{- $root := .root -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "holdfast.labels" $root | nindent 4 }}
automountServiceAccountToken: false
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "holdfast.labels" $root | nindent 4 }}
spec:
  selector: {{- include "holdfast.selector" (dict "root" $root "component" .component) | nindent 4 }}
  ports:
    - {name: https, port: 443, targetPort: https}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "holdfast.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  replicas: {{ .webhook.replicas }}
  selector:
    matchLabels: {{- include "holdfast.selector" (dict "root" $root "component" .component) | nindent 6 }}
  template:
    metadata:
      labels: {{- include "holdfast.podLabels" (dict "root" $root "component" .component) | nindent 8 }}
    spec:
      serviceAccountName: {{ .name }}
      automountServiceAccountToken: {{ .token }}
      enableServiceLinks: false
      priorityClassName: {{ .webhook.priorityClassName }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      nodeSelector: {kubernetes.io/os: linux}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "holdfast.selector" (dict "root" $root "component" .component) | nindent 14 }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: webhook
          image: {{ include "holdfast.image" (dict "root" $root "image" $root.Values.image) }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            - policy
            - webhook
            - --listen=:8443
            - --cert-file=/certificate/tls.crt
            - --key-file=/certificate/tls.key
            {{- range fromYamlArray .args }}
            - {{ . }}
            {{- end }}
            {{- include "holdfast.logArgs" $root | nindent 12 }}
          ports:
            - {name: https, containerPort: 8443}
          readinessProbe:
            httpGet: {path: /healthz, port: https, scheme: HTTPS}
          livenessProbe:
            httpGet: {path: /healthz, port: https, scheme: HTTPS}
            failureThreshold: 5
          resources: {{- toYaml .webhook.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: certificate, mountPath: /certificate, readOnly: true}
      volumes:
        - name: certificate
          secret: {secretName: {{ .webhook.secretName }}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "holdfast.labels" $root | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "holdfast.selector" (dict "root" $root "component" .component) | nindent 6 }}
{{- end -}}

{{/* A webhook of a configuration. Given: root, name (of the service), hook, path, webhook, exempt, rules. */}}
{{- define "holdfast.webhookClient" -}}
- name: {{ .hook }}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: {{ .webhook.failurePolicy }}
  matchPolicy: Equivalent
  timeoutSeconds: 5
  clientConfig:
    {{- with .webhook.caBundle }}
    caBundle: {{ . }}
    {{- end }}
    service: {name: {{ .name }}, namespace: {{ .root.Release.Namespace }}, path: {{ .path }}, port: 443}
  namespaceSelector:
    matchExpressions:
      # Its own pods must be able to start while it does not answer.
      - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ prepend .exempt .root.Release.Namespace | uniq | toJson }}}
  rules: {{- .rules | nindent 4 }}
{{- end -}}
