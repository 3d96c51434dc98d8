#!/bin/sh
# Restarts a program that runs but has not answered three times in a row.
set -u
{{#if (ne os.family "flatcar")}}
{{> lib/python.sh}}
{{/if}}
mkdir -p /run/osm

check() { # UNIT COMMAND ...
  unit=$1
  failures=/run/osm/$unit.failures
  shift
  if ! systemctl is-active -q "$unit" || timeout 30 "$@" >/dev/null 2>&1; then
    rm -f "$failures"
    return
  fi
  count=$(cat "$failures" 2>/dev/null)
  count=$((${count:-0} + 1))
  echo "$unit does not answer ($count)"
  echo "$count" >"$failures"
  if [ "$count" -ge 3 ]; then
    rm -f "$failures"
    systemctl restart --no-block "$unit"
  fi
}

check containerd.service /opt/bin/ctr version
# Until it has its certificate, the kubelet has good reason not to answer.
if [ -e /var/lib/kubelet/pki/kubelet-client-current.pem ]; then
  {{#if (eq os.family "flatcar")}}
  check kubelet.service curl -q -fsS --noproxy '*' --max-time 20 http://127.0.0.1:10248/healthz
  {{else}}
  check kubelet.service "$python" -c 'try:
    from urllib.request import ProxyHandler, build_opener
except ImportError:
    from urllib2 import ProxyHandler, build_opener
build_opener(ProxyHandler({})).open("http://127.0.0.1:10248/healthz", timeout=20)'
  {{/if}}
fi
