#!/bin/sh
# Makes this machine a node of the cluster, in the pool @POOL@. Run it as root:
#
#     sh SCRIPT [NAME]
#
# NAME is the node's name; without it, the machine's host name. Networks, users and keys of the machine stay as they are.
# This script holds credentials, which are good for a few hours: fetch it anew for each machine, and delete it afterwards.
set -eu
umask 077

fail() {
  echo "this machine was not changed: $1" >&2
  exit 1
}

name=$(printf '%s' "${1:-$(uname -n)}" | tr '[:upper:]' '[:lower:]')
case $name in
  '' | *[!a-z0-9.-]* | [.-]* | *[.-]) fail "'$name' can't be a node's name: give one of letters, digits, - and ." ;;
esac
[ "$(id -u)" -eq 0 ] || fail 'run this script as root'
command -v systemctl >/dev/null || fail 'it has no systemd'
python3 -c 'import yaml' || fail 'install python3 and its module yaml (python3-yaml), which come with cloud-init'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
base64 -d >"$work/osm-apply" <<'EOF'
@APPLIER@
EOF
base64 -d <<'EOF' | sed "s/<MACHINE_NAME>/$name/g" >"$work/bootstrap.yaml"
@DOCUMENT@
EOF
python3 "$work/osm-apply" "$work/bootstrap.yaml"
echo "the machine goes on by itself and joins as $name: journalctl -fu osm-bootstrap -u osm-setup -u kubelet"
