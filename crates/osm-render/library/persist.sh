work=/run/osm/${0##*/}
mkdir -p "$work"
complaint='' again=0 delay=1

# One line for people, in the journal and on the console. The console must not hold us up.
say() {
  echo "$1"
  echo "${0##*/}: $1" | timeout 5 tee /dev/console >/dev/null 2>&1 || :
}

# The end of a log, as one line.
last() { # FILE [LINES]
  tail -n "${2:-1}" "$1" | tr '\n' ' ' | cut -c 1-300
}

# Says why it can't go on: at once, then every tenth time as long as the reason is the same.
complain() { # REASON MESSAGE
  if [ "$1" = "$complaint" ]; then
    again=$(((again + 1) % 10))
  else
    complaint=$1 again=0
  fi
  [ "$again" -ne 0 ] || say "$2"
}

# Waits 2, 4, 8 ... 64 seconds, less up to a half: a fleet must not come back in step.
pause() {
  delay=$((delay < 64 ? delay * 2 : 64))
  random=$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')
  sleep $((delay - ${random:-0} % (delay / 2 + 1)))
}
