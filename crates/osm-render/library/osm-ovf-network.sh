#!/bin/sh
# Configures the network interfaces as VMware Cloud Director describes them in the OVF environment, before systemd-networkd
# starts: a network whose addresses come from a static pool has no DHCP. At every boot, because an address may change.
# Values come from outside, so each is checked before it becomes part of a file.
set -u
umask 022
{{> lib/persist.sh}}

files=/etc/systemd/network/06-osm-ovf

ask() {
  timeout 5 vmware-rpctool 'info-get guestinfo.ovfEnv' || timeout 5 vmtoolsd --cmd 'info-get guestinfo.ovfEnv'
}

# The OVF environment; nothing if there is none. It contains this machine's user data, so it must not be stored.
environment() {
  left=5
  while :; do
    ask 2>"$work/error" && return
    ! grep -qi 'no value found' "$work/error" || return 0
    left=$((left - 1))
    [ "$left" -gt 0 ] || return 1
    sleep 1
  done
}

# The properties about interfaces in an OVF environment, as lines of key and value. A value with other characters than those of
# names and addresses becomes "!". Comments and CDATA are skipped.
properties() {
  LC_ALL=C awk -v "quote='" '
    BEGIN {
      RS = "<"
      space = "[ \t\r\n]*"
      text = "(\"[^\"]*\"|" quote "[^" quote "]*" quote ")"
      attribute = "^" space "[A-Za-z_][A-Za-z0-9_.:-]*" space "=" space text
    }
    end == "" && /^!--/ { end = "-->" }
    end == "" && /^!\[CDATA\[/ { end = "]]>" }
    end != "" {
      if (index($0, end)) end = ""
      next
    }
    /^([A-Za-z_][A-Za-z0-9_.-]*:)?Property[ \t\r\n]/ {
      rest = substr($0, index($0, "Property") + 8)
      key = value = ""
      while (match(rest, attribute)) {
        name = found = substr(rest, 1, RLENGTH)
        rest = substr(rest, RLENGTH + 1)
        sub("=.*", "", name)
        sub("^.*:", "", name)
        gsub("[ \t\r\n]", "", name)
        sub("^[^=]*=" space, "", found)
        found = substr(found, 2, length(found) - 2)
        if (name == "key") key = found
        if (name == "value") value = found
      }
      if (key !~ /^vCloud_(primaryNic|(bootproto|macaddr|ip|netmask|gateway|dns1|dns2|suffix)_[0-9])$/ || (key in seen)) next
      seen[key] = 1
      print key, (value ~ /[^A-Za-z0-9.:_-]/ ? "!" : value)
    }'
}

get() { # NAME
  printf '%s\n' "$known" | sed -n "s/^vCloud_$1 //p"
}

is() { # VALUE PATTERN
  printf '%s\n' "$1" | grep -Eqx "$2"
}

# A property of the interface. Fails, and says so, if it does not match.
checked() { # NAME PATTERN
  value=$(get "$1_$number")
  if ! is "$value" "$2"; then
    say "vCloud_$1_$number in the OVF environment is missing or invalid" >&2
    return 1
  fi
  echo "$value"
}

is_static() {
  ! is "$(get "bootproto_$number")" '[Dd][Hh][Cc][Pp]' && [ -n "$(get "ip_$number")" ]
}

octet='(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])'
unicast="([1-9]|[1-9][0-9]|1[013-9][0-9]|12[0-689]|2[01][0-9]|22[0-3])(\.$octet){3}"
ipv6='[0-9A-Fa-f]{0,4}(:[0-9A-Fa-f]{0,4}){2,7}'
part='(128|192|224|240|248|252|254|255)'
netmask="$part\.0\.0\.0|255\.$part\.0\.0|255\.255\.$part\.0|255\.255\.255\.$part"
label='[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?'

prefix_length() { # NETMASK
  ones=0
  for byte in $(echo "$1" | tr . ' '); do
    while [ "$byte" -gt 0 ]; do
      ones=$((ones + byte % 2))
      byte=$((byte / 2))
    done
  done
  echo "$ones"
}

# A static address, with a default route only for the primary interface.
static_settings() {
  address=$(checked ip "$unicast") || return 1
  mask=$(checked netmask "$netmask") || return 1
  printf '%s\n' 'DHCP=no' "Address=$address/$(prefix_length "$mask")"
  gateway=$(checked gateway "($unicast)?")
  [ "$number" != "$primary" ] || [ -z "$gateway" ] || echo "Gateway=$gateway"
  for name in dns1 dns2; do
    server=$(checked "$name" "($unicast|$ipv6)?")
    [ -z "$server" ] || echo "DNS=$server"
  done
  domain=$(checked suffix "($label(\.$label)*)?")
  [ -z "$domain" ] || echo "Domains=$domain"
}

# The configuration of the interface for systemd-networkd. Devices of network plugins may have the same address in hardware, so
# the name must match as well.
configuration() {
  mac=$(checked macaddr '[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}') || return 1
  printf '%s\n' '[Match]' "MACAddress=$mac" 'Name=en* eth*' '' '[Network]'
  {{#if network.ipv6}}
  echo 'IPv6AcceptRA=yes'
  {{/if}}
  if is_static; then
    static_settings || return 1
  else
    # The image's settings for VMware.
    printf '%s\n' 'DHCP=yes' '' '[DHCPv4]' 'UseMTU=yes' 'UseDomains=yes' 'RequestBroadcast=yes'
    [ "$number" = "$primary" ] || printf '%s\n' 'UseGateway=no' '' '[Link]' 'RequiredForOnline=no'
  fi
  [ "$number" = "$primary" ] || printf '%s\n' '' '[IPv6AcceptRA]' 'UseGateway=no'
}

# Replaces a file at once.
write() { # PATH TEXT
  { mkdir -p "${1%/*}" && printf '%s\n' "$2" >"$1.new" && sync && mv -f "$1.new" "$1"; } 2>"$work/error"
}

if ! found=$(environment); then
  say "can't read the OVF environment: $(last "$work/error")"
  exit 1
fi
if ! known=$(printf '%s\n' "$found" | properties 2>"$work/error"); then
  say "can't understand the OVF environment: $(last "$work/error")"
  exit 1
fi
numbers='' first='' static=''
for number in 0 1 2 3 4 5 6 7 8 9; do
  [ -n "$(get "macaddr_$number")" ] || continue
  numbers="$numbers $number"
  [ -n "$first" ] || first=$number
  ! is_static || static=yes
done
if [ -z "$numbers" ]; then
  say 'the OVF environment describes no network interfaces: nothing to do'
  exit
fi
# The image uses DHCP by itself.
[ -n "$static" ] || numbers=''
primary=$(get primaryNic)
case " $numbers " in *" ${primary:-none} "*) ;; *) primary=$first ;; esac

changed='' failed=''
for number in $numbers; do
  path=$files-$number.network
  if ! text=$(configuration); then
    say "interface $number: not configured, because of the OVF environment"
    failed=yes
  elif [ "$text" != "$(cat "$path" 2>/dev/null)" ]; then
    if write "$path" "$text"; then
      changed=yes
      say "interface $number: $(echo "$text" | sed -n 's/^Address=\(.*\)/static address \1/p; s/^DHCP=yes/DHCP/p')"
    else
      say "interface $number: can't write $path: $(last "$work/error")"
      failed=yes
    fi
  fi
done
for path in "$files"-*.network; do
  number=${path#"$files-"} number=${number%.network}
  case " $numbers " in *" $number "*) continue ;; esac
  if [ -e "$path" ] && rm -f "$path"; then
    changed=yes
    say "interface $number: no longer in the OVF environment, or no static addresses: removed $path"
  fi
done
if [ -z "$changed$failed" ]; then
  say 'the network is configured as the OVF environment describes it: nothing to do'
elif [ -n "$changed" ] && systemctl -q is-active systemd-networkd.service && ! networkctl reload 2>"$work/error"; then
  say "systemd-networkd does not reload: $(last "$work/error")"
  failed=yes
fi
[ -z "$failed" ]
