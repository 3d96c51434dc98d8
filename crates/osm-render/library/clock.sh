clock_is_set() {
  [ "$(date +%s)" -ge "$(($(issued) - 60))" ]
}

wait_for_clock() {
  left=60
  until clock_is_set || [ "$left" -eq 0 ]; do
    left=$((left - 1))
    sleep 1
  done
}
