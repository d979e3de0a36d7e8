{{/* The objects that a mode's policies match: pods, and templates in modes that reject nothing. */}}
{{- define "holdfast.inlineRules" -}}
- {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
{{- if ne .mode "enforce" }}
{{- range include "holdfast.pipePolicyKinds" .root | fromYamlArray }}
{{- if ne .name "pods" }}
{{- range .rules }}
- {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The part of a policy's specification that both policies of a mode share. */}}
{{- define "holdfast.inlineMatch" -}}
failurePolicy: Fail
matchConstraints:
  matchPolicy: Equivalent
  {{- with include "holdfast.inlineNamespaces" .root }}
  {{- nindent 2 . }}
  {{- end }}
  resourceRules: {{- include "holdfast.inlineRules" . | nindent 4 }}
{{- include "holdfast.pipeConditions" .root | nindent 0 }}
{{- end -}}

{{- define "holdfast.inlineNamespaces" -}}
{{- with .Values.inlinePolicy.exemptNamespaces -}}
namespaceSelector:
  matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ toJson . }}}
{{- end }}
{{- end -}}

{{/* The inline volumes of what has a pod in it, and how messages call it. */}}
{{- define "holdfast.inlineVariables" -}}
- name: isPod
  expression: request.kind.kind == "Pod"
- name: volumes
  expression: >-
    (variables.isPod ? dyn(object).?spec.?volumes :
    request.kind.kind == "CronJob" ? dyn(object).?spec.?jobTemplate.?spec.?template.?spec.?volumes :
    request.kind.kind == "PodTemplate" ? dyn(object).?template.?spec.?volumes :
    dyn(object).?spec.?template.?spec.?volumes).orValue([]).filter(v, has(v.csi))
- name: subject
  expression: >-
    request.kind.kind + " " + request.namespace + "/" +
    (object.metadata.?name.orValue("") != "" ? object.metadata.name : object.metadata.?generateName.orValue(""))
{{- end -}}

{{/* A validation: "list" is the variable with the volumes that violate a rule. */}}
{{- define "holdfast.inlineValidation" -}}
- expression: {{ printf "%ssize(variables.%s) == 0" (ternary "" "variables.isPod || " (or .modes (eq .mode "enforce"))) .list | quote }}
  messageExpression: >-
    variables.subject + ": inline volume " + variables.{{ .list }}[0].name +
    (size(variables.{{ .list }}) > 1 ? " (and " + string(size(variables.{{ .list }}) - 1) + " more)" : "") +
    ": driver " + variables.{{ .list }}[0].csi.driver + {{ .message }}
  message: {{ .short }}
  reason: Forbidden
{{- end -}}

{{/* A binding of a policy: what is done in its mode. */}}
{{- define "holdfast.inlineBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels: {{- include "holdfast.labels" .root | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [{{ get (dict "enforce" "Deny" "warn" "Warn" "audit" "Audit") .mode }}]
{{- end -}}
