#!/bin/sh
# Runs scripts of the host, one after the other. A line "NUMBER SECONDS SCRIPT" asks for one, and "NUMBER STATUS OUTPUT ERRORS" answers.
# Script, output and errors are in base64. A line "ready" announces the agent after each boot.
cd /run/lab || exit
exec 3<>/dev/virtio-ports/lab || exit
echo ready >&3
while :; do
  if ! read -r number seconds script <&3; then
    # Nobody is connected.
    sleep 1
    continue
  fi
  printf %s "$script" | base64 -d >script
  status=0
  timeout --kill-after=5 "$seconds" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    sh script >output 2>errors </dev/null || status=$?
  { printf '%s %s ' "$number" "$status"; base64 -w 0 output; printf ' '; base64 -w 0 errors; echo; } >&3
done
