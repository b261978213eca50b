{{- /* Every fault of the values, one a line, that a schema can't see. */ -}}
{{- define "pushmesh.faults" -}}
{{- $v := .Values -}}{{- $root := . -}}
{{- $mesh := $v.mesh -}}
{{- $tiers := splitList "," (include "pushmesh.tierNames" .) -}}
{{- $named := list -}}{{- $missing := list -}}
{{- range $tiers -}}{{- if get $mesh.existingSecrets . -}}{{- $named = append $named . -}}{{- else -}}{{- $missing = append $missing . -}}{{- end -}}{{- end -}}
{{- if and $mesh.certManager.enabled $named }}
mesh.certManager and mesh.existingSecrets exclude each other: which of them has the certificates?
{{- end }}
{{- if and $mesh.certManager.enabled (not $mesh.certManager.issuerRef.name) }}
mesh.certManager.issuerRef.name is empty: name the issuer whose CA is this mesh's own
{{- end }}
{{- if and $named $missing }}
mesh.existingSecrets lacks {{ join ", " $missing }}: each tier has a certificate of its own (pushmesh ca issue --tier TIER)
{{- end }}
{{- if not (or $mesh.certManager.enabled $named $mesh.plainTiers) }}
nothing says how tiers know each other: set mesh.existingSecrets (a Secret with tls.crt, tls.key and ca.crt for each tier), mesh.certManager, or mesh.plainTiers=true, which lets everybody on the network read and forge what they say
{{- end }}
{{- if not $v.nats.urls }}
nats.urls is empty: name each server, tls://HOST:4222
{{- end }}
{{- range $v.nats.urls }}
{{- if contains "@" . }}
nats.urls has a user or a password: give them by nats.user and nats.passwordExistingSecret, or nats.credsExistingSecret
{{- end }}
{{- if and (hasPrefix "nats://" .) (or $mesh.certManager.enabled $named) (not $mesh.plainTiers) }}
nats.urls has {{ . }}: with certificates NATS is reached by tls://
{{- end }}
{{- end }}
{{- if ne (empty $v.nats.user) (empty $v.nats.passwordExistingSecret) }}
nats.user and nats.passwordExistingSecret belong together: one of them is empty
{{- end }}
{{- if not $v.postgres.existingSecret }}
postgres.existingSecret is empty: name the Secret with the URL of the role that stores use
{{- end }}
{{- if and $v.schema.enabled (not $v.postgres.ownerExistingSecret) }}
postgres.ownerExistingSecret is empty: name the Secret with the URL of the role that owns the schema, or set schema.enabled=false where stores own it themselves
{{- end }}
{{- if and $v.postgres.caExistingSecret $v.postgres.caConfigMap }}
postgres.caExistingSecret and postgres.caConfigMap exclude each other
{{- end }}
{{- $known := or $v.identity.issuersExistingSecret $v.identity.connectHook -}}
{{- if and (not $v.identity.open) (not $known) }}
nothing says who may subscribe: set identity.issuersExistingSecret or identity.connectHook, or identity.open=true, which lets in everybody who reaches the port
{{- end }}
{{- if and $v.identity.open $known }}
identity.open lets everybody in, and identity.issuersExistingSecret and identity.connectHook those who are known: set one of them
{{- end }}
{{- if and $v.identity.webhookSecretExistingSecret (not $v.identity.connectHook) (not $v.identity.permissionHook) }}
identity.webhookSecretExistingSecret needs identity.connectHook or identity.permissionHook: nothing else is signed
{{- end }}
{{- if and (not $v.backends.open) (not $v.backends.existingSecret) }}
nothing says who may publish: set backends.existingSecret, or backends.open=true, which lets everybody who reaches the port do everything
{{- end }}
{{- if and $v.backends.open $v.backends.existingSecret }}
backends.open lets everybody do everything, and backends.existingSecret those who are named: set one of them
{{- end }}
{{- if and $v.backends.issuersExistingSecret (not $v.backends.existingSecret) }}
backends.issuersExistingSecret needs backends.existingSecret, which says whose tokens are taken
{{- end }}
{{- range list "edge" "router" }}
{{- $tls := (get $v .).tls }}
{{- if and (not $tls.existingSecret) (or $tls.required $tls.clientCAExistingSecret) }}
{{ . }}.tls.required and .clientCAExistingSecret need {{ . }}.tls.existingSecret: there is no TLS without a certificate
{{- end }}
{{- end }}
{{- $reserved := splitList " " (include "pushmesh.reserved" . | replace "\n" " ") -}}
{{- range $tier := $tiers }}
{{- $t := include "pushmesh.tier" (list $root $tier) | fromJson }}
{{- range $name, $value := $t.settings }}
{{- if has $name $reserved }}
{{ $tier }}.settings has {{ $name }}, which the chart sets by another value
{{- end }}
{{- if regexMatch "://[^/@\\s\"]*:[^/@\\s\"]*@" (toJson $value) }}
{{ $tier }}.settings has a password in {{ $name }}: everybody who reads ConfigMaps would have it
{{- end }}
{{- end }}
{{- range $t.extraArgs }}
{{- if regexMatch "^--(db|db-owner|shard-db)([= ]|$)|://[^/@\\s]*:[^/@\\s]*@" . }}
{{ $tier }}.extraArgs has a URL with what may be a password: everybody who lists processes would have it
{{- end }}
{{- end }}
{{- if and (ne $tier "edge") (not (kindIs "invalid" $t.terminationGracePeriodSeconds)) }}
{{- $least := add $t.preStopSeconds $t.graceSeconds 10 }}
{{- if lt (int64 $t.terminationGracePeriodSeconds) $least }}
{{ $tier }}.terminationGracePeriodSeconds is {{ int64 $t.terminationGracePeriodSeconds }}, and a stop takes up to {{ $least }}: preStopSeconds, graceSeconds, and 10
{{- end }}
{{- end }}
{{- if and $t.seccompLocalhostProfile (hasKey $t.podSecurityContext "seccompProfile") }}
{{ $tier }} has seccompLocalhostProfile and podSecurityContext.seccompProfile: set one of them
{{- end }}
{{- end }}
{{- $d := $v.edge.drain -}}
{{- $s := include "pushmesh.stop" . | fromJson -}}
{{- if lt (int64 $s.grace) (int64 $s.drain) }}
edge.drain.graceSeconds is {{ int64 $s.grace }}, less than edge.drain.seconds with {{ int64 $s.drain }}: a drain is a part of a stop
{{- end }}
{{- $patience := minf $s.drain (mulf $s.grace 0.75) }}
{{- if lt $patience $s.needed }}
a stop of an edge can't fit: {{ int64 $d.connections }} connections at {{ int64 $d.pace }} a second and 2.5 s for the last ones take {{ printf "%.1f" $s.needed }} s, and {{ printf "%.1f" $patience }} s are there (edge.drain.seconds, and three quarters of edge.drain.graceSeconds): raise these or edge.drain.pace
{{- end }}
{{- if lt (int64 $s.all) (int64 $s.least) }}
edge.terminationGracePeriodSeconds is {{ int64 $s.all }}, and a planned stop takes up to {{ int64 $s.least }}: preStopSeconds, edge.drain.graceSeconds, and 10
{{- end }}
{{- if gt (int64 $s.all) (int64 $d.limitSeconds) }}
a stop of an edge takes up to {{ int64 $s.all }} s, and edge.drain.limitSeconds is {{ int64 $d.limitSeconds }}: fewer edge.drain.connections, a higher edge.drain.pace, or a platform that waits longer
{{- end }}
{{- if $v.edge.hpa.enabled }}
{{- if gt (int64 $v.edge.hpa.minReplicas) (int64 $v.edge.hpa.maxReplicas) }}
edge.hpa.minReplicas is {{ int64 $v.edge.hpa.minReplicas }}, more than edge.hpa.maxReplicas with {{ int64 $v.edge.hpa.maxReplicas }}
{{- end }}
{{- if gt (include "pushmesh.hpaTarget" . | int64) (int64 $d.connections) }}
edge.hpa.targetConnections is {{ include "pushmesh.hpaTarget" . }}, more than edge.drain.connections with {{ int64 $d.connections }}, for which a stop is planned
{{- end }}
{{- end }}
{{- if $v.rebalance.enabled }}
{{- if and (not $v.backends.open) (not $v.rebalance.tokenExistingSecret) (not $v.rebalance.tlsExistingSecret) }}
rebalance has to prove to routers who it is: set rebalance.tokenExistingSecret or rebalance.tlsExistingSecret
{{- end }}
{{- if and $v.router.tls.required (not $v.rebalance.caExistingSecret) }}
rebalance.caExistingSecret is empty, and router.tls.required: name the Secret with ca.crt of the routers' certificate
{{- end }}
{{- if and $v.rebalance.tlsExistingSecret (not $v.rebalance.caExistingSecret) }}
rebalance.tlsExistingSecret needs rebalance.caExistingSecret: a certificate is shown over TLS alone
{{- end }}
{{- end }}
{{- end -}}
