#!/bin/sh
# Builds the disk of a virtual machine as a cloud's Debian image has it: kernel, systemd, cloud-init, curl and python3. It contains nothing
# that our profiles must bring along: no containerd, no kubelet and no jq.
# It needs no root. Without root it works in user namespaces, which need newuidmap and entries in /etc/subuid and /etc/subgid.
# usage: image.sh SUITE ARCHITECTURE DIRECTORY
# The empty directory then contains disk.raw, vmlinuz and initrd.img.
set -eu
suite=$1 architecture=$2 target=$3
packages=apparmor,apt,ca-certificates,cloud-init,curl,dbus,e2fsprogs,initramfs-tools,iproute2,kmod,less,libpam-systemd,linux-image-cloud-$architecture
packages=$packages,locales,mount,netbase,procps,python3,systemd,systemd-resolved,systemd-sysv,tzdata,udev,util-linux,zstd
case $suite in
  bookworm) ;;
  # From Debian 13 on cloud-init does without some of what it had drawn in.
  *) packages=$packages,python3-yaml ;;
esac

# mmdebstrap runs this when all packages are installed; $1 is the root file system. Machines enable systemd-resolved where they want it.
# No router answers on their network, and waiting for one would take 12 seconds.
customize='
set -eu
root=$1
chroot "$root" systemctl --quiet enable systemd-networkd.service systemd-networkd-wait-online.service
chroot "$root" systemctl --quiet disable apt-daily.timer apt-daily-upgrade.timer systemd-resolved.service
printf "locale: C.UTF-8\ndatasource_list: [NoCloud, OpenStack, Ec2, None]\n" >"$root/etc/cloud/cloud.cfg.d/10-image.cfg"
folder=$root/etc/systemd/network/10-cloud-init-eth0.network.d
mkdir -p "$folder"
printf "[Network]\nIPv6AcceptRA=no\n" >"$folder/image.conf"
mkdir -p "$root/var/log/journal"
rm -rf "$root/var/lib/cloud" "$root/etc/resolv.conf" "$root/etc/machine-id" "$root/etc/hostname"
: >"$root/etc/machine-id"
echo "nameserver 10.217.0.1" >"$root/etc/resolv.conf"
'

# The initramfs checks the file systems that it finds there, so the file must exist before the kernel is installed.
fstab='echo "LABEL=root / ext4 defaults 0 1" >"$1/etc/fstab"'

if [ "$(id -u)" = 0 ]; then
  mode=root as_root=
else
  mode=unshare as_root='unshare --user --map-root-user --map-auto'
fi
mmdebstrap --quiet --mode="$mode" --variant=minbase --architectures="$architecture" --include="$packages" \
  --aptopt='APT::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --essential-hook="$fstab" --customize-hook="$customize" --skip=output/dev --format=tar "$suite" - >"$target/root.tar"

# Without root, only the user namespace may own the files as the archive names their owners, and remove them.
$as_root sh -euc '
  cd "$1"
  mkdir root
  tar --extract --file=root.tar --directory=root --numeric-owner
  mkdir root/dev
  cp root/boot/vmlinuz-* vmlinuz
  cp root/boot/initrd.img-* initrd.img
  truncate --size=8G disk.raw
  mkfs.ext4 -q -F -L root -d root disk.raw
  rm -r root root.tar
' image "$target"
