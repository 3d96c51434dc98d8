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

{{> lib/persist.sh}}

# When the token was issued: a clock that is behind that is wrong. One that can't be read is the API server's to refuse.
issued() {
  claims=$(cut -d . -f 2 <"$header" | tr '_-' '/+')
  while [ $((${#claims} % 4)) -ne 0 ]; do claims=$claims=; done
  echo "$claims" | base64 -d 2>/dev/null | jq -r '.iat | floor' 2>/dev/null || echo 0
}

{{> lib/clock.sh}}

ask() {
  curl -q -sS -g -o "$work/answer" -w '%{http_code}' --connect-timeout 10 --max-time 120 \
    --cacert "$ca" -H "@$header" -H 'Accept: application/json' "$url"
}

{{> lib/explain.sh}}

# Leaves the provisioning document in $document, whole and checked.
fetch() {
  status=$(ask 2>"$work/error")
  code=$?
  if [ "$code:$status" != 0:200 ]; then
    explain "$code" "$status"
    return 1
  fi
  if ! { jq -er --arg key "$key" '.data[$key] | strings' <"$work/answer" >"$work/document" &&
    base64 -d <"$work/document" >"$work/document.gz" &&
    gunzip <"$work/document.gz" >"$document.new"; } 2>"$work/error"; then
    complain answer "can't take the document out of Secret $secret: $(last "$work/error")"
    return 1
  fi
  if ! matches "$document.new"; then
    complain digest "Secret $secret is not the one that this machine was made for (digest differs)"
    return 1
  fi
  sync
  mv -f "$document.new" "$document"
}
