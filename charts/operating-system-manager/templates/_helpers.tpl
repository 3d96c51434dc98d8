{{/* Name of every object in the release's namespace. The name of this chart is long, so only `nameOverride` is added to that of the release, unless
     it is part of it. With the suffix `-renewal`, it must be valid for a CronJob: at most 52 characters. With `-osp-controller`, it must be valid for
     a Service: lowercase letters, digits and `-`, starting with a letter. The name of the release may contain dots and start with a digit. */}}
{{- define "osm.name" -}}
{{- $name := .Release.Name -}}
{{- if and .Values.nameOverride (not (contains .Values.nameOverride $name)) -}}
{{- $name = printf "%s-%s" $name .Values.nameOverride -}}
{{- end -}}
{{- $name = regexReplaceAll "^[0-9]" (.Values.fullnameOverride | default $name) "osm-${0}" | replace "." "-" | trunc 44 -}}
{{- regexReplaceAll "-+$" $name "" -}}
{{- end -}}

{{/* Name of the ServiceAccount of a service; `key` is its key in values. */}}
{{- define "osm.serviceAccount" -}}
{{- get (.root.Values.serviceAccountNames | default dict) .key | default (printf "%s-%s" (include "osm.name" .root) .service) -}}
{{- end -}}

{{/* Who a service is in the cluster of this release: `users` and `groups`, as the API server names them to an admission policy. */}}
{{- define "osm.identities" -}}
{{- $users := list }}
{{- $groups := list }}
{{- range get .root.Values.workerCluster.subjects .key | default list }}
{{- if eq .kind "ServiceAccount" }}
{{- $users = append $users (printf "system:serviceaccount:%s:%s" .namespace .name) }}
{{- else if eq .kind "Group" }}
{{- $groups = append $groups .name }}
{{- else }}
{{- $users = append $users .name }}
{{- end }}
{{- else }}
{{- $users = append $users (printf "system:serviceaccount:%s:%s" .root.Release.Namespace (include "osm.serviceAccount" .)) }}
{{- end }}
{{- dict "users" $users "groups" $groups | toJson }}
{{- end -}}

{{/* Prefix of the names of cluster-scoped objects, and of Roles in namespaces that contain Roles of other releases. */}}
{{- define "osm.global" -}}
osm:{{ .Release.Namespace }}:{{ .Release.Name }}
{{- end -}}

