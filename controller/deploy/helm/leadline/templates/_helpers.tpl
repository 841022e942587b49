{{- define "leadline.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- /* The three files of a certificate in the folder of that name. */}}
{{- define "leadline.tls" -}}
{{- $folder := printf "/etc/leadline/pki/%s" . -}}
ca_file: {{ $folder }}/ca.crt
cert_file: {{ $folder }}/tls.crt
key_file: {{ $folder }}/tls.key
{{- end }}

{{- /* All settings, as YAML: what the chart knows itself, under what the values say. */}}
{{- define "leadline.settings" -}}
{{- $own := dict "health" (dict "address" "0.0.0.0:25510") -}}
{{- $broker := dict -}}
{{- if .Values.broker.enabled -}}
{{- $_ := set $broker "host" "leadline-broker.kube-system.svc" -}}
{{- $_ := set $broker "port" .Values.broker.service.port -}}
{{- end -}}
{{- if .Values.certificates.broker -}}
{{- $_ := set $broker "tls" (include "leadline.tls" "broker" | fromYaml) -}}
{{- end -}}
{{- $_ := set $own "broker" $broker -}}
{{- range $name := list "grpc" "extender" "keda" "metrics" -}}
{{- if index $.Values.certificates $name -}}
{{- $_ := set $own $name (dict "tls" (include "leadline.tls" $name | fromYaml)) -}}
{{- end -}}
{{- end -}}
{{- if .Values.certificates.web -}}
{{- $files := include "leadline.tls" "web" | fromYaml -}}
{{- $_ := set $own "web" (dict "tls" (dict "cert_file" $files.cert_file "key_file" $files.key_file "client_ca_file" $files.ca_file)) -}}
{{- end -}}
{{- if .Values.certificates.agents -}}
{{- $files := include "leadline.tls" "agents" | fromYaml -}}
{{- $_ := set $own "issuing" (dict "authority_cert_file" $files.cert_file "authority_key_file" $files.key_file) -}}
{{- end -}}
{{- $all := mustMergeOverwrite $own (deepCopy .Values.settings) -}}
{{- $address := dig "grpc" "address" "" $all -}}
{{- if and $address (not (contains "unix:" $address)) -}}
{{- $_ := set $all.grpc "address" (printf "unix:/run/leadline/controller.sock,%s" $address) -}}
{{- end -}}
{{- $all | toYaml -}}
{{- end }}

{{- /* A table as TOML: its fields, then its tables. A string, number or list of JSON is one of TOML. */}}
{{- define "leadline.toml" -}}
{{- $path := .path -}}
{{- range $key, $value := .table }}
{{- if kindIs "map" $value }}
{{- else if and (kindIs "slice" $value) $value (kindIs "map" (first (concat $value (list "")))) }}
{{- else if not (kindIs "invalid" $value) }}
{{ $key }} = {{ $value | toJson }}
{{- end }}
{{- end }}
{{- range $key, $value := .table }}
{{- $name := ternary $key (printf "%s.%s" $path $key) (eq $path "") }}
{{- if kindIs "map" $value }}
[{{ $name }}]
{{- include "leadline.toml" (dict "table" $value "path" $name) }}
{{- else if and (kindIs "slice" $value) $value (kindIs "map" (first (concat $value (list "")))) }}
{{- range $value }}
[[{{ $name }}]]
{{- include "leadline.toml" (dict "table" . "path" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Where other machines reach the controller, as YAML: section -> port. */}}
{{- define "leadline.served" -}}
{{- $settings := include "leadline.settings" . | fromYaml -}}
{{- range $name := list "grpc" "extender" "keda" "metrics" "web" }}
{{- range $address := dig $name "address" "" $settings | splitList "," }}
{{- $address = trim $address }}
{{- if and $address (not (regexMatch "^(127\\.|localhost:|\\[::1\\]:|unix:)" $address)) }}
{{ $name }}: {{ regexFind "[0-9]+$" $address }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "leadline.brokerPort" -}}
{{- $broker := dig "broker" (dict) (include "leadline.settings" . | fromYaml) -}}
{{- $broker.port | default (ternary 8883 1883 (hasKey $broker "tls")) | int -}}
{{- end }}

{{- /* What a container of ours may do: nothing but run. */}}
{{- define "leadline.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "leadline.confinedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}
