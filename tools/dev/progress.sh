# Long commands with little to read: sourced by main.sh and test.sh.

# quietly LOG WORDS COMMAND...: what the command prints goes to the log; a line says what is being done, for how long, and how
# far a build has come. On a terminal it is one line that changes, else one line a minute. When the command fails, the log's end
# is shown, and where the rest is.
quietly() {
  local log=$1 words=$2 began=$SECONDS shown=-60 status=0 step=''
  shift 2
  mkdir -p "$(dirname "$log")"
  ("$@") >"$log" 2>&1 &
  local command=$!
  while kill -0 "$command" 2>/dev/null; do
    step=$(tail -c 4096 "$log" 2>/dev/null | tr '\r' '\n' | grep -aoE '^\[[0-9]+/[0-9]+\]' | tail -n 1) || step=''
    if [ -t 2 ]; then
      printf '\r\033[K%s ... %s %d s' "$words" "$step" $((SECONDS - began)) >&2
    elif [ $((SECONDS - shown)) -ge 60 ]; then
      printf '%s ... %s %d s\n' "$words" "$step" $((SECONDS - began)) >&2
      shown=$SECONDS
    fi
    sleep 0.5
  done
  wait "$command" || status=$?
  [ ! -t 2 ] || printf '\r\033[K' >&2
  if [ "$status" -ne 0 ]; then
    tail -n 30 "$log" >&2
    printf '%s failed; the whole output is in %s\n' "$words" "$log" >&2
    return "$status"
  fi
  printf '%s: done in %d s\n' "$words" $((SECONDS - began)) >&2
}

# start_heartbeat FILE: a line a minute for as long as this shell lives, with what FILE says is being done: words, and on a
# second line a log whose end tells more.
start_heartbeat() {
  local file=$1 parent=$$
  (
    local beat=0 words log last
    while kill -0 "$parent" 2>/dev/null; do
      sleep 1
      beat=$((beat + 1))
      [ $((beat % 55)) -eq 0 ] || continue
      { read -r words; read -r log; } <"$file" 2>/dev/null || true
      last=''
      [ -z "${log:-}" ] || last=$(tail -c 2000 "$log" 2>/dev/null | tr '\r' '\n' | grep -av '^ *$' | tail -n 1 | cut -c 1-100) || last=''
      printf '   ... %s (%d s)%s\n' "${words:-at work}" "$SECONDS" "${last:+: $last}"
    done
  ) &
  heartbeat=$!
  trap 'kill "$heartbeat" 2>/dev/null || true' EXIT
}
