package host_test

import (
	"encoding/base64"
	"strings"
)

// openMark is planted where no secret is: in names, and in what the vendor's driver says.
// A surface that has it would show a secret that is there.
const openMark = "openmarker4700"

// The marks of the planted secrets. Each is the value of one place.
const (
	markOfPod      = "marker4711ofapod"       // a Secret that containers refer to
	markOfCalls    = "marker4712ofcalls"      // a Secret that the class gives to the calls of Holdfast's driver
	markOfInline   = "marker4713ofinline"     // a Secret of an inline volume
	markOfMistakes = "marker4714ofmistakes"   // a Secret that is refused, in several ways
	markOfBinary   = "marker4715ofbinary"     // a value that no variable can carry
	markOfVendor   = "marker4716ofthevendor"  // a Secret that a vendor's driver repeats
	markOfPage     = "marker4717ofthepage"    // the token of the status page
	markOfGuess    = "marker4718ofaguess"     // a token that is wrong, and may be right elsewhere
	markOfCommand  = "marker4719ofthecommand" // a Secret in a file for 'holdfast csi'
)

func marks() []string {
	return []string{markOfPod, markOfCalls, markOfInline, markOfMistakes, markOfBinary, markOfVendor, markOfPage, markOfGuess, markOfCommand}
}

// secretOf is a value that is quoted in most texts.
func secretOf(mark string) string { return `it's "` + mark + `" & more` }

// planted are the manifests.
func planted() string {
	quoted := func(mark string) string { return "'" + strings.ReplaceAll(secretOf(mark), "'", "''") + "'" }
	return strings.NewReplacer("OPEN", openMark, "OFPOD", quoted(markOfPod), "JSONPOD", markOfPod, "OFCALLS", quoted(markOfCalls),
		"OFINLINE", quoted(markOfInline), "OFVENDOR", quoted(markOfVendor)).Replace(plantedObjects)
}

const plantedObjects = `
apiVersion: v1
kind: Secret
metadata: {name: OPEN, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"stringData":{"p":"JSONPOD"}}'}}
stringData: {p: OFPOD}
---
apiVersion: v1
kind: Secret
metadata: {name: calls}
stringData: {password: OFCALLS}
---
apiVersion: v1
kind: Secret
metadata: {name: inline}
stringData: {token: OFINLINE}
---
apiVersion: v1
kind: Secret
metadata: {name: vendor}
stringData: {password: OFVENDOR}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: secretive}
provisioner: local.holdfast.dev
parameters:
  csi.storage.k8s.io/provisioner-secret-name: calls
  csi.storage.k8s.io/provisioner-secret-namespace: default
  csi.storage.k8s.io/controller-publish-secret-name: calls
  csi.storage.k8s.io/controller-publish-secret-namespace: default
  csi.storage.k8s.io/node-stage-secret-name: calls
  csi.storage.k8s.io/node-stage-secret-namespace: default
  csi.storage.k8s.io/node-publish-secret-name: calls
  csi.storage.k8s.io/node-publish-secret-namespace: default
  csi.storage.k8s.io/controller-expand-secret-name: calls
  csi.storage.k8s.io/controller-expand-secret-namespace: default
  csi.storage.k8s.io/node-expand-secret-name: calls
  csi.storage.k8s.io/node-expand-secret-namespace: default
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: vendor.example}
spec: {attachRequired: true, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: vendor}
provisioner: vendor.example
allowVolumeExpansion: true
parameters:
  csi.storage.k8s.io/provisioner-secret-name: vendor
  csi.storage.k8s.io/provisioner-secret-namespace: default
  csi.storage.k8s.io/controller-publish-secret-name: vendor
  csi.storage.k8s.io/controller-publish-secret-namespace: default
  csi.storage.k8s.io/node-stage-secret-name: vendor
  csi.storage.k8s.io/node-stage-secret-namespace: default
  csi.storage.k8s.io/node-publish-secret-name: vendor
  csi.storage.k8s.io/node-publish-secret-namespace: default
  csi.storage.k8s.io/controller-expand-secret-name: vendor
  csi.storage.k8s.io/controller-expand-secret-namespace: default
  csi.storage.k8s.io/node-expand-secret-name: vendor
  csi.storage.k8s.io/node-expand-secret-namespace: default
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: vendor}
driver: vendor.example
deletionPolicy: Delete
parameters:
  csi.storage.k8s.io/snapshotter-secret-name: vendor
  csi.storage.k8s.io/snapshotter-secret-namespace: default
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: OPEN}
spec: {storageClassName: secretive, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: OPEN-vendor}
spec: {storageClassName: vendor, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: OPEN}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    command: [sh, -c, 'exec sleep infinity']
    env: [{name: P, valueFrom: {secretKeyRef: {name: OPEN, key: p}}}]
    envFrom: [{prefix: S_, secretRef: {name: OPEN}}]
    volumeMounts: [{name: data, mountPath: /srv/data}, {name: scratch, mountPath: /srv/scratch}, {name: s, mountPath: /run/s}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: OPEN}}
  - {name: s, projected: {sources: [{secret: {name: OPEN}}]}}
  - {name: scratch, csi: {driver: local.holdfast.dev, volumeAttributes: {size: 16Mi}, nodePublishSecretRef: {name: inline}}}
---
apiVersion: v1
kind: Pod
metadata: {name: OPEN-vendor}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    command: [sh, -c, 'exec sleep infinity']
    volumeMounts: [{name: data, mountPath: /srv/data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: OPEN-vendor}}]
`

// mistakes are refused, or cannot be started; what is said of them must quote no value.
func mistakes() []string {
	binary := base64.StdEncoding.EncodeToString([]byte(markOfBinary + "\x00"))
	return []string{
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {k: " + markOfMistakes + "!}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: [" + markOfMistakes + "]}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {'a b': " + markOfMistakes + "}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nimmutable: " + markOfMistakes + "\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: *" + markOfMistakes + "}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: " + openMark + "}\ntype: " + markOfMistakes + "\nstringData: {p: " + markOfMistakes + "}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: binary}\ndata: {k: " + binary + "}\n---\n" +
			"apiVersion: v1\nkind: Pod\nmetadata: {name: stuck}\nspec: {containers: [{name: main, command: [cat], envFrom: [{secretRef: {name: binary}}]}]}\n",
	}
}
