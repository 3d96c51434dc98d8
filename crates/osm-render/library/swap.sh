{{#if system.swap.mebibytes}}
# Leaves a swap file that is in use. What a power cut left behind is not one.
make_swap() { # COMMAND ...
  rm -f "$swap"
  (umask 077 && "$@") && mkswap "$swap" && swapon "$swap"
}

# Before the kubelet starts, which asks for its size only then.
prepare_swap() {
  swap=$state/swap unit=/etc/systemd/system/var-lib-osm-swap.swap
  mkdir -p "$state" || return 1
  if ! grep -q "^$swap " /proc/swaps && ! swapon "$swap"; then
    # Not every file system can swap on what fallocate reserves.
    make_swap fallocate -l {{system.swap.mebibytes}}M "$swap" ||
      make_swap dd if=/dev/zero "of=$swap" bs=1M count={{system.swap.mebibytes}} || {
      rm -f "$swap"
      return 1
    }
  fi
  cat >"$unit" <<'EOF' && systemctl enable "${unit##*/}"
[Unit]
Description=Swap file of the settings

[Swap]
What=/var/lib/osm/swap

[Install]
WantedBy=swap.target
EOF
}

{{/if}}
