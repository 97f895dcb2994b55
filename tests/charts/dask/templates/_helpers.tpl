{{- define "dask.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "dask.selector" -}}
app: {{ default .Chart.Name .Values.nameOverride }}
release: {{ .Release.Name | quote }}
{{- end -}}

{{- define "dask.labels" -}}
{{ include "dask.selector" . }}
chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
heritage: {{ .Release.Service | quote }}
{{- end -}}

{{- /* The Deployment of one group: `root`, its `name`, and the `worker` with all its values. */ -}}
{{- define "dask.workers" -}}
{{- $worker := .worker -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  labels:
    {{- include "dask.labels" .root | nindent 4 }}
    component: worker
spec:
  replicas: {{ $worker.replicas }}
  selector:
    matchLabels:
      {{- include "dask.selector" .root | nindent 6 }}
      component: worker
  template:
    metadata:
      labels:
        {{- include "dask.selector" .root | nindent 8 }}
        component: worker
    spec:
      imagePullSecrets:
        {{- toYaml $worker.image.pullSecrets | nindent 8 }}
      containers:
        - name: {{ include "dask.fullname" .root }}-worker
          image: "{{ $worker.image.repository }}:{{ $worker.image.tag }}"
          imagePullPolicy: {{ $worker.image.pullPolicy }}
          args:
            - {{ $worker.image.dask_worker }}
            - {{ include "dask.fullname" .root }}-scheduler:{{ .root.Values.scheduler.servicePort }}
            {{- with $worker.resources.limits }}
            - --nthreads
            - {{ $worker.threads_per_worker | default .cpu | default $worker.default_resources.cpu | quote }}
            - --memory-limit
            - {{ .memory | default $worker.default_resources.memory | quote }}
            {{- end }}
            - --no-dashboard
            - --dashboard-address
            - {{ $worker.portDashboard | quote }}
            {{- with $worker.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - containerPort: {{ $worker.portDashboard }}
              name: dashboard
          resources:
            {{- toYaml $worker.resources | nindent 12 }}
          env:
            {{- toYaml $worker.env | nindent 12 }}
      {{- with $worker.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $worker.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $worker.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}
