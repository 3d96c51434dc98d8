# Why ask failed, in words.
explain() { # EXIT-STATUS HTTP-STATUS
  why=$(head -n 1 "$work/error" | cut -c 1-300)
  # A connection that is cut is no matter of certificates.
  case $1:$why in 35:*reset* | 35:*closed*) set -- 7 "$2" ;; esac
  case $1:$2 in
    5:* | 6:*) complain dns "can't resolve a name: $why" ;;
    7:* | 28:*) complain connect "can't reach the API server $server: $why" ;;
    23:*) complain disk "can't write to $work: $why" ;;
    35:* | 5[13489]:* | 60:* | 77:* | 8[0-3]:* | 9[01]:*)
      if clock_is_set; then
        complain tls "can't verify the API server with $ca ($(date -u '+clock: %F %T')): $why"
      else
        complain clock "the clock is wrong ($(date -u '+%F %T')), older than this machine's token: $why"
      fi ;;
    0:401) complain 401 "the API server refuses this machine's token (401): expired, revoked, or of another cluster" ;;
    0:403) complain 403 "this machine's token may not read Secret $secret (403)" ;;
    0:404) complain 404 "there is no Secret $secret (404)" ;;
    0:*) complain "http $2" "the API server answers $2" ;;
    *) complain "curl $1" "can't read from the API server: $why" ;;
  esac
}

matches() {
  [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$digest" ]
}
