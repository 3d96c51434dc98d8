#!/bin/sh
# Runs scripts of the host, one after the other. A line "NUMBER SECONDS SCRIPT INPUT" asks for one. The last two are numbers of bytes. The
# script and its standard input follow. "NUMBER STATUS OUTPUT ERRORS" answers, with output and errors in base64.
# A line "ready" announces the agent after each boot.
cd /run/lab || exit
exec 3<>/dev/virtio-ports/lab || exit
echo ready >&3
while :; do
  if ! read -r number seconds script input <&3; then
    # Nobody is connected.
    sleep 1
    continue
  fi
  head -c "$script" <&3 >script
  head -c "$input" <&3 >input
  status=0
  timeout --kill-after=5 "$seconds" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    sh script <input >output 2>errors || status=$?
  : >input
  { printf '%s %s ' "$number" "$status"; base64 -w 0 output; printf ' '; base64 -w 0 errors; echo; } >&3
done
