#cloud-boothook
#!/bin/sh
# cloud-init runs this at every boot, before it looks at the user data. Nothing of the agent and the watcher stays on the disk.
mkdir -p /run/lab /run/systemd/system
cat >/run/lab/agent <<'END'
AGENT
END
cat >/run/lab/watcher.py <<'END'
WATCHER
END
cat >/run/systemd/system/lab-watcher.service <<'END'
WATCHER_UNIT
END
cat >/run/systemd/system/lab-agent.service <<'END'
AGENT_UNIT
END
lay() {
  mkdir -p /run/lab/seed &&
  mount -r -t iso9660 LABEL=DISK /run/lab/seed &&
  tar --extract --file=/run/lab/seed/layer.tar --directory=/ --no-overwrite-dir --no-same-owner &&
  umount /run/lab/seed &&
  # What the image loads by itself.
  cp /proc/modules /var/lib/cloud/lab-modules &&
  touch /var/lib/cloud/lab-layer /run/lab/layer-is-new
}
if [ ! -e /var/lib/cloud/lab-layer ] && ! lay; then
  echo 'lab: the layer of this machine cannot be unpacked, so the agent does not start' >/dev/console
  exit 1
fi
systemctl daemon-reload
# Units that the layer enables start as if the image had them.
[ ! -e /run/lab/layer-is-new ] || systemctl start --no-block default.target
systemctl start --no-block lab-agent.service lab-watcher.service