{{- define "osm.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* osmctl finds the services by `part-of`. In a chart that has this one as a dependency, `.Chart.Name` can be another name. */}}
{{- define "osm.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{ include "osm.selector" . }}
app.kubernetes.io/part-of: operating-system-manager
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The metadata of an object: `root` and `name`, and if it has them, `namespace`, `component`, `labels` and `annotations`. Its own labels and annotations
     replace those of all objects. With `keep`, Helm and Argo CD don't delete it. */}}
{{- define "osm.metadata" -}}
{{- $labels := include "osm.labels" .root | fromYaml -}}
{{- with .component -}}
{{- $_ := set $labels "app.kubernetes.io/component" . -}}
{{- end -}}
{{- $annotations := deepCopy (.root.Values.commonAnnotations | default dict) -}}
{{- if .keep -}}
{{- $annotations = mergeOverwrite $annotations (dict "helm.sh/resource-policy" "keep" "argocd.argoproj.io/sync-options" "Prune=false,Delete=false") -}}
{{- end -}}
name: {{ quote .name }}
{{- with .namespace }}
namespace: {{ quote . }}
{{- end }}
labels:
  {{- mergeOverwrite $labels (.labels | default dict) | toYaml | nindent 2 }}
{{- with mergeOverwrite $annotations (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The services of this release: name → key in values. Topology `worker` has no osp-controller, which never connects to a user cluster. */}}
{{- define "osm.services" -}}
{{- if ne .Values.topology "crds" }}
{{- if ne .Values.topology "worker" }}
osp-controller: ospController
{{- end }}
osc-controller: oscController
secret-syncer: secretSyncer
{{- if eq .Values.joining "approved" }}
csr-approver: csrApprover
{{- end }}
{{- end }}
{{- end -}}

{{/* The roles of this release's cluster. With topology `single`, the settings are where the profiles are. */}}
{{- define "osm.parts" -}}
{{- if has .Values.topology (list "single" "fleet") }}
- management
{{- end }}
{{- if has .Values.topology (list "single" "worker") }}
- worker
{{- end }}
{{- end -}}

{{/* Whether MachineDeployments and the Secrets of nodes are in this release's cluster. */}}
{{- define "osm.isWorker" -}}
{{- if has "worker" (include "osm.parts" . | fromYamlArray) -}}
true
{{- end -}}
{{- end -}}

{{/* Whether the services of this release run in its cluster. */}}
{{- define "osm.hasPods" -}}
{{- if has .Values.topology (list "single" "fleet") -}}
true
{{- end -}}
{{- end -}}

{{/* Whether the CustomResourceDefinitions are part of this release. */}}
{{- define "osm.hasDefinitions" -}}
{{- if and .Values.crds.enabled (ne .Values.topology "worker") -}}
true
{{- end -}}
{{- end -}}

{{/* The Secrets that the settings name outside of cloud-init-settings, where secret-syncer may read all: `namespace` and `name`. A pool may refer
     to others, which the operator permits. */}}
{{- define "osm.settingsSecrets" -}}
{{- $settings := .Values.settings | default dict -}}
{{- $named := ($settings.credentials | default dict).profileSecrets | default list -}}
{{- $secrets := list -}}
{{- range compact $named -}}
  {{- $secrets = append $secrets (dict "namespace" (.namespace | default "cloud-init-settings") "name" .name) -}}
{{- end -}}
{{- uniq $secrets | toYaml -}}
{{- end -}}

{{/* Whether an object from `lookup` is missing, or belongs to this release. Helm refuses to install over objects of other owners. */}}
{{- define "osm.isOurs" -}}
{{- $metadata := .object.metadata | default dict -}}
{{- $annotations := $metadata.annotations | default dict -}}
{{- $owner := printf "%s/%s" (get $annotations "meta.helm.sh/release-namespace") (get $annotations "meta.helm.sh/release-name") -}}
{{- if or (empty $metadata) (eq $owner (printf "%s/%s" .root.Release.Namespace .root.Release.Name)) -}}
true
{{- end -}}
{{- end -}}

{{/* The values of the pods of a service or of the renewal, in YAML: those of its `own`, else those of all. Fields of the first three are replaced one
     by one. */}}
{{- define "osm.pod" -}}
{{- $own := .own -}}
{{- $values := dict
      "image" (mergeOverwrite (deepCopy .root.Values.image) $own.image)
      "resources" (mergeOverwrite (deepCopy .root.Values.resources) ($own.resources | default dict))
      "podDisruptionBudget" (mergeOverwrite (deepCopy .root.Values.podDisruptionBudget) ($own.podDisruptionBudget | default dict)) -}}
{{- range $name := list "podAnnotations" "podLabels" "extraEnv" "extraVolumes" "extraVolumeMounts" "podSecurityContext" "securityContext"
      "priorityClassName" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "strategy" "hostAliases" "dnsPolicy" "dnsConfig" -}}
{{- $_ := set $values $name (hasKey $own $name | ternary (get $own $name) (get $.root.Values $name)) -}}
{{- end -}}
{{- toYaml $values -}}
{{- end -}}

{{/* The registry of an image, from the values of its pods. */}}
{{- define "osm.registry" -}}
{{- .image.registry | default (.root.Values.global | default dict).imageRegistry | default "" | trimSuffix "/" -}}
{{- end -}}

{{/* An image, from the values of its pods. */}}
{{- define "osm.image" -}}
{{- $image := printf "%s/%s" (include "osm.registry" .) .image.repository -}}
{{- if .image.digest -}}
{{ $image }}@{{ .image.digest }}
{{- else -}}
{{ $image }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The fields of a pod that are the same for services and CronJobs, from the values of the pod. */}}
{{- define "osm.podFields" -}}
{{- $secrets := concat (.root.Values.imagePullSecrets | default list) ((.root.Values.global | default dict).imagePullSecrets | default list) -}}
{{- $fields := pick .pod "priorityClassName" "nodeSelector" "tolerations" "affinity" "hostAliases" "dnsPolicy" "dnsConfig" -}}
{{- range $name, $value := merge $fields (dict "imagePullSecrets" $secrets "securityContext" .pod.podSecurityContext) }}
{{- with $value }}
{{ dict $name . | toYaml }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Name of the Secret with the key pair of the admission webhook. */}}
{{- define "osm.admission.secret" -}}
{{- .Values.admission.certificate.secretName | default (printf "%s-admission" (include "osm.name" .)) -}}
{{- end -}}

{{/* Name of the Service of the admission webhook. */}}
{{- define "osm.admission.service" -}}
{{- printf "%s-osp-admission" (include "osm.name" .) -}}
{{- end -}}
