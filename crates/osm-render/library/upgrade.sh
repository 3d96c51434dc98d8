{{#if (and os.distUpgradeOnBoot packages.enabled (ne os.family "flatcar"))}}
{{#if (eq os.family "redhat")}}
needs_reboot() {
  if ! command -v needs-restarting >/dev/null; then return 1; fi
  ! needs-restarting -r >/dev/null 2>&1
}
{{else}}
{{> lib/apt.sh}}

needs_reboot() {
  [ -e /run/reboot-required ]
}
{{/if}}

# Upgrades all packages, once: from the mirrors, through the proxy and with the certificates that are set by now. A node with the
# packages of its image is better than none.
upgrade_packages() {
  [ ! -e "$state/upgraded" ] || return 0
  {{#if (eq os.family "redhat")}}
  # With the modules of this kernel, the upgrade brings those of a newer one. Without them, the newer one may be the one that has them.
  prepare_modules
  try yum -q -y upgrade
  {{else}}
  # A power cut may have interrupted an upgrade.
  try dpkg --configure -a
  try apt update
  try apt dist-upgrade
  {{/if}}
  # After a power cut, what the mark vouches for must be there.
  mkdir -p "$state" && sync
  date -u '+%FT%TZ' >"$state/upgraded.new" && mv -f "$state/upgraded.new" "$state/upgraded" || return 0
  if needs_reboot; then
    say 'rebooting, because the upgrade of packages requires it'
    sync
    if systemctl reboot; then exit; fi
  fi
}

{{/if}}
