{{- /* Volumes of secrets, as a YAML list of {name, secret, at}: (list $ tier). */ -}}
{{- define "pushmesh.secrets" -}}
{{- $root := index . 0 -}}{{- $tier := index . 1 -}}{{- $v := $root.Values -}}
{{- with include "pushmesh.tierSecret" . }}
- {name: tier, secret: {{ . }}}
{{- end }}
{{- if ne $tier "compute" }}
{{- with $v.nats.credsExistingSecret }}
- {name: nats-creds, secret: {{ . }}}
{{- end }}
{{- with $v.nats.passwordExistingSecret }}
- {name: nats-password, secret: {{ . }}}
{{- end }}
{{- end }}
{{- if has $tier (list "edge" "router") }}
{{- $tls := (get $v $tier).tls }}
{{- with $tls.existingSecret }}
- {name: tls, secret: {{ . }}}
{{- end }}
{{- with $tls.clientCAExistingSecret }}
- {name: client-ca, secret: {{ . }}}
{{- end }}
{{- end }}
{{- if eq $tier "edge" }}
{{- with $v.identity.issuersExistingSecret }}
- {name: issuers, secret: {{ . }}}
{{- end }}
{{- with $v.identity.webhookSecretExistingSecret }}
- {name: webhook-secrets, secret: {{ . }}}
{{- end }}
{{- end }}
{{- if eq $tier "router" }}
{{- with $v.backends.existingSecret }}
- {name: backends, secret: {{ . }}}
{{- end }}
{{- with $v.backends.issuersExistingSecret }}
- {name: issuers, secret: {{ . }}}
{{- end }}
{{- end }}
{{- if eq $tier "store" }}
- {name: db, secret: {{ $v.postgres.existingSecret }}}
{{- with $v.store.webhookSecretExistingSecret }}
- {name: webhook-secrets, secret: {{ . }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "pushmesh.postgresCAVolume" -}}
{{- if .Values.postgres.caExistingSecret }}
- name: postgres-ca
  secret: {secretName: {{ .Values.postgres.caExistingSecret }}, defaultMode: 0440}
{{- else if .Values.postgres.caConfigMap }}
- name: postgres-ca
  configMap: {name: {{ .Values.postgres.caConfigMap }}}
{{- end }}
{{- end -}}
{{- define "pushmesh.postgresCAMount" -}}
{{- if or .Values.postgres.caExistingSecret .Values.postgres.caConfigMap }}
- {name: postgres-ca, mountPath: /etc/pushmesh/postgres-ca, readOnly: true}
{{- end }}
{{- end -}}

