{{- /* Names end before the suffixes of tiers and of what Kubernetes adds to a pod's: a pod's name is the node's id, 63 at most. */ -}}
{{- define "pushmesh.name" -}}
{{- default .Chart.Name .Values.nameOverride | replace "." "-" | trunc 30 | trimSuffix "-" -}}
{{- end -}}

{{- define "pushmesh.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | replace "." "-" | trunc 36 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $full | replace "." "-" | trunc 36 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "pushmesh.tierNames" -}}
edge,router,store{{ if .Values.compute.enabled }},compute{{ end }}
{{- end -}}

{{- define "pushmesh.version" -}}
{{- default .Chart.AppVersion .Values.image.tag -}}
{{- end -}}

{{- /* The image of a tier: (list $ tag). */ -}}
{{- define "pushmesh.image" -}}
{{- $root := index . 0 -}}{{- $tag := index . 1 -}}
{{- $image := $root.Values.image -}}
{{- if $tag -}}{{ $image.repository }}:{{ $tag }}
{{- else if $image.digest -}}{{ $image.repository }}@{{ $image.digest }}
{{- else -}}{{ $image.repository }}:{{ include "pushmesh.version" $root }}
{{- end -}}
{{- end -}}

{{- define "pushmesh.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "pushmesh.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- /* Of pods: nothing that changes with the chart, or a new chart would send every client on. */ -}}
{{- define "pushmesh.podLabels" -}}
{{- $root := index . 0 -}}
{{ include "pushmesh.selector" . }}
app.kubernetes.io/part-of: pushmesh
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pushmesh.labels" -}}
{{- $root := index . 0 -}}
{{ include "pushmesh.selector" . }}
app.kubernetes.io/version: {{ include "pushmesh.version" $root | quote }}
app.kubernetes.io/part-of: pushmesh
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* metadata: (list $ component name annotations). */ -}}
{{- define "pushmesh.metadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 2 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "pushmesh.labels" (list $root (index . 1)) | nindent 2 }}
{{- with merge (dict) (index . 3) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Values of a tier over those of all tiers, as JSON: (list $ tier). */ -}}
{{- define "pushmesh.tier" -}}
{{- $root := index . 0 -}}
{{- toJson (mergeOverwrite (deepCopy $root.Values.defaults) (deepCopy (index $root.Values (index . 1)))) -}}
{{- end -}}

{{- define "pushmesh.serviceAccount" -}}
{{- $root := index . 0 -}}{{- $tier := index . 1 -}}{{- $t := index . 2 -}}
{{- if $t.serviceAccount.name -}}{{ $t.serviceAccount.name }}
{{- else if $t.serviceAccount.create -}}{{ include "pushmesh.fullname" $root }}-{{ $tier }}
{{- else -}}default
{{- end -}}
{{- end -}}

{{- /* A number as it was written: those of a file are floats, and print as 1.073741824e+09. */ -}}
{{- define "pushmesh.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ printf "%d" (int64 .) }}
{{- else -}}{{ toJson . }}
{{- end -}}
{{- end -}}

{{- define "pushmesh.podAddress" -}}
{{- if eq .Values.ipFamily "IPv6" -}}[$(POD_IP)]{{- else -}}$(POD_IP){{- end -}}
{{- end -}}
