{{/* A CronJob that runs osmctl: `root`, `name`, `component`, `schedule`, `deadline` in seconds and `args`. */}}
{{- define "osm.cronJob" -}}
{{- $pod := include "osm.pod" (dict "root" .root "own" .root.Values.workerCluster.renewal) | fromYaml -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  {{- include "osm.metadata" (dict "root" .root "name" .name "namespace" .root.Release.Namespace "component" .component) | nindent 2 }}
spec:
  schedule: {{ quote .schedule }}
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      # A cluster that is away fails the Job. The others wait for the next run, not for a repetition.
      backoffLimit: 0
      activeDeadlineSeconds: {{ .deadline }}
      template:
        metadata:
          labels:
            {{- $labels := include "osm.labels" .root | fromYaml | merge (dict "app.kubernetes.io/component" .component) }}
            {{- $pod.podLabels | default dict | merge $labels | toYaml | nindent 12 }}
          {{- with $pod.podAnnotations }}
          annotations:
            {{- toYaml . | nindent 12 }}
          {{- end }}
        spec:
          restartPolicy: Never
          serviceAccountName: {{ quote .name }}
          enableServiceLinks: false
          {{- include "osm.podFields" (dict "root" .root "pod" $pod) | trim | nindent 10 }}
          containers:
            - name: {{ .component }}
              image: {{ include "osm.image" (dict "root" .root "image" $pod.image) }}
              imagePullPolicy: {{ quote $pod.image.pullPolicy }}
              args:
                {{- range .args }}
                - {{ quote . }}
                {{- end }}
              {{- with $pod.extraEnv }}
              env:
                {{- toYaml . | nindent 16 }}
              {{- end }}
              {{- with $pod.resources }}
              resources:
                {{- toYaml . | nindent 16 }}
              {{- end }}
              {{- with $pod.securityContext }}
              securityContext:
                {{- toYaml . | nindent 16 }}
              {{- end }}
              {{- with $pod.extraVolumeMounts }}
              volumeMounts:
                {{- toYaml . | nindent 16 }}
              {{- end }}
          {{- with $pod.extraVolumes }}
          volumes:
            {{- toYaml . | nindent 12 }}
          {{- end }}
{{- end -}}
