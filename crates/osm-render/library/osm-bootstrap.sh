#!/bin/sh
# Fetches this machine's provisioning document from the API server, checks that it is the one that this
# script was made with, and applies it. Goes on trying until that is done; may be interrupted anywhere.
set -u
umask 077
server={{shell cluster.apiServer}}
secret={{late "provisioning/secret-name" as="shell"}}
digest={{late "provisioning/sha256" as="shell"}}
url=${server%/}/api/v1/namespaces/cloud-init-settings/secrets/$secret
ca=/etc/kubernetes/pki/ca.crt
header=/etc/osm/api-token
state=/var/lib/osm
document=$state/provisioning.yaml
{{> lib/python.sh}}
{{> lib/proxy.sh}}

{{> lib/persist.sh}}

# When the token was issued: a clock that is behind that is wrong.
issued() {
  "$python" -c 'import base64, json, sys
part = sys.stdin.read().split(".")[1]
print(int(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["iat"]))' \
    2>/dev/null <"$header" || echo 0
}

clock_is_set() {
  [ "$(date +%s)" -ge "$(($(issued) - 60))" ]
}

wait_for_clock() {
  left=60
  until clock_is_set || [ "$left" -eq 0 ]; do
    left=$((left - 1))
    sleep 1
  done
}

# Does what curl does in ask, with its exit statuses, where there is no curl.
ask_with_python() {
  "$python" - "$url" "$ca" "$header" "$work/answer" <<'EOF'
import socket, ssl, sys, urllib.error, urllib.request
url, ca, header, answer = sys.argv[1:]
status = 0
try:
    tls = ssl.create_default_context(cafile=ca)
    tls.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    name, value = open(header).read().strip().split(": ", 1)
    request = urllib.request.Request(url, headers={name: value, "Accept": "application/json"})
    with urllib.request.urlopen(request, timeout=30, context=tls) as reply:
        body = reply.read()
        status = reply.status
    with open(answer, "wb") as file:
        file.write(body)
except urllib.error.HTTPError as error:
    status = error.code
except Exception as error:
    cause = getattr(error, "reason", error)
    print(cause, file=sys.stderr)
    kinds = (socket.gaierror, 6), (ssl.SSLError, 60), (socket.timeout, 28), (OSError, 7)
    code = [code for kind, code in kinds if isinstance(cause, kind)]
    sys.exit(23 if getattr(cause, "errno", 0) == 28 else code[0] if code else 18)
finally:
    print("%03d" % status)
EOF
}

ask() {
  if command -v curl >/dev/null; then
    curl -q -sS -g -o "$work/answer" -w '%{http_code}' --connect-timeout 10 --max-time 120 \
      --cacert "$ca" -H "@$header" -H 'Accept: application/json' "$url"
  else
    ask_with_python
  fi
}

# Why ask failed, in words.
explain() { # EXIT-STATUS HTTP-STATUS
  why=$(head -n 1 "$work/error" | cut -c 1-300)
  # A connection that is cut is no matter of certificates.
  case $1:$why in 35:*reset* | 35:*closed*) set -- 7 "$2" ;; esac
  case $1:$2 in
    5:* | 6:*) complain dns "can't resolve a name: $why" ;;
    7:* | 28:*) complain connect "can't reach the API server $server: $why" ;;
    23:*) complain disk "can't write to $work: $why" ;;
    35:* | 5[13489]:* | 60:* | 77:* | 8[0-3]:* | 9[01]:*)
      if clock_is_set; then
        complain tls "can't verify the API server with $ca ($(date -u '+clock: %F %T')): $why"
      else
        complain clock "the clock is wrong ($(date -u '+%F %T')), older than this machine's token: $why"
      fi ;;
    0:401) complain 401 "the API server refuses this machine's token (401): expired, revoked, or of another cluster" ;;
    0:403) complain 403 "this machine's token may not read Secret $secret (403)" ;;
    0:404) complain 404 "there is no Secret $secret (404)" ;;
    0:*) complain "http $2" "the API server answers $2" ;;
    *) complain "curl $1" "can't read from the API server: $why" ;;
  esac
}

matches() {
  [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$digest" ]
}

fetch() {
  status=$(ask 2>"$work/error")
  code=$?
  if [ "$code:$status" != 0:200 ]; then
    explain "$code" "$status"
    return 1
  fi
  if ! "$python" -c 'import base64, json, os, sys
data = base64.b64decode(json.load(open(sys.argv[1]))["data"]["cloud-config"])
with open(sys.argv[2], "wb") as file:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())' "$work/answer" "$document.new" 2>"$work/error"; then
    complain answer "can't take the document out of Secret $secret: $(last "$work/error")"
    return 1
  fi
  if ! matches "$document.new"; then
    complain digest "Secret $secret is not the one that this machine was made for (digest differs)"
    return 1
  fi
  mv -f "$document.new" "$document"
}

bootstrap() {
  if ! mkdir -p "$state" 2>"$work/error"; then
    complain disk "$(last "$work/error")"
    return 1
  fi
  matches "$document" || fetch || return 1
  if ! "$python" /opt/bin/osm-apply "$document" 2>"$work/error"; then
    complain apply "can't apply the document: $(last "$work/error")"
    return 1
  fi
  rm -f "$work/answer" "$header"
  # After a power cut, what the mark vouches for must be there.
  sync
  date -u '+%FT%TZ' >"$state/bootstrapped.new" && mv -f "$state/bootstrapped.new" "$state/bootstrapped"
}

wait_for_clock
until bootstrap; do
  pause
done
say 'the provisioning document is applied'
