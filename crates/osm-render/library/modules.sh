# What pods need of the kernel: the file systems of containers, and the rules of kube-proxy and network plugins. Of two names with a slash,
# one is enough, because older kernels have other modules. On RHEL 8 and newer, iptables works with nft_compat only.
modules='overlay br_netfilter xt_MASQUERADE/ipt_MASQUERADE xt_addrtype xt_comment xt_conntrack xt_mark xt_nat xt_statistic'
{{#if (and (eq os.family "redhat") (ne os.name "amzn2"))}}
modules="$modules nft_compat ip_set"
{{else}}
modules="$modules nft_compat/ip_tables"
{{/if}}

# What is built into the kernel counts as loaded. Leaves the names of the others in $missing.
load_modules() {
  missing=''
  for module in $modules; do
    for name in $(echo "$module" | tr / ' '); do
      if modprobe "$name"; then echo "$name" && continue 2; fi
    done
    missing="$missing ${module%/*}"
  done 2>"$work/modules" >"$work/loaded"
  [ -z "$missing" ]
}

prepare_modules() {
  ! load_modules || return 0
  {{#if (eq os.family "redhat")}}
  # Images of version 10 don't have this package. Without a version, it may be for a newer kernel than the running one. What follows a plus
  # sign is the variant of the kernel, whose packages have it in their names (Red Hat's kernel.spec).
  release=$(uname -r) variant=
  case $release in *+*) variant=${release##*+}- ;; esac
  package=kernel-${variant}modules-extra-${release%%+*}
  {{#if packages.enabled}}
  if must yum -q -y install "$package" 2>"$work/modules" && load_modules; then
    # It may have some of those that settings or a profile load at boot, too. What they name and no kernel has is only a warning.
    try systemctl restart systemd-modules-load.service
    return
  fi
  {{/if}}
  {{else}}
  package="the package with the modules of $(uname -r)"
  {{/if}}
  complain "modules$missing" \
    "no kernel module$missing, without which pods don't work; install $package: $(last "$work/modules" 2)"
  return 1
}
