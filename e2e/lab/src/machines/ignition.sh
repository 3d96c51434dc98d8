#!/bin/sh
# Builds the disk of a virtual machine whose user data Ignition reads: in the initramfs, as on Flatcar. It is Debian with its packages of
# Ignition and dracut, and stands in for Flatcar:
# - The boot loader has Ignition run if there is a file /boot/flatcar/first_boot. The initramfs removes that file after Ignition has run.
# - A config.ign on the file system OEM takes precedence over what the cloud hands out. The machine has that file system on /oem.
# - Without a machine-id, systemd applies presets. What no preset enables is disabled.
# - There are curl and jq. Python is out of the path: only the watcher of processes uses it.
# On the second disk, whose label is LAB, the host passes arguments of the kernel (boot.cfg), files for /run, and a layer for the root file system.
# It needs no root. Without root it works in user namespaces, which need newuidmap and entries in /etc/subuid and /etc/subgid.
# usage: ignition.sh SUITE ARCHITECTURE DIRECTORY
# The empty directory then contains disk.raw and grub, a boot loader that QEMU starts as it starts a kernel.
set -eu
suite=$1 architecture=$2 target=$3
packages=ca-certificates,curl,dbus,dracut,dracut-network,e2fsprogs,grub-common,grub-pc-bin,ignition,iproute2,iptables,jq,kmod,less
packages=$packages,libpam-systemd,linux-image-cloud-$architecture,mount,netbase,passwd,polkitd,procps,python3-minimal,systemd,systemd-sysv
packages=$packages,tzdata,udev,util-linux,zstd

# The kernel's package makes an initramfs as it is installed. These files must be there before.
essential='
set -eu
root=$1
printf "LABEL=root / ext4 defaults 0 1\nLABEL=OEM /oem ext4 x-systemd.device-timeout=600 0 2\n" >"$root/etc/fstab"
mkdir -p "$root/etc/dracut.conf.d" "$root/usr/lib/dracut/modules.d/31lab"
cat >"$root/etc/dracut.conf.d/lab.conf" <<END
hostonly=no
compress="zstd -3 -q -T0"
add_dracutmodules+=" ignition lab systemd-networkd "
omit_dracutmodules+=" bluetooth busybox connman crypt dm dmraid i18n iscsi lvm mdraid multipath network-legacy network-manager nfs plymouth rescue "
add_drivers+=" ext4 isofs qemu_fw_cfg virtio_blk virtio_console virtio_net virtio_pci "
END
cd "$root/usr/lib/dracut/modules.d/31lab"
cat >module-setup.sh <<"END"
#!/bin/bash
depends() { echo ignition; }
install() {
  inst_multiple cp mkdir mount rm sleep sync tar touch umount
  inst_simple "$moddir/lab-disk" /usr/bin/lab-disk
  inst_simple "$moddir/lab-oem" /usr/bin/lab-oem
  inst_simple "$moddir/lab-wait" /usr/bin/lab-wait
  inst_simple "$moddir/setfiles" /usr/sbin/setfiles
  for unit in lab-disk lab-oem lab-first-boot; do
    inst_simple "$moddir/$unit.service" "$systemdsystemunitdir/$unit.service"
  done
  $SYSTEMCTL -q --root "$initdir" add-wants initrd.target lab-disk.service
  $SYSTEMCTL -q --root "$initdir" add-requires ignition-complete.target lab-oem.service
  $SYSTEMCTL -q --root "$initdir" add-requires ignition-complete.target lab-first-boot.service
}
END
# Ignition labels the files that it writes, with the policy that the root file system names. Here this changes nothing.
printf "#!/bin/sh\nexit 0\n" >setfiles
chmod 755 setfiles
cat >lab-wait <<"END"
# By emulation on a busy host, a disk may come later than systemd waits for it.
left=600
until [ -e "/dev/disk/by-label/$1" ]; do
  if [ "$left" -eq 0 ]; then
    echo "there is no disk with the label $1" >/dev/console
    exit 1
  fi
  left=$((left - 1))
  sleep 1
done
END
cat >lab-disk <<"END"
#!/bin/sh
# At every boot: files for /run, which the real root keeps. At the first boot: the layer.
set -eu
sh /usr/bin/lab-wait LAB
mkdir -p /run/lab/disk
mount -o ro /dev/disk/by-label/LAB /run/lab/disk
cp -r /run/lab/disk/run/. /run/
if ! [ -e /sysroot/var/lib/lab-layer ]; then
  tar --extract --file=/run/lab/disk/layer.tar --directory=/sysroot --no-overwrite-dir --no-same-owner
  touch /sysroot/var/lib/lab-layer
