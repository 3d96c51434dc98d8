#!/bin/sh
# Fetches this machine's provisioning document from the API server, checks that it is the one that this
# script was made with, and applies it. Goes on trying until that is done; may be interrupted anywhere.
set -u
umask 077
server={{shell cluster.apiServer}}
secret={{late "provisioning/secret-name" as="shell"}}
key={{late "provisioning/key" as="shell"}}
digest={{late "provisioning/sha256" as="shell"}}
url=${server%/}/api/v1/namespaces/cloud-init-settings/secrets/$secret
ca=/etc/kubernetes/pki/ca.crt
header=/etc/osm/api-token
state=/var/lib/osm
document=$state/provisioning.yaml
{{> lib/python.sh}}

{{> lib/persist.sh}}

# When the token was issued: a clock that is behind that is wrong. One that can't be read is the API server's to refuse.
issued() {
  "$python" -c 'import base64, json, sys
part = sys.stdin.read().split(".")[1]
print(int(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["iat"]))' \
    2>/dev/null <"$header" || echo 0
}

{{> lib/clock.sh}}

# Does what curl does in ask, with its exit statuses, where there is no curl. Neither uses a proxy, which would see the token.
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
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    with opener.open(request, timeout=30) as reply:
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
    curl -q -sS -g --noproxy '*' -o "$work/answer" -w '%{http_code}' --connect-timeout 10 --max-time 120 \
      --cacert "$ca" -H "@$header" -H 'Accept: application/json' "$url"
  else
    ask_with_python
  fi
}

{{> lib/explain.sh}}

fetch() {
  status=$(ask 2>"$work/error")
  code=$?
  if [ "$code:$status" != 0:200 ]; then
    explain "$code" "$status"
    return 1
  fi
  if ! "$python" -c 'import base64, gzip, json, os, sys
data = gzip.decompress(base64.b64decode(json.load(open(sys.argv[1]))["data"][sys.argv[2]]))
with open(sys.argv[3], "wb") as file:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())' "$work/answer" "$key" "$document.new" 2>"$work/error"; then
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

# What cloud-init has written must be on the disk: until this mark is there, it starts over at the next boot.
mkdir -p "$state" 2>/dev/null && sync && touch "$state/begun" 2>/dev/null
wait_for_clock
until bootstrap; do
  pause
done
say 'the provisioning document is applied'
