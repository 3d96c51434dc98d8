{{#if proxy.credentials}}
# Only root can read the file, which has the password.
if [ -r /etc/osm/proxy.env ]; then
  set -a
  . /etc/osm/proxy.env
  set +a
fi
{{else if proxy.http}}
export http_proxy={{shell proxy.http}} HTTP_PROXY={{shell proxy.http}}
export https_proxy={{shell proxy.http}} HTTPS_PROXY={{shell proxy.http}}
{{#if proxy.noProxy}}
export no_proxy={{shell proxy.noProxy}} NO_PROXY={{shell proxy.noProxy}}
{{/if}}
{{/if}}
