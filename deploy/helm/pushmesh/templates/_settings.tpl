{{- define "pushmesh.port" -}}
{{- get (dict "edge" "7400" "router" "7401" "compute" "7402" "store" "7403") . -}}
{{- end -}}
{{- define "pushmesh.http" -}}
{{- get (dict "edge" "7480" "router" "7481" "compute" "7482" "store" "7483") . -}}
{{- end -}}

{{- define "pushmesh.tierSecret" -}}
{{- $root := index . 0 -}}{{- $tier := index . 1 -}}
{{- if $root.Values.mesh.certManager.enabled -}}{{ include "pushmesh.fullname" $root }}-{{ $tier }}-tier
{{- else -}}{{ get $root.Values.mesh.existingSecrets $tier }}
{{- end -}}
{{- end -}}

{{- /* Seconds of an edge's planned stop, as JSON. docs/operations.md#a-planned-stop has the formulas. */ -}}
{{- define "pushmesh.stop" -}}
{{- $d := .Values.edge.drain -}}
{{- $needed := addf (divf $d.connections $d.pace) 2.5 -}}
{{- $drain := ternary (ceil (addf $needed $d.slowSeconds) | int64) ($d.seconds | int64) (kindIs "invalid" $d.seconds) -}}
{{- $grace := ternary (ceil (divf (mulf $drain 4) 3) | int64) ($d.graceSeconds | int64) (kindIs "invalid" $d.graceSeconds) -}}
{{- $t := include "pushmesh.tier" (list . "edge") | fromJson -}}
{{- $least := add $t.preStopSeconds $grace 10 -}}
{{- $all := ternary $least ($t.terminationGracePeriodSeconds | int64) (kindIs "invalid" $t.terminationGracePeriodSeconds) -}}
{{- toJson (dict "needed" $needed "drain" $drain "grace" $grace "least" $least "all" $all) -}}
{{- end -}}

{{- define "pushmesh.hpaTarget" -}}
{{- if kindIs "invalid" .Values.edge.hpa.targetConnections -}}{{ floor (mulf .Values.edge.drain.connections 0.7) | int64 }}
{{- else -}}{{ .Values.edge.hpa.targetConnections | int64 }}
{{- end -}}
{{- end -}}

