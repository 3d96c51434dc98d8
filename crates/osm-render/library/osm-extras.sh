#!/bin/sh
# Installs what a node can do without at first: tools for volumes and for people. What is missing after five
# attempts is a warning, and is tried again at the next boot.
set -u
umask 022
{{> lib/proxy.sh}}

{{> lib/persist.sh}}

{{> lib/downloads.sh}}

{{#if packages.enabled}}
{{#if (eq os.family "redhat")}}
# yum is dnf where there is dnf.
add_packages() {
  yum -q -y install "$@" && return
  # One that the repositories don't have must not keep the others away.
  for package; do
    yum -q -y install "$package" || missing="$missing $package"
  done
}
{{else}}
{{> lib/apt.sh}}

add_packages() {
  apt update
  apt install --no-install-recommends "$@" && return
  # One that the archive doesn't have must not keep the others away.
  for package; do
    apt install --no-install-recommends "$package" || missing="$missing $package"
  done
}
{{/if}}
{{/if}}
{{#if downloads.crictl.version}}

add_crictl() {
  # An attempt for missing packages must not fetch it again.
  [ ! -x /opt/bin/crictl ] || return 0
  mkdir -p "$downloads"
  artefact crictl "{{download-url "crictl" arch="$arch"}}" "{{checksum-url "crictl" arch="$arch"}}" &&
    unpack crictl /opt/bin crictl || missing="$missing crictl"
}
{{/if}}

{{#if packages.enabled}}
{{#if (eq os.family "redhat")}}
set -- cifs-utils conntrack-tools e2fsprogs ethtool iproute-tc iptables iscsi-initiator-utils nfs-utils socat xfsprogs
{{else}}
set -- cifs-utils conntrack e2fsprogs ethtool iptables nfs-common open-iscsi socat xfsprogs
{{/if}}
{{#if cloud.guestAgent}}
set -- "$@" {{cloud.guestAgent.package}}
{{/if}}
{{#if packages.install}}
set -- "$@"{{#each packages.install}} {{shell this}}{{/each}}
{{/if}}
{{/if}}
attempt=1
until
  missing=
  {{#if packages.enabled}}
  add_packages "$@"
  {{#if cloud.guestAgent}}
  # Whatever else is missing. Without the agent, the hypervisor knows less of the machine, and pods are as they are.
  systemctl start --no-block {{cloud.guestAgent.unit}} || :
  {{/if}}
  {{/if}}
  {{#if downloads.crictl.version}}
  add_crictl
  {{/if}}
  rm -rf "$downloads"
  [ -z "$missing" ]
do
  if [ "$attempt" -eq 5 ]; then
    say "warning: not installed:$missing"
    exit 0
  fi
  attempt=$((attempt + 1))
  pause
done
date -u '+%FT%TZ' >"$state/extras"
