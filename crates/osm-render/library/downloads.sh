state=/var/lib/osm
downloads=$state/downloads
{{> lib/python.sh}}
case $(uname -m) in
  x86_64) arch=amd64 ;;
  aarch64) arch=arm64 ;;
  *) arch=$(uname -m) ;;
esac

# HTTP errors are errors; a transfer that stands still for a minute is given up. No redirect leads away from https, neither for a program nor for the
# checksum beside it: whoever is between the machine and the server would give the machine both.
fetch() { # URL FILE
  if command -v curl >/dev/null; then
    redirects='=http,https'
    case $1 in [Hh][Tt][Tt][Pp][Ss]:*) redirects='=https' ;; esac
    curl -q -fsSL --proto '=http,https' --proto-redir "$redirects" --connect-timeout 20 --speed-limit 1024 --speed-time 60 -o "$2" "$1"
  else
    "$python" -c 'import shutil, sys, urllib.error, urllib.request
class Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request, answer, code, reason, headers, url):
        if request.type == "https" and not url.startswith("https:"):
            raise urllib.error.HTTPError(url, code, "a redirect leads away from https", headers, answer)
        return super().redirect_request(request, answer, code, reason, headers, url)
opener = urllib.request.build_opener(Redirects)
with opener.open(sys.argv[1], timeout=60) as source, open(sys.argv[2], "wb") as target:
    shutil.copyfileobj(source, target)' "$1" "$2"
  fi || {
    echo "can't download $1"
    return 1
  } >&2
}

# The checksum that the settings pin, if they do.
pinned() { # NAME
  case $1-$arch in
    {{#each downloads}}
    {{#each sha256}}
    {{#if this}}
    {{@../key}}-{{@key}}) echo {{shell this}} ;;
    {{/if}}
    {{/each}}
    {{/each}}
    *) echo '' ;;
  esac
}

# The checksum of file NAME in a checksum file: bare, or one of many lines `checksum name`.
checksum_of() { # NAME CHECKSUM-FILE
  awk -v name="$1" 'NF == 1 { print $1; exit }
    { sub(/^\*/, "", $2); sub(/.*\//, "", $2) }
    $2 == name { print $1; exit }' "$2"
}

verified() { # FILE CHECKSUM
  [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$2" ]
}

# Leaves $downloads/NAME, whole and checked; what is there already is not fetched again.
artefact() { # NAME URL CHECKSUM-URL
  file=$downloads/$1
  sum=$(pinned "$1")
  if [ -z "$sum" ]; then
    [ -s "$file.sum" ] || { fetch "$3" "$file.sum.part" && mv -f "$file.sum.part" "$file.sum"; } || return 1
    sum=$(checksum_of "${2##*/}" "$file.sum")
  fi
  ! verified "$file" "$sum" || return 0
  fetch "$2" "$file.part" || return 1
  if verified "$file.part" "$sum"; then
    mv -f "$file.part" "$file"
  else
    rm -f "$file.part" "$file.sum"
    echo "checksum of $2 is not ${sum:-known}" >&2
    return 1
  fi
}

# Puts an executable beside its target, then renames it: a running program is replaced whole.
place() { # FILE TARGET
  cp "$1" "$2.new" && chmod 755 "$2.new" && mv -f "$2.new" "$2"
}

# Unpacks an archive and places those of its programs that are named; all executables if none is.
unpack() { # ARCHIVE FOLDER [PATH-IN-ARCHIVE ...]
  archive=$downloads/$1 folder=$2
  shift 2
  rm -rf "$archive.d"
  mkdir -p "$archive.d" "$folder" && tar -xzof "$archive" -C "$archive.d" || return 1
  if [ $# -eq 0 ]; then
    for program in "$archive.d"/*; do
      if [ -f "$program" ] && [ -x "$program" ]; then place "$program" "$folder/${program##*/}" || return 1; fi
    done
  fi
  for program; do
    place "$archive.d/$program" "$folder/${program##*/}" || return 1
  done
  rm -rf "$archive.d"
}