{{- /* What the chart says to a tier, as JSON of its file of settings: (list $ tier). The file has no secret. */ -}}
{{- define "pushmesh.ownSettings" -}}
{{- $root := index . 0 -}}{{- $tier := index . 1 -}}
{{- $v := $root.Values -}}
{{- $name := include "pushmesh.fullname" $root -}}
{{- $s := dict -}}
{{- if $v.mesh.name -}}{{- $_ := set $s "mesh" $v.mesh.name -}}{{- end -}}
{{- if include "pushmesh.tierSecret" . -}}
{{- $_ := set $s "mesh-cert" (printf "/etc/pushmesh/tier/%s" $v.mesh.certificateKey) -}}
{{- $_ := set $s "mesh-key" (printf "/etc/pushmesh/tier/%s" $v.mesh.privateKey) -}}
{{- $_ := set $s "mesh-ca" (printf "/etc/pushmesh/tier/%s" $v.mesh.caKey) -}}
{{- if $v.mesh.crlKey -}}{{- $_ := set $s "mesh-crl" (printf "/etc/pushmesh/tier/%s" $v.mesh.crlKey) -}}{{- end -}}
{{- end -}}
{{- if $v.mesh.plainTiers -}}{{- $_ := set $s "plain-tiers" true -}}{{- end -}}
{{- if ne $tier "store" -}}{{- $_ := set $s "stores" (list (printf "%s-store-nodes:7403" $name)) -}}{{- end -}}
{{- if and $v.compute.enabled (has $tier (list "edge" "router")) -}}{{- $_ := set $s "computes" (list (printf "%s-compute:7402" $name)) -}}{{- end -}}
{{- if ne $tier "compute" -}}
{{- $_ := set $s "nats" (join "," $v.nats.urls) -}}
{{- if $v.nats.credsExistingSecret -}}{{- $_ := set $s "nats-creds" (printf "/etc/pushmesh/nats-creds/%s" $v.nats.credsKey) -}}{{- end -}}
{{- if $v.nats.user -}}
{{- $_ := set $s "nats-user" $v.nats.user -}}
{{- $_ := set $s "nats-password-file" (printf "/etc/pushmesh/nats-password/%s" $v.nats.passwordKey) -}}
{{- end -}}
{{- end -}}
{{- if has $tier (list "edge" "router") -}}
{{- $tls := (get $v $tier).tls -}}
{{- if $tls.existingSecret -}}
{{- $_ := set $s "tls-cert" (list "/etc/pushmesh/tls/tls.crt") -}}
{{- $_ := set $s "tls-key" (list "/etc/pushmesh/tls/tls.key") -}}
{{- end -}}
{{- if $tls.required -}}{{- $_ := set $s "tls-required" true -}}{{- end -}}
{{- if $tls.clientCAExistingSecret -}}{{- $_ := set $s "tls-client-ca" "/etc/pushmesh/client-ca/ca.crt" -}}{{- end -}}
{{- end -}}
{{- if eq $tier "edge" -}}
{{- $stop := include "pushmesh.stop" $root | fromJson -}}
{{- $_ := set $s "drain" (printf "%ds" (int64 $stop.drain)) -}}
{{- $_ := set $s "drain-pace" $v.edge.drain.pace -}}
{{- $_ := set $s "grace" (printf "%ds" (int64 $stop.grace)) -}}
{{- if $v.edge.advertise -}}{{- $_ := set $s "advertise" $v.edge.advertise -}}{{- end -}}
{{- with $v.edge.proxyProtocolFrom -}}{{- $_ := set $s "proxy-protocol-from" (join "," .) -}}{{- end -}}
{{- if $v.identity.open -}}{{- $_ := set $s "open" true -}}{{- end -}}
{{- if $v.identity.issuersExistingSecret -}}{{- $_ := set $s "issuers" (printf "/etc/pushmesh/issuers/%s" $v.identity.issuersKey) -}}{{- end -}}
{{- with $v.identity.connectHook -}}{{- $_ := set $s "connect-hook" . -}}{{- end -}}
{{- with $v.identity.permissionHook -}}{{- $_ := set $s "permission-hook" . -}}{{- end -}}
{{- if $v.identity.webhookSecretExistingSecret -}}{{- $_ := set $s "webhook-secret-file" (printf "/etc/pushmesh/webhook-secrets/%s" $v.identity.webhookSecretKey) -}}{{- end -}}
{{- else -}}
{{- $t := include "pushmesh.tier" . | fromJson -}}
{{- $_ := set $s "grace" (printf "%ds" (int64 $t.graceSeconds)) -}}
{{- end -}}
{{- if eq $tier "router" -}}
{{- if $v.backends.open -}}{{- $_ := set $s "open" true -}}{{- end -}}
{{- if $v.backends.existingSecret -}}{{- $_ := set $s "backends" (printf "/etc/pushmesh/backends/%s" $v.backends.key) -}}{{- end -}}
{{- if $v.backends.issuersExistingSecret -}}{{- $_ := set $s "issuers" (printf "/etc/pushmesh/issuers/%s" $v.backends.issuersKey) -}}{{- end -}}
{{- end -}}
{{- if eq $tier "store" -}}
{{- $_ := set $s "db-file" (printf "/etc/pushmesh/db/%s" $v.postgres.urlKey) -}}
{{- if $v.store.webhookSecretExistingSecret -}}{{- $_ := set $s "webhook-secret-file" (printf "/etc/pushmesh/webhook-secrets/%s" $v.store.webhookSecretKey) -}}{{- end -}}
{{- end -}}
{{- toJson $s -}}
{{- end -}}

{{- /* The file: (list $ tier). */ -}}
{{- define "pushmesh.settingsFile" -}}
{{- $t := include "pushmesh.tier" . | fromJson -}}
{{- $s := mergeOverwrite (deepCopy $t.settings) (include "pushmesh.ownSettings" . | fromJson) -}}
{{- range $name := keys $s | sortAlpha }}
{{- $value := get $s $name }}
{{ $name }}:
{{- if kindIs "map" $value }}
{{- range $k := keys $value | sortAlpha }}
  {{ toJson $k }}: {{ include "pushmesh.scalar" (get $value $k) }}
{{- end }}
{{- else if kindIs "slice" $value }}
{{- range $value }}
  - {{ include "pushmesh.scalar" . }}
{{- end }}
{{- else }} {{ include "pushmesh.scalar" $value }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Flags that the chart gives, by files, variables or itself: nobody else may. */ -}}
{{- define "pushmesh.reserved" -}}
config id listen http advertise backend-address nats mesh stores computes mesh-cert mesh-key mesh-ca mesh-crl plain-tiers nats-creds nats-user nats-password-file
tls-cert tls-key tls-required tls-client-ca drain drain-pace grace proxy-protocol-from open issuers connect-hook permission-hook webhook-secret-file backends
db db-file db-owner db-owner-file migrate-only standalone
{{- end -}}

{{- /* Bytes of a quantity such as 2Gi or 512M. */ -}}
{{- define "pushmesh.bytes" -}}
{{- $q := toString . -}}
{{- $n := regexFind "^[0-9.]+" $q -}}
{{- $unit := trimPrefix $n $q -}}
{{- $by := get (dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776) $unit -}}
{{- if or (not $n) (not $by) -}}{{- fail (printf "a memory limit of %s can't be read: write it like 2Gi, 512Mi or 2G" $q) -}}{{- end -}}
{{- mulf (float64 $n) (float64 $by) | floor | int64 -}}
{{- end -}}