fi
umount /run/lab/disk
END
cat >lab-disk.service <<"END"
[Unit]
Description=Lay the layer of the machine over its root file system
DefaultDependencies=no
Requires=initrd-root-fs.target
After=initrd-root-fs.target ignition-remount-sysroot.service
Before=ignition-mount.service ignition-files.service initrd-parse-etc.service initrd.target
OnFailure=emergency.target
OnFailureJobMode=isolate

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /usr/bin/lab-disk
END
cat >lab-oem <<"END"
#!/bin/sh
# Ignition takes the config in this place instead of that of the platform.
set -eu
sh /usr/bin/lab-wait OEM
mkdir -p /run/lab/oem /usr/lib/ignition
mount -o ro /dev/disk/by-label/OEM /run/lab/oem
if [ -e /run/lab/oem/config.ign ]; then
  cp /run/lab/oem/config.ign /usr/lib/ignition/user.ign
  echo "Ignition gets the config of the file system OEM"
fi
umount /run/lab/oem
END
cat >lab-oem.service <<"END"
[Unit]
Description=Look for a config of Ignition on the file system OEM
DefaultDependencies=no
After=systemd-udev-trigger.service
Before=ignition-fetch-offline.service ignition-complete.target
OnFailure=emergency.target
OnFailureJobMode=isolate

[Service]
Type=oneshot
RemainAfterExit=yes
StandardOutput=journal+console
ExecStart=/bin/sh /usr/bin/lab-oem
END
cat >lab-first-boot.service <<"END"
[Unit]
Description=Note that Ignition has run
DefaultDependencies=no
Requires=ignition-files.service
After=ignition-files.service
Before=ignition-complete.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/rm -f /sysroot/boot/flatcar/first_boot
ExecStart=/bin/sync
END
'

# mmdebstrap runs this when all packages are installed; $1 is the root file system.
customize='
set -eu
root=$1
mkdir -p "$root/boot/flatcar" "$root/boot/grub" "$root/oem" "$root/opt/bin" "$root/usr/lib/lab" "$root/var/log/journal"
: >"$root/boot/flatcar/first_boot"
mv "$root"/usr/bin/python3* "$root/usr/lib/lab/"
chroot "$root" useradd --create-home --shell /bin/bash --groups sudo core
cd "$root/usr/lib/systemd/system-preset"
# The initramfs has made a network of the arguments of the kernel, and systemd 252 fails to make it again.
ln -s /dev/null "$root/etc/systemd/system/systemd-network-generator.service"
printf "enable systemd-networkd.service\nenable systemd-networkd-wait-online.service\n" >10-lab.preset
printf "disable *\n" >99-default.preset
cd /
# No router answers on the network of machines, and waiting for one would take 12 seconds.
mkdir -p "$root/etc/systemd/network/90-eth0.network.d"
printf "[Network]\nIPv6AcceptRA=no\n" >"$root/etc/systemd/network/90-eth0.network.d/image.conf"
# Without the name of a policy of SELinux, Ignition fails.
mkdir -p "$root/etc/selinux"
printf "SELINUX=disabled\nSELINUXTYPE=none\n" >"$root/etc/selinux/config"
rm -f "$root/etc/resolv.conf" "$root/etc/machine-id" "$root/etc/hostname"
echo "nameserver 10.217.0.1" >"$root/etc/resolv.conf"
version=$(ls "$root/lib/modules")
chroot "$root" dracut --quiet --force /boot/initrd.img "$version"
rm -f "$root/boot/initrd.img-$version"
mv "$root/boot/vmlinuz-$version" "$root/boot/vmlinuz"
cat >"$root/boot/grub/grub.cfg" <<"END"
serial --unit=0
terminal_input serial
terminal_output serial
source (hd1)/boot.cfg
set ignition=
if [ -e /boot/flatcar/first_boot ]; then set ignition="ignition.firstboot ignition.platform.id=qemu"; fi
linux /boot/vmlinuz root=LABEL=root rw console=ttyS0 net.ifnames=0 $arguments $ignition
initrd /boot/initrd.img
boot
END
cat >"$root/tmp/grub.cfg" <<"END"
set root=hd0
configfile /boot/grub/grub.cfg
END
chroot "$root" grub-mkimage --format=i386-pc --output=/tmp/core.img --prefix="(hd0)/boot/grub" --config=/tmp/grub.cfg \
  biosdisk boot configfile ext2 iso9660 linux normal serial terminal test
cat "$root/usr/lib/grub/i386-pc/lnxboot.img" "$root/tmp/core.img" >"$root/boot/grub/grub"
rm "$root/tmp/core.img" "$root/tmp/grub.cfg"
'

if [ "$(id -u)" = 0 ]; then
  mode=root as_root=
else
  mode=unshare as_root='unshare --user --map-root-user --map-auto'
fi
mmdebstrap --quiet --mode="$mode" --variant=minbase --architectures="$architecture" --include="$packages" \
  --aptopt='APT::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --essential-hook="$essential" --customize-hook="$customize" --skip=output/dev --format=tar "$suite" - >"$target/root.tar"

# Without root, only the user namespace may own the files as the archive names their owners, and remove them.
$as_root sh -euc '
  cd "$1"
  mkdir root
  tar --extract --file=root.tar --directory=root --numeric-owner
  mkdir root/dev
  mv root/boot/grub/grub grub
  truncate --size=8G disk.raw
  mkfs.ext4 -q -F -L root -d root disk.raw
  rm -r root root.tar
' image "$target"
