{{/* The matcher of the namespaces whose services the alerts are about. */}}
{{- define "osm.rules.in" -}}
{{- ternary "namespace=~\".*\"" (printf "namespace=%q" .Release.Namespace) .Values.metrics.prometheusRule.allNamespaces -}}
{{- end -}}

{{/* The matcher of a CronJob of the chart in metrics of kube-state-metrics, by `root` and the end of its name, `job`. */}}
{{- define "osm.rules.cronJob" -}}
{{- ternary (printf "cronjob=~\".+-%s\"" .job) (printf "cronjob=\"%s-%s\"" (include "osm.name" .root) .job) .root.Values.metrics.prometheusRule.allNamespaces -}}
{{- end -}}

{{/* The services that are down. In one namespace, those of the release that no target has. In all, those that a namespace had within a week, and of which
     it has others: so a release that is uninstalled fires no alert. */}}
{{- define "osm.rules.down" -}}
{{- if .Values.metrics.prometheusRule.allNamespaces -}}
group by (namespace, component) (last_over_time(osm_ready[7d]))
  unless group by (namespace, component) (osm_ready)
  and on (namespace) group by (namespace) (osm_ready)
{{- else -}}
{{- $absent := list -}}
{{- range $service := include "osm.services" . | fromYaml | keys | sortAlpha -}}
{{- $absent = append $absent (printf "absent(osm_ready{%s, component=%q})" (include "osm.rules.in" $) $service) -}}
{{- end -}}
{{- join "\n  or " $absent -}}
{{- end -}}
{{- end -}}

{{/* The groups of rules, as in a file of rules. */}}
{{- define "osm.rules" -}}
{{- $services := include "osm.services" . | fromYaml -}}
{{- $values := .Values.metrics.prometheusRule -}}
{{- $rules := list -}}
{{- range $alert := .Files.Get "files/alerts.yaml" | fromYamlArray -}}
{{- $name := $alert.alert -}}
{{- $own := get ($values.alerts | default dict) $name | default dict -}}
{{- $isOn := ternary $own.enabled true (hasKey $own "enabled") -}}
{{- range $field, $value := $own -}}
{{- $_ := set $alert $field $value -}}
{{- end -}}
{{- if and $isOn (or (not $alert.service) (hasKey $services $alert.service)) -}}
{{- $expression := $alert.expr | replace "$down" (include "osm.rules.down" $) | replace "$in" (include "osm.rules.in" $) | replace "$renewal" (include "osm.rules.cronJob" (dict "root" $ "job" "renewal")) | replace "$kkp" (include "osm.rules.cronJob" (dict "root" $ "job" "kkp")) | replace "$threshold" (toString $alert.threshold) -}}
{{- $page := printf "%s/%s.md" (trimSuffix "/" $values.runbookURL) (trimPrefix "OSM" $name | kebabcase) -}}
{{- $rule := dict "alert" $name "expr" $expression -}}
{{- with $alert.for -}}
{{- $_ := set $rule "for" . -}}
{{- end -}}
{{- $_ := set $rule "labels" (merge (dict "severity" $alert.severity) ($values.additionalRuleLabels | default dict)) -}}
{{- $_ := set $rule "annotations" (dict "summary" $alert.summary "description" $alert.description "runbook_url" $page) -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
groups:
  - name: operating-system-manager
    rules:
      {{- toYaml $rules | nindent 6 }}
{{- end -}}
