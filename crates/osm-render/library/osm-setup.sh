#!/bin/sh
# Makes a worker node of this machine. Goes on trying until the kubelet runs; may be interrupted anywhere.
set -u
umask 022
{{> lib/proxy.sh}}

{{> lib/persist.sh}}

{{> lib/downloads.sh}}

# Runs a command that the node can do without.
try() {
  "$@" >"$work/try" 2>&1 || say "warning: $* failed: $(last "$work/try")"
}

# Runs a command that the node can't do without.
must() {
  "$@" >/dev/null || {
    echo "$* failed"
    return 1
  } >&2
}

{{#if (eq os.family "flatcar")}}
prepare_updates() {
  : nothing, unless here
  {{#if (or os.disableAutoUpdate os.disableUpdateEngine)}}
  # Pods don't need it: an update that goes on changes nothing until the next boot.
  try systemctl mask --now update-engine.service
  {{else if proxy.http}}
  # It may have been started before its proxy was known. It tries again by itself, and pods don't need it.
  try systemctl try-restart update-engine.service
  {{/if}}
  {{#if (or os.disableAutoUpdate os.disableLocksmithD)}}
  # Pods don't need it: at worst, the machine reboots at a bad time.
  try systemctl mask --now locksmithd.service
  {{/if}}
}

{{/if}}
{{> lib/swap.sh}}
{{> lib/modules.sh}}

prepare_kernel() {
  {{#if network.ipv6}}
  # Where the kernel itself listens to router advertisements, it must go on doing so as a router. A device may be gone by now.
  for setting in /proc/sys/net/ipv6/conf/*/accept_ra; do
    if [ -e "$setting" ] && [ "$(cat "$setting")" = 1 ]; then echo 2 >"$setting"; fi
  done
  {{/if}}
  prepare_modules || return 1
  # At every boot, systemd loads them before it sets the parameters below, some of which a module brings.
  try cp "$work/loaded" /etc/modules-load.d/osm-pods.conf
  # In the order of their names, as at every boot: a profile may have settings of its own. The kernel may refuse some of them. The kubelet
  # checks those that it needs, and kube-proxy and network plugins set theirs.
  for settings in /etc/sysctl.d/99-zz-*.conf; do
    try sysctl -q -e -p "$settings"
  done
}

# What pods do without, or the kubelet itself insists on. Tried once.
prepare_system() {
  {{#if system.swap.on}}
  {{#if system.swap.mebibytes}}
  # A machine without room for a swap file is still a node.
  try prepare_swap
  {{/if}}
  {{else if (ne os.family "flatcar")}}
  # The kubelet itself refuses to start where swap is left on, and says so: now, and at the next boot.
  try swapoff -a
  try sed -i 's/^[^#].*[[:space:]]swap[[:space:]].*/# &/' /etc/fstab
  try systemctl mask swap.target
  {{/if}}
  # Only the size of the journal depends on it.
  try systemctl try-restart systemd-journald.service
}

{{#if (eq os.family "redhat")}}
# No policy knows what containerd and the kubelet must do from /opt/bin.
prepare_selinux() {
  if ! command -v getenforce >/dev/null; then return; fi
  if [ "$(getenforce)" = Enforcing ]; then must setenforce 0 || return 1; fi
  if [ -e /etc/selinux/config ]; then must sed -i 's/^SELINUX=enforcing/SELINUX=permissive/' /etc/selinux/config; fi
}

# Stops a unit for good, if there is one. What counts is the effect: an image may have masked it.
turn_off() { # UNIT
  if ! systemctl cat "$1" >/dev/null 2>&1; then return; fi
  must systemctl disable "$1" || ! systemctl -q is-enabled "$1" || return 1
  must systemctl stop "$1" || ! systemctl -q is-active "$1"
}

prepare_network() {
  # It knows nothing of pods.
  turn_off firewalld.service || return 1
  # It makes routes for every address that the cloud gives this machine, and so for those of pods.
  turn_off nm-cloud-setup.timer || return 1
  turn_off nm-cloud-setup.service || return 1
  if systemctl -q is-active NetworkManager.service; then
    # Until it has read its configuration again, it takes the devices of network plugins for its own.
    must systemctl reload NetworkManager.service || return 1
    if ip rule | grep -q '^30[2-9][0-9][0-9]:'; then
      # Each device gets back what its connection says, without going down. One that has no connection refuses, and has no such rules.
      for device in $(nmcli -t -f DEVICE,TYPE device | sed -n 's/:ethernet$//p'); do
        try nmcli device reapply "$device"
      done
    fi
  fi
}
{{else if (eq os.family "flatcar")}}
prepare_network() {
  # The kubelet uses containerd. A second runtime would take memory, and its firewall rules drop packets of pods. An image may not have it.
  must systemctl mask --now docker.socket docker.service || ! systemctl -q is-active docker.socket docker.service
}
{{else}}
prepare_network() {
  # It knows nothing of pods. Where it is off already, it may fail for want of what it needs to run.
  if ! command -v ufw >/dev/null; then return; fi
  must ufw --force disable || ! ufw status | grep -q '^Status: active'
}
{{/if}}
{{#if (and proxy.http (not proxy.credentials))}}

# For people who log in, and for sudo. Everybody can read the file.
write_environment() {
  {
    [ ! -e /etc/environment ] ||
      grep -vi -e '^https\{0,1\}_proxy=' -e '^no_proxy=' /etc/environment || [ $? = 1 ] || return 1
    grep -v '^#' /etc/osm/proxy.env
  } >/etc/environment.new || return 1
  chmod 644 /etc/environment.new && mv -f /etc/environment.new /etc/environment
}
{{/if}}
{{#if hostCABundle}}

{{#if (eq os.family "redhat")}}
trust_host_ca() {
  mkdir -p /etc/pki/ca-trust/source/anchors || return 1
  cat >/etc/pki/ca-trust/source/anchors/osm.pem <<'END-OF-BUNDLE' || return 1
{{trim hostCABundle}}
END-OF-BUNDLE
  must update-ca-trust extract
}
{{else}}
# One certificate a file, as update-ca-certificates wants them.
trust_host_ca() {
  {{#if (eq os.family "flatcar")}}
  rm -f /etc/ssl/certs/osm-*.pem
  mkdir -p /etc/ssl/certs || return 1
  awk '/-BEGIN CERTIFICATE-/ { n++ } n { print > ("/etc/ssl/certs/osm-" n ".pem") }' <<'END-OF-BUNDLE' || return 1
  {{else}}
  rm -f /usr/local/share/ca-certificates/osm-*.crt
  mkdir -p /usr/local/share/ca-certificates || return 1
  awk '/-BEGIN CERTIFICATE-/ { n++ } n { print > ("/usr/local/share/ca-certificates/osm-" n ".crt") }' <<'END-OF-BUNDLE' || return 1
  {{/if}}
{{trim hostCABundle}}
END-OF-BUNDLE
  must update-ca-certificates
}
{{/if}}
{{/if}}

{{> lib/mirrors.sh}}

write_files() {
  mkdir -p /etc/cni/net.d /etc/containerd/conf.d /etc/kubernetes/manifests /opt/bin "$downloads" || return 1
  write_mirrors || return 1
  {{#if overwriteCloudConfig}}
  (umask 077 && base64 -d >/etc/kubernetes/cloud-config.new <<'EOF'
{{b64 overwriteCloudConfig}}
EOF
  ) && mv -f /etc/kubernetes/cloud-config.new /etc/kubernetes/cloud-config
  {{/if}}
}

{{#if (eq os.family "flatcar")}}
# Flatcar brings containerd and runc along; what configures and checks them looks for them in /opt/bin.
check_containerd() {
  version=$(containerd --version 2>"$work/containerd" | awk '{ print $3 }')
  version=${version#v}
  case ${version%%.*} in
    '' | *[!0-9]*)
      complain containerd "containerd does not say its version: $(last "$work/containerd")"
      return 1
      ;;
    0 | 1)
      complain containerd "containerd is $version, too old: use Flatcar 4459.2.3 or newer"
      return 1
      ;;
  esac
  for program in ctr runc; do
    ln -sfn "/usr/bin/$program" "/opt/bin/$program"
  done
}

{{/if}}
# Fetches NAME and then runs COMMAND, which puts it where it belongs.
begin() { # NAME URL CHECKSUM-URL COMMAND ...
  name=$1 url=$2 checksum=$3
  shift 3
  { artefact "$name" "$url" "$checksum" && "$@"; } 2>"$work/$name" &
  begun="$begun $!:$name"
}

# All at once; what arrived whole is kept for the next attempt.
install_programs() {
  begun='' missing=''
  begin kubelet "{{download-url "kubelet" arch="$arch"}}" "{{checksum-url "kubelet" arch="$arch"}}" \
    place "$downloads/kubelet" /opt/bin/kubelet
  {{#if (ne os.family "flatcar")}}
  begin containerd "{{download-url "containerd" arch="$arch"}}" "{{checksum-url "containerd" arch="$arch"}}" \
    unpack containerd /opt/bin bin/containerd bin/containerd-shim-runc-v2 bin/ctr
  begin runc "{{download-url "runc" arch="$arch"}}" "{{checksum-url "runc" arch="$arch"}}" \
    place "$downloads/runc" /opt/bin/runc
  {{/if}}
  begin cni "{{download-url "cni" arch="$arch"}}" "{{checksum-url "cni" arch="$arch"}}" \
    unpack cni /opt/cni/bin
  for job in $begun; do
    wait "${job%%:*}" || missing="$missing ${job#*:}"
  done
  for name in $missing; do
    complain "install $missing" "no $name yet: $(last "$work/$name" 2)"
    return 1
  done
}
{{#if (eq os.family "flatcar")}}
{{#if downloads.crictl.version}}

install_crictl() {
  artefact crictl "{{download-url "crictl" arch="$arch"}}" "{{checksum-url "crictl" arch="$arch"}}" &&
    unpack crictl /opt/bin crictl
}
{{/if}}
{{/if}}

# A drop-in for the unit of the image applies to ours, too, such as that of kubeadm, which starts a kubelet with another configuration. Those
# of a profile are in /etc, and start programs in /opt/bin.
turn_off_drop_ins() { # UNIT
  for drop_in in $(systemctl show -p DropInPaths "$1" | sed 's/^DropInPaths=//'); do
    case $drop_in in
      */"$1.d"/*) ;;
      *) continue ;;
    esac
    case $drop_in in
      /etc/*) grep '^ExecStart=.' "$drop_in" | grep -qv '^ExecStart=/opt/bin/' || continue ;;
    esac
    say "warning: $drop_in of the image changes $1, and is turned off"
    try mkdir -p "/etc/systemd/system/$1.d"
    try ln -sfn /dev/null "/etc/systemd/system/$1.d/${drop_in##*/}"
  done
}

start_services() {
  systemctl daemon-reload &&
    systemctl enable containerd.service kubelet.service osm-health.timer{{#if (ne os.family "flatcar")}} osm-extras.service{{/if}} &&
    systemctl restart containerd.service &&
    systemctl restart kubelet.service &&
    systemctl start osm-health.timer
}

# What would keep containerd, the kubelet or packets of pods from what they do.
remove_obstacles() {
  {{#if (eq os.family "redhat")}}
  prepare_selinux || return 1
  {{/if}}
  prepare_network
}

# What downloads and services need on the disk.
prepare_files() {
  {{#if (and proxy.http (not proxy.credentials))}}
  write_environment || return 1
  {{/if}}
  {{#if hostCABundle}}
  trust_host_ca || return 1
  {{/if}}
  write_files
}

{{> lib/upgrade.sh}}
setup() {
  if ! remove_obstacles 2>"$work/system"; then
    complain system "can't prepare the system: $(last "$work/system" 2)"
    return 1
  fi
  if ! prepare_files 2>"$work/files"; then
    complain files "can't write the node's files: $(last "$work/files" 2)"
    return 1
  fi
  {{#if (eq os.family "flatcar")}}
  check_containerd || return 1
  {{else if (and os.distUpgradeOnBoot packages.enabled)}}
  upgrade_packages
  {{/if}}
  prepare_kernel || return 1
  install_programs || return 1
  {{#if (eq os.family "redhat")}}
  if command -v restorecon >/dev/null; then
    # SELinux is permissive: where a label is wrong, it only logs.
    try restorecon -R /etc/cni /etc/containerd /etc/kubernetes /etc/osm /etc/systemd/system /opt/bin /opt/cni
  fi
  {{/if}}
  systemctl daemon-reload
  {{#if (ne os.family "flatcar")}}
  turn_off_drop_ins containerd.service
  {{/if}}
  turn_off_drop_ins kubelet.service
  if ! start_services >"$work/start" 2>&1; then
    complain start "can't start the node's services: $(last "$work/start" 2)"
    return 1
  fi
  {{#if (and (eq os.family "flatcar") downloads.crictl.version)}}
  # For people: the node can do without.
  try install_crictl
  {{/if}}
  rm -rf "$downloads"
  # After a power cut, what the mark vouches for must be there.
  sync
  date -u '+%FT%TZ' >"$state/set-up.new" && mv -f "$state/set-up.new" "$state/set-up"
}

{{#if (eq os.family "flatcar")}}
prepare_updates
{{/if}}
prepare_system
until setup; do
  pause
done
say 'the kubelet runs'
{{#if (ne os.family "flatcar")}}
systemctl start --no-block osm-extras.service
{{/if}}
