#!/bin/sh
# Finds out, before the kubelet starts, what only the machine itself knows: its name as the cloud has it,
# its addresses, its name servers.
set -eu
mkdir -p /run/osm
{{#if (not kubelet.hostnameOverride)}}

# The host name, as the kubelet itself would find it. A machine that has joined keeps its first one.
node_args() {
  own=$(uname -n | tr '[:upper:]' '[:lower:]')
  record=/var/lib/osm/node-name
  if [ ! -s "$record" ] || [ ! -e /var/lib/kubelet/kubeconfig ]; then
    mkdir -p "${record%/*}"
    echo "$own" >"$record.new"
    sync
    mv -f "$record.new" "$record"
  fi
  name=$(cat "$record")
  [ "$name" = "$own" ] || echo "--hostname-override=$name"
}
{{else if (eq cloud.nodeName "ec2-metadata")}}
{{#if (eq os.family "flatcar")}}

metadata() { # CURL-OPTION ... URL
  curl -q -fsS -g --noproxy '*' --max-time 5 "$@"
}
{{else}}
{{> lib/python.sh}}
{{/if}}

# The private DNS name, by which the cloud controller manager finds the instance.
node_name() {
  {{#if (eq os.family "flatcar")}}
  for host in 169.254.169.254 '[fd00:ec2::254]'; do
    ttl='X-aws-ec2-metadata-token-ttl-seconds: 60'
    token=$(metadata -X PUT -H "$ttl" "http://$host/latest/api/token") || continue
    found=$(echo "X-aws-ec2-metadata-token: $token" |
      metadata -H @- "http://$host/latest/meta-data/local-hostname") || continue
    [ -n "$found" ] || continue
    echo "${found%% *}" | tr '[:upper:]' '[:lower:]'
    return
  done
  echo 'the instance metadata names no local-hostname' >&2
  return 1
  {{else}}
  "$python" - <<'EOF'
import sys
try:
    from urllib.request import ProxyHandler, Request, build_opener
except ImportError:
    from urllib2 import ProxyHandler, Request, build_opener
opener = build_opener(ProxyHandler({}))

def ask(host, path, method, headers):
    request = Request("http://" + host + "/latest/" + path, headers=headers)
    request.get_method = lambda: method
    return opener.open(request, timeout=5).read().decode()

for host in "169.254.169.254", "[fd00:ec2::254]":
    try:
        token = ask(host, "api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        name = ask(host, "meta-data/local-hostname", "GET", {"X-aws-ec2-metadata-token": token})
        print(name.split()[0].lower())
        sys.exit()
    except (EnvironmentError, IndexError) as problem:
        sys.stderr.write("instance metadata at %s: %s\n" % (host, problem))
sys.exit(1)
EOF
  {{/if}}
}
{{else}}

# The machine's name in the cloud; the host name may have a domain behind it.
node_name() {
  tr '[:upper:]' '[:lower:]' </etc/machine-name
}
{{/if}}

# The address from which this machine reaches others, within a minute: IPv6 comes late at boot. A kubelet that
# is not told would ask a name server for it, and wait ten seconds for one that does not answer, again and again.
address() { # FAMILY DESTINATION
  left=60
  while [ "$left" -gt 0 ]; do
    found=$(ip "-$1" -o route get "$2" 2>/dev/null | sed -n 's/.* src \([^ ]*\).*/\1/p')
    # Without a default route, as in an isolated network, any global address will do.
    if [ -z "$found" ] && [ "$left" -le 50 ]; then
      found=$(ip "-$1" -o addr show scope global 2>/dev/null | sed -n 's/.* inet6* \([^/ ]*\).*/\1/p' | head -n 1)
    fi
    case $found in
      '' | fe80:* | ::1) ;;
      *)
        echo "$found"
        return
        ;;
    esac
    left=$((left - 1))
    sleep 1
  done
  echo "no IPv$1 address: going on without" >&2
}

{{#if kubelet.hostnameOverride}}
name=$(node_name)
args="--hostname-override=$name"
{{else}}
args=$(node_args)
{{/if}}
{{#if network.dualStack}}
four=$(address 4 192.0.2.1)
six=$(address 6 2001:db8::1)
{{#if (eq network.ipFamily "IPv6+IPv4")}}
addresses=$six${six:+${four:+,}}$four
{{else}}
addresses=$four${four:+${six:+,}}$six
{{/if}}
args="$args${addresses:+ --node-ip=$addresses}"
{{else if network.ipv6}}
six=$(address 6 2001:db8::1)
args="$args --node-ip=${six:-::}"
{{else}}
four=$(address 4 192.0.2.1)
args="$args --node-ip=${four:-0.0.0.0}"
{{/if}}
echo "KUBELET_NODE_ARGS=$args" >/run/osm/kubelet.env

# Behind systemd-resolved, /etc/resolv.conf names a server on this machine: cluster DNS would ask itself.
resolv=/etc/resolv.conf
[ ! -e /run/systemd/resolve/resolv.conf ] || resolv=/run/systemd/resolve/resolv.conf
# The kubelet starts no pod without the file. A machine without name servers may have none.
if [ ! -e "$resolv" ]; then
  echo "there is no $resolv: pods get no name servers of this machine" >&2
  resolv=/run/osm/no-name-servers.conf
  : >"$resolv"
fi
ln -sfn "$resolv" /run/osm/resolv.conf

# osm-setup has made sure of the kernel of the first boot. A newer one may lack its modules: no node is better than one whose pods have no
# network. systemd tries again.
[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || modprobe br_netfilter || {
  echo "pods need the kernel module br_netfilter: install the package with modules of $(uname -r)" >&2
  exit 1
}

{{#if kubelet.shutdownSeconds}}
# How long logind lets the kubelet delay a shutdown, in microseconds.
shutdown_delay() {
  busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec | sed -n 's/^t //p'
}

# The kubelet looks only when it starts, and does no graceful shutdown if that is too short. logind may have started before it had our file.
# Pods run all the same, so this is a warning.
left=5
until
  delay=$(shutdown_delay)
  [ "${delay:-0}" -ge {{kubelet.shutdownSeconds}}000000 ]
do
  # This makes it read its files again. If it does not, the warning says so.
  [ "$left" -ne 5 ] || systemctl kill -s HUP systemd-logind.service || :
  if [ "$left" -eq 0 ]; then
    echo "warning: logind delays a shutdown by ${delay:-0} us, not by the {{kubelet.shutdownSeconds}} s of shutdownGracePeriod, so pods are" \
      'killed; systemd-analyze cat-config systemd/logind.conf shows which file sets InhibitDelayMaxSec last' >&2
    break
  fi
  left=$((left - 1))
  sleep 1
done

{{/if}}
# What the kubelet insists on, whatever has changed it since boot. The other files take precedence, as at boot. The kernel may refuse what a
# profile wants, and pods do without it.
for settings in /etc/sysctl.d/99-zz-*.conf; do
  sysctl -q -e -p "$settings" || echo "some kernel settings of $settings are refused" >&2
done
# The kubelet ends if one of these differs, whatever a profile wants, and says which.
sysctl -q -e -w vm.overcommit_memory=1 vm.panic_on_oom=0 kernel.panic=10 kernel.panic_on_oops=1 \
  kernel.keys.root_maxkeys=1000000 kernel.keys.root_maxbytes=25000000 ||
  echo 'some kernel settings that the kubelet needs are refused' >&2