{{- /* What tiers and Jobs share of a pod: (list $ t). */ -}}
{{- define "pushmesh.placement" -}}
{{- $root := index . 0 -}}{{- $t := index . 1 -}}
automountServiceAccountToken: false
# Variables of Services would be named PUSHMESH_… in a release that is named so.
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- $seccomp := dict "type" "RuntimeDefault" }}
  {{- with $t.seccompLocalhostProfile }}{{- $seccomp = dict "type" "Localhost" "localhostProfile" . }}{{- end }}
  {{- toYaml (merge (deepCopy $t.podSecurityContext) (dict "seccompProfile" $seccomp)) | nindent 2 }}
{{- with $t.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $t.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $t.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $t.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $t.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $t.schedulerName }}
schedulerName: {{ . }}
{{- end }}
{{- with $t.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with $t.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $t.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The pod of a tier: (list $ tier). */ -}}
{{- define "pushmesh.pod" -}}
{{- $root := index . 0 -}}{{- $tier := index . 1 -}}{{- $v := $root.Values -}}
{{- $t := include "pushmesh.tier" . | fromJson -}}
{{- $port := include "pushmesh.port" $tier -}}{{- $http := include "pushmesh.http" $tier -}}
{{- $address := include "pushmesh.podAddress" $root -}}
{{- $secrets := include "pushmesh.secrets" . | fromYamlArray -}}
metadata:
  labels:
    {{- include "pushmesh.podLabels" . | nindent 4 }}
    {{- with $t.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # A changed file of settings counts from the next start.
    checksum/settings: {{ include "pushmesh.settingsFile" . | sha256sum }}
    kubectl.kubernetes.io/default-container: {{ $tier }}
    {{- with merge (deepCopy $t.podAnnotations) $v.commonAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "pushmesh.serviceAccount" (list $root $tier $t) }}
  {{- include "pushmesh.placement" (list $root $t) | nindent 2 }}
  {{- if $t.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml $t.topologySpreadConstraints | nindent 4 }}
  {{- else if $t.spreadByDefault }}
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      # Old pods of an upgrade do not count.
      matchLabelKeys: [pod-template-hash]
      labelSelector:
        matchLabels:
          {{- include "pushmesh.selector" (list $root $tier) | nindent 10 }}
    {{- end }}
  {{- end }}
  {{- if eq $tier "edge" }}
  terminationGracePeriodSeconds: {{ (include "pushmesh.stop" $root | fromJson).all | int64 }}
  {{- else }}
  terminationGracePeriodSeconds: {{ ternary (add $t.preStopSeconds $t.graceSeconds 10) ($t.terminationGracePeriodSeconds | int64) (kindIs "invalid" $t.terminationGracePeriodSeconds) }}
  {{- end }}
  {{- with $t.extraInitContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ $tier }}
      image: {{ include "pushmesh.image" (list $root $t.imageTag) }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      command: ["/pushmesh", {{ $tier | quote }}]
      args:
        - --config=/etc/pushmesh/settings/{{ $tier }}.yaml
        {{- range $t.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        # A pod's name is that of no other, and stays when its container starts again.
        - name: PUSHMESH_ID
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        {{- if has $tier (list "router" "store") }}
        - {name: PUSHMESH_ADVERTISE, value: {{ printf "%s:%s" $address $port | quote }}}
        {{- else if eq $tier "edge" }}
        - {name: PUSHMESH_BACKEND_ADDRESS, value: {{ printf "%s:%s" $address $port | quote }}}
        {{- else }}
        - {name: PUSHMESH_LISTEN, value: {{ printf "%s:%s" $address $port | quote }}}
        - {name: PUSHMESH_HTTP, value: {{ printf "%s:%s" $address $http | quote }}}
        {{- end }}
        {{- with $t.resources }}{{- with .limits }}{{- with .memory }}
        {{- if $t.goMemLimitPercent }}
        - {name: GOMEMLIMIT, value: {{ div (mul (include "pushmesh.bytes" . | int64) $t.goMemLimitPercent) 100 | toString | quote }}}
        {{- end }}
        {{- end }}{{- end }}{{- end }}
        {{- with $v.telemetry.otlpEndpoint }}
        - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ . | quote }}}
        {{- end }}
        {{- with $t.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $t.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: {{ ternary "subscribers" "grpc" (eq $tier "edge") }}, containerPort: {{ $port }}}
        - {name: http, containerPort: {{ $http }}}
      {{- if $t.preStopSeconds }}
      lifecycle:
        preStop: {sleep: {seconds: {{ $t.preStopSeconds | int64 }}}}
      {{- end }}
      startupProbe:
        httpGet: {path: /livez, port: http}
        {{- toYaml $t.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: {path: /livez, port: http}
        {{- toYaml $t.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        {{- toYaml $t.probes.readiness | nindent 8 }}
      securityContext:
        {{- toYaml $t.securityContext | nindent 8 }}
      {{- with $t.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: settings, mountPath: /etc/pushmesh/settings, readOnly: true}
        {{- range $secrets }}
        - {name: {{ .name }}, mountPath: /etc/pushmesh/{{ .name }}, readOnly: true}
        {{- end }}
        {{- if eq $tier "store" }}{{- with include "pushmesh.postgresCAMount" $root | trim }}
        {{- . | nindent 8 }}
        {{- end }}{{- end }}
        {{- with $t.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with $t.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: settings
      configMap: {name: {{ include "pushmesh.fullname" $root }}-{{ $tier }}}
    {{- range $secrets }}
    - name: {{ .name }}
      secret: {secretName: {{ .secret }}, defaultMode: 0440}
    {{- end }}
    {{- if eq $tier "store" }}{{- with include "pushmesh.postgresCAVolume" $root | trim }}
    {{- . | nindent 4 }}
    {{- end }}{{- end }}
    {{- with $t.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
