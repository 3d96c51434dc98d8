#!/bin/sh
# Makes the root file system of a machine: what a cloud's Debian image has (systemd, cloud-init, curl, python3), and what a container
# needs to pass for a virtual machine. Nothing of what our profiles must bring along: no containerd, no kubelet, no jq.
# usage: image.sh SUITE DIRECTORY
set -eu
suite=$1 root=$2
packages=apt,ca-certificates,cloud-init,curl,dbus,iproute2,kmod,less,libfaketime,libpam-systemd,locales,mount,netbase,procps,python3,systemd,systemd-sysv,tzdata,udev,util-linux
case $suite in
  bookworm) ;;
  # From Debian 13 on cloud-init does without some of what it had drawn in.
  *) packages=$packages,python3-yaml ;;
esac
# systemd-resolved is there to be switched on by the machines that are to have it.
mmdebstrap --quiet --variant=minbase --include="$packages,systemd-resolved" --aptopt='APT::Install-Recommends "false"' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' "$suite" "$root"

# Modules that the host's kernel has, so that modprobe succeeds.
kernel=$root/lib/modules/$(uname -r)
mkdir -p "$kernel"
for module in overlay br_netfilter bridge veth nf_conntrack nft_compat xt_MASQUERADE xt_addrtype xt_comment xt_conntrack xt_mark xt_nat \
  xt_statistic; do
  echo "kernel/$module.ko"
done >"$kernel/modules.builtin"
: >"$kernel/modules.order"
chroot "$root" depmod "$(uname -r)"

# What lies under /proc/sys and is not the machine's alone is replaced by files: the host's settings are not ours to change. Their
# first values are a kernel's defaults, so that it is seen whether a node sets its own.
mkdir -p "$root/usr/local/lib/lab"
cat >"$root/usr/local/lib/lab/prepare" <<'END'
#!/bin/sh
for folder in /sys/fs/cgroup /sys/fs/cgroup/*; do
  if [ -d "$folder" ] && [ ! -L "$folder" ]; then mount -o remount,rw,bind "$folder" 2>/dev/null; fi
done
# /proc/sys stays read-only but for what belongs to a network namespace.
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,rw,bind /proc/sys/net
mkdir -p /run/lab
replace() { # PATH-IN-PROC VALUE
  file=/run/lab/$(echo "$1" | tr / _)
  echo "$2" >"$file"
  mount --bind "$file" "/proc/$1"
}
replace sys/vm/overcommit_memory 0
replace sys/vm/panic_on_oom 0
replace sys/kernel/panic 0
replace sys/kernel/panic_on_oops 0
replace sys/kernel/keys/root_maxkeys 1000000
replace sys/kernel/keys/root_maxbytes 25000000
replace sys/fs/inotify/max_user_instances 128
replace sys/fs/inotify/max_user_watches 8192
replace swaps 'Filename Type Size Used Priority'
mount --make-rshared /
exit 0
END
chmod 755 "$root/usr/local/lib/lab/prepare"
cat >"$root/etc/systemd/system/lab-prepare.service" <<'END'
[Unit]
Description=Make a virtual machine of a container
DefaultDependencies=no
After=local-fs-pre.target
Before=sysinit.target systemd-sysctl.service systemd-modules-load.service cloud-init-local.service systemd-networkd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/lib/lab/prepare

[Install]
WantedBy=sysinit.target
END
chroot "$root" systemctl --quiet enable lab-prepare.service systemd-networkd.service systemd-networkd-wait-online.service
chroot "$root" systemctl --quiet disable apt-daily.timer apt-daily-upgrade.timer systemd-resolved.service
# The host's clock is the machine's; nobody logs in at the console, which is for messages.
chroot "$root" systemctl --quiet mask systemd-timesyncd.service console-getty.service

# As cloud images have it.
printf 'locale: C.UTF-8\ndatasource_list: [NoCloud, None]\n' >"$root/etc/cloud/cloud.cfg.d/10-image.cfg"
# No router answers on the machines' network: waiting for one would take 12 seconds.
folder=$root/etc/systemd/network/10-cloud-init-eth0.network.d
mkdir -p "$folder"
printf '[Network]\nIPv6AcceptRA=no\n' >"$folder/image.conf"
mkdir -p "$root/var/log/journal" "$root/etc/systemd/journald.conf.d"
# The kernel's log is the host's.
printf '[Journal]\nReadKMsg=no\n' >"$root/etc/systemd/journald.conf.d/image.conf"
rm -rf "$root/var/lib/cloud" "$root/var/cache/apt"/*.bin "$root/etc/resolv.conf" "$root/etc/machine-id" "$root/etc/hostname"
: >"$root/etc/machine-id"
echo 'nameserver 10.217.0.1' >"$root/etc/resolv.conf"

# A container may not lower its processes' scores for the kernel's out-of-memory killer.
mkdir -p "$root/etc/containerd/conf.d"
cat >"$root/etc/containerd/conf.d/lab.toml" <<'END'
version = 3

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
END
