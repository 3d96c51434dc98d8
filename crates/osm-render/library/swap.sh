{{#if system.swap.mebibytes}}
# Leaves a swap file that is in use. What a power cut left behind is not one.
make_swap() { # COMMAND ...
  rm -f "$swap"
  (umask 077 && "$@") && mkswap "$swap" && swapon "$swap"
}

# The kubelet evicts pods once less than a tenth of the disk is free. Less than 1 GiB is too little for any node.
has_room_for_swap() {
  stat -f -c '%a %b %S' "$state" >"$work/disk" || return 1
  read -r free all block <"$work/disk" || return 1
  free=$((free * block / 1048576)) reserve=$((all * block / 10485760))
  if [ "$reserve" -lt 1024 ]; then reserve=1024; fi
  if [ "$free" -lt $(({{system.swap.mebibytes}} + reserve)) ]; then
    echo "$free MiB are free, too little for a swap file of {{system.swap.mebibytes}} MiB: $reserve MiB must stay free"
    return 1
  fi
}

# Before the kubelet starts, which asks for its size only then.
prepare_swap() {
  swap=$state/swap unit=/etc/systemd/system/var-lib-osm-swap.swap
  mkdir -p "$state" || return 1
  if ! grep -q "^$swap " /proc/swaps && ! swapon "$swap"; then
    rm -f "$swap"
    has_room_for_swap || return 1
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
