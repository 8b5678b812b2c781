{{/* Name of the operator's objects: the release's, unless it already says so. */}}
{{- define "cascade.fullname" -}}
{{- if contains "cascade-operator" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-cascade-operator" (.Release.Name | trunc 23 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "cascade.driftwatch" -}}
{{- printf "%s-drift-watch" (include "cascade.fullname" .) -}}
{{- end -}}

{{/* Labels of a component: list (context, component). */}}
{{- define "cascade.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: cascade-operator
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/part-of: cascade-operator
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{- define "cascade.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: cascade-operator
app.kubernetes.io/component: {{ index . 1 }}
cascade-operator.io/release: {{ $root.Release.Name }}
{{- end -}}

{{/* Reference of an image: list (context, image values). */}}
{{- define "cascade.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := $image.registry | default $root.Values.imageRegistry -}}
{{- $name := $image.repository -}}
{{- if $registry -}}{{- $name = printf "%s/%s" $registry $name -}}{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name ($image.tag | default $root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "cascade.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "cascade.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What both Deployments share of a pod. */}}
{{- define "cascade.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Environment that both processes read. */}}
{{- define "cascade.environment" -}}
- name: CASCADE_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: CASCADE_POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: CASCADE_CLUSTER_SCOPED
  value: {{ empty .Values.watchNamespaces | quote }}
- name: CASCADE_WATCH_NAMESPACES
  value: {{ .Values.watchNamespaces | toJson | quote }}
- name: CASCADE_TIME_SCALE
  value: {{ .Values.timeScale | quote }}
- name: CASCADE_REQUEST_TIMEOUT_SECONDS
  value: {{ .Values.lease.requestTimeoutSeconds | quote }}
- name: CASCADE_LOG_LEVEL
  value: {{ .Values.logLevel }}
- name: CASCADE_LOG_FORMAT
  value: {{ .Values.logFormat }}
- name: CASCADE_HTTP_PORT
  value: "9090"
{{- end -}}

{{/* Rules of the operator inside a namespace; nodes come on top where it may read them. It holds
     every verb that it gives to routers, so that it needs neither escalate nor bind. It deletes only
     what a change of a cascade can make superfluous; the rest goes with the cascade, by owner. */}}
{{- define "cascade.operatorRules" -}}
- apiGroups: [cascade-operator.io]
  resources: [cascadeservices]
  verbs: [get, list, watch]
- apiGroups: [cascade-operator.io]
  resources: [cascadeservices/status]
  verbs: [get, patch]
# Owner references that block deletion, where the API server asks for this right (OpenShift).
- apiGroups: [cascade-operator.io]
  resources: [cascadeservices/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods, resourcequotas]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [configmaps, serviceaccounts]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}

{{- define "cascade.driftwatchRules" -}}
- apiGroups: [cascade-operator.io]
  resources: [cascadeservices]
  verbs: [get, list, watch]
- apiGroups: [cascade-operator.io]
  resources: [cascadeservices/status]
  verbs: [get, patch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
{{- end -}}
