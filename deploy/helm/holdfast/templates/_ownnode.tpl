{{- /*
A policy of admission for the account of per-node processes, and its binding; with
coordinator, for the account of the coordinator. The token of a pod names the pod's
node (KEP-4193): the variable node is "" for a token that names none, which may change
nothing. The variables before and after are the objects as lists, which are empty for a
creation and a deletion.
*/ -}}
{{- define "holdfast.ownNodePolicy" -}}
{{- $name := include "holdfast.clusterName" (dict "root" .root "suffix" (printf "-%s-%s" (ternary "coordinator" "node" (not (empty .coordinator))) .name)) }}
{{- $account := printf "system:serviceaccount:%s:%s" .root.Release.Namespace (include (ternary "holdfast.controllerAccount" "holdfast.nodeAccount" (not (empty .coordinator))) .root) }}
{{- $who := ternary "the coordinator of the nodes" "the driver of a node" (not (empty .coordinator)) -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels: {{- include "holdfast.labels" .root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [{{ join ", " .groups | default `""` }}]
        apiVersions: ["*"]
        resources: [{{ join ", " .resources }}]
        operations: [CREATE, UPDATE, DELETE]
  matchConditions:
    - name: {{ ternary "the-coordinator" "a-node" (not (empty .coordinator)) }}
      expression: request.userInfo.username == "{{ $account }}"
  variables:
    - name: extra
      expression: 'has(request.userInfo.extra) && "authentication.kubernetes.io/node-name" in request.userInfo.extra ? request.userInfo.extra["authentication.kubernetes.io/node-name"] : []'
    - name: node
      expression: 'variables.extra.size() == 1 ? variables.extra[0] : ""'
    - name: before
      expression: 'request.operation == "CREATE" ? [] : [oldObject]'
    - name: after
      expression: 'request.operation == "DELETE" ? [] : [object]'
    - name: both
      expression: variables.before + variables.after
    - name: annotationsBefore
      expression: "has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}"
    - name: annotationsAfter
      expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
    - name: labelsBefore
      expression: "has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}"
    - name: labelsAfter
      expression: "has(object.metadata.labels) ? object.metadata.labels : {}"
    - name: finalizersBefore
      expression: "has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : []"
    - name: finalizersAfter
      expression: "has(object.metadata.finalizers) ? object.metadata.finalizers : []"
    # What the coordinating process writes to objects of all nodes.
    - name: coordinates
      expression: >-
        {{ .coordinates | default "false" }}
  validations:
    {{- .validations | nindent 4 }}
    {{- if ne .name "capacity" }}
    # The garbage collector deletes what has only owners that do not exist.
    - expression: >-
        request.operation != "UPDATE" ||
        (has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : []) == (has(oldObject.metadata.ownerReferences) ? oldObject.metadata.ownerReferences : [])
      message: {{ $who }} changes no owner of an object
      reason: Forbidden
    {{- end }}
    {{- with .metadata }}
    - expression: >-
        request.operation == "UPDATE" && object.spec == oldObject.spec
      message: {{ $who }} changes no spec of this kind, and makes and deletes no object of it
      reason: Forbidden
    {{- if .nodeLabel }}
    - expression: >-
        variables.labelsAfter.all(k, k == "holdfast.dev/node" || k in variables.labelsBefore && variables.labelsBefore[k] == variables.labelsAfter[k]) &&
        variables.labelsBefore.all(k, k in variables.labelsAfter)
      message: {{ $who }} changes the label holdfast.dev/node alone
      reason: Forbidden
    {{- else if not .labels }}
    - expression: variables.labelsAfter == variables.labelsBefore
      message: {{ $who }} changes no label of this kind
      reason: Forbidden
    {{- end }}
    - expression: >-
        variables.annotationsAfter.all(k, k in {{ toJson .annotations }} || k in variables.annotationsBefore && variables.annotationsBefore[k] == variables.annotationsAfter[k]) &&
        variables.annotationsBefore.all(k, k in {{ toJson .annotations }} || k in variables.annotationsAfter)
      message: {{ $who }} changes the annotations {{ join ", " .annotations | default "of no object of this kind" }}
      reason: Forbidden
    {{- if .finalizers }}
    - expression: >-
        variables.finalizersAfter.filter(f, !(f in {{ toJson .finalizers }})) == variables.finalizersBefore.filter(f, !(f in {{ toJson .finalizers }}))
      message: {{ $who }} changes the finalizers {{ join ", " .finalizers }} alone
      reason: Forbidden
    {{- end }}
    {{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels: {{- include "holdfast.labels" .root | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
{{- end -}}

{{- define "holdfast.ownVolumes" -}}
- expression: >-
    variables.node != "" && variables.both.all(pv, has(pv.spec.csi) && pv.spec.csi.driver == "{{ .driver }}") &&
    (variables.coordinates || variables.both.all(pv,
      (request.operation != "CREATE" && variables.both.all(v, !has(v.spec.nodeAffinity)) || has(pv.spec.nodeAffinity) && has(pv.spec.nodeAffinity.required) && pv.spec.nodeAffinity.required.nodeSelectorTerms.size() > 0 &&
      pv.spec.nodeAffinity.required.nodeSelectorTerms.all(term, has(term.matchExpressions) &&
        term.matchExpressions.exists(e, e.key == "{{ .key }}" && e.operator == "In" && e.values == [variables.node])))))
  message: the driver of a node may make PersistentVolumes of its own volumes, and change and delete those and volumes without a node
  reason: Forbidden
- expression: >-
    request.operation != "UPDATE" ||
    has(object.spec.claimRef) == has(oldObject.spec.claimRef) && (!has(object.spec.claimRef) || object.spec.claimRef == oldObject.spec.claimRef)
  message: the driver of a node changes no claimRef
  reason: Forbidden
- expression: >-
    variables.after.all(pv, !has(pv.metadata.annotations) || {{ toJson .made }}.all(k,
      !(k in pv.metadata.annotations) || pv.metadata.annotations[k] == "{{ .driver }}"))
  message: the provisioner of another driver would delete the volume of that handle
  reason: Forbidden
{{- if not .secrets }}
- expression: >-
    variables.after.all(pv, !has(pv.spec.csi.controllerPublishSecretRef) && !has(pv.spec.csi.controllerExpandSecretRef) &&
      !has(pv.spec.csi.nodeStageSecretRef) && !has(pv.spec.csi.nodePublishSecretRef) && !has(pv.spec.csi.nodeExpandSecretRef))
  message: a PersistentVolume that names a Secret would let the kubelet of the node read it; rbac.secrets allows it
  reason: Forbidden
{{- end }}
{{- end -}}
{{- define "holdfast.ownClaims" -}}
- expression: >-
    variables.node != "" && (variables.coordinates || variables.both.all(pvc, !has(pvc.metadata.annotations) || {{ toJson .selected }}.all(k,
      !(k in pvc.metadata.annotations) || pvc.metadata.annotations[k] in ["", variables.node])))
  message: the driver of a node may change claims for which its node is selected, or none
  reason: Forbidden
{{- if not .selects }}
- expression: >-
    {{ toJson .selected }}.all(k, !(k in variables.annotationsAfter) || k in variables.annotationsBefore && variables.annotationsBefore[k] == variables.annotationsAfter[k])
  message: the driver of a node ends its selection for a claim, and the coordinator makes it
  reason: Forbidden
{{- end }}
{{ include "holdfast.claimsOfTheDriver" . }}
{{- end -}}
{{- define "holdfast.claimsOfTheDriver" -}}
- expression: >-
    variables.both.all(pvc, !has(pvc.metadata.annotations) || {{ toJson .provisioner }}.all(k,
      !(k in pvc.metadata.annotations) || pvc.metadata.annotations[k] == "{{ .driver }}"))
  message: the claim is of another driver
  reason: Forbidden
{{- end -}}
{{- define "holdfast.ownSnapshots" -}}
- expression: variables.node != ""
  message: the token names no node
  reason: Forbidden
- expression: >-
    variables.finalizersAfter.all(f, f in variables.finalizersBefore) ||
    has(object.status) && has(object.status.boundVolumeSnapshotContentName) && has(object.status.readyToUse) && object.status.readyToUse
  message: the driver of a node protects snapshots that are bound and ready to be restored
  reason: Forbidden
{{- end -}}
{{- define "holdfast.ownContents" -}}
- expression: >-
    variables.node != "" && variables.both.all(content, content.spec.driver == "{{ .driver }}") &&
    (variables.coordinates || variables.both.all(content, !has(content.metadata.labels) ||
      !("{{ .managed }}" in content.metadata.labels) || content.metadata.labels["{{ .managed }}"] in ["", variables.node]))
  message: the driver of a node may change snapshot contents of its own node, or of none
  reason: Forbidden
{{ include "holdfast.contentLabels" . }}
{{- end -}}
{{- define "holdfast.contentLabels" -}}
- expression: >-
    request.operation != "UPDATE" ||
    variables.labelsBefore.all(k, k in variables.labelsAfter && (variables.labelsAfter[k] == variables.labelsBefore[k] || k == "{{ .managed }}" && variables.labelsBefore[k] == "")) &&
    variables.labelsAfter.all(k, k == "{{ .managed }}" || k in variables.labelsBefore)
  message: a content gets the label {{ .managed }} once, and no other label changes
  reason: Forbidden
{{- end -}}
{{- define "holdfast.ownCapacity" -}}
- expression: >-
    variables.node != "" && variables.both.all(c, has(c.nodeTopology) && has(c.nodeTopology.matchLabels) && !has(c.nodeTopology.matchExpressions) &&
      c.nodeTopology.matchLabels == {"{{ .key }}": variables.node} &&
      has(c.metadata.labels) && "csi.storage.k8s.io/drivername" in c.metadata.labels && c.metadata.labels["csi.storage.k8s.io/drivername"] == "{{ .driver }}")
  message: the driver of a node may write the capacity of its own node alone
  reason: Forbidden
{{- end -}}
{{- define "holdfast.ownLeases" -}}
- expression: >-
    variables.node != "" && ["pod-name", "pod-uid"].all(k, "authentication.kubernetes.io/" + k in request.userInfo.extra) &&
    variables.after.all(l, !has(l.spec) || !has(l.spec.holderIdentity) || l.spec.holderIdentity in ["",
      request.userInfo.extra["authentication.kubernetes.io/pod-name"][0] + "_" + request.userInfo.extra["authentication.kubernetes.io/pod-uid"][0]])
  message: a process may hold the Lease under the name of its own pod alone
  reason: Forbidden
{{- end -}}
{{- define "holdfast.ownIntents" -}}
- expression: >-
    variables.node != "" && variables.both.all(c, c.metadata.name.startsWith("{{ .intents }}" + variables.node + "-") &&
      c.metadata.name.substring(size("{{ .intents }}" + variables.node + "-")).matches("^[0-9]+$"))
  message: the driver of a node may write the intents of its own node alone
  reason: Forbidden
{{- end -}}
{{- define "holdfast.coordinatorIntents" -}}
- expression: variables.both.all(c, (!has(c.data) || c.data.size() == 0) && c.metadata.name.startsWith("{{ .intents }}"))
  message: the coordinator of the nodes changes and removes ConfigMaps without intents alone
  reason: Forbidden
{{- end -}}
{{- /* What the process writes that coordinates all nodes: labels of any node, selections that are missing or stale, finalizers of sources that are being deleted. */ -}}
{{- define "holdfast.plainUpdate" -}}
request.operation == "UPDATE" && (!has(request.subResource) || request.subResource == "") && object.spec == oldObject.spec
{{- end -}}
{{- define "holdfast.coordinatesVolume" -}}
{{ include "holdfast.plainUpdate" . }} && variables.annotationsAfter == variables.annotationsBefore && variables.finalizersAfter == variables.finalizersBefore && variables.labelsAfter.all(k, k == "holdfast.dev/node" || k in variables.labelsBefore && variables.labelsBefore[k] == variables.labelsAfter[k]) && variables.labelsBefore.all(k, k in variables.labelsAfter)
{{- end -}}
{{- define "holdfast.coordinatesContent" -}}
{{ include "holdfast.plainUpdate" . }} && variables.annotationsAfter == variables.annotationsBefore && variables.finalizersAfter == variables.finalizersBefore && !("{{ .managed }}" in variables.labelsBefore && variables.labelsBefore["{{ .managed }}"] != "")
{{- end -}}
{{- define "holdfast.coordinatesClaim" -}}
{{ include "holdfast.plainUpdate" . }} && (variables.finalizersAfter == variables.finalizersBefore || has(object.metadata.deletionTimestamp)) && {{ toJson .selected }}.all(k, (k in variables.annotationsAfter ? variables.annotationsAfter[k] : "") == (k in variables.annotationsBefore ? variables.annotationsBefore[k] : "") || (!has(object.spec.volumeName) || object.spec.volumeName == "") && (!(k in variables.annotationsAfter) || !(k in variables.annotationsBefore)))
{{- end -}}
{{- define "holdfast.coordinatorVolumes" -}}
- expression: >-
    variables.coordinates && variables.both.all(pv, has(pv.spec.csi) && pv.spec.csi.driver == "{{ .driver }}")
  message: the coordinator of the nodes labels PersistentVolumes of the driver with their node, and changes nothing else of them
  reason: Forbidden
{{- end -}}
{{- define "holdfast.coordinatorClaims" -}}
- expression: variables.coordinates
  message: the coordinator of the nodes labels claims and selects their node until they have a volume
  reason: Forbidden
{{ include "holdfast.claimsOfTheDriver" . }}
{{- end -}}
{{- define "holdfast.coordinatorSnapshots" -}}
- expression: >-
    variables.after.all(s, has(s.metadata.deletionTimestamp) && variables.finalizersAfter.all(f, f in variables.finalizersBefore))
  message: the coordinator of the nodes removes finalizers of snapshots that are being deleted
  reason: Forbidden
{{- end -}}
{{- define "holdfast.coordinatorContents" -}}
- expression: >-
    variables.coordinates && variables.both.all(content, content.spec.driver == "{{ .driver }}")
  message: the coordinator of the nodes labels snapshot contents that have no node
  reason: Forbidden
{{ include "holdfast.contentLabels" . }}
{{- end -}}
