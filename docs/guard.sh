#!/bin/sh
# guard.sh ROLE NAME COMMAND [ARG…]: run the command while NAME is primary of ROLE.
# Environment: UNDERSTUDY_API, UNDERSTUDY_TOKEN. The command gets UNDERSTUDY_TERM.
set -u
api=${UNDERSTUDY_API:-http://127.0.0.1:7600}
role=$1 name=$2
shift 2

every=3 timeout=15 # seconds: the session's interval and timeout
call=2             # a request may take this long
grace=2            # and the command this long to stop

# ask METHOD PATH [BODY] prints the answer, and fails unless it is a success.
ask() {
  printf 'header = "Authorization: Bearer %s"\n' "${UNDERSTUDY_TOKEN-}" |
    curl -K - -sS --fail --max-time "$call" -X "$1" "$api$2" -d "${3-}" 2>/dev/null
}
field() { sed -n 's/.*"'"$1"'":"\{0,1\}\([^",}]*\).*/\1/p'; }
now() { cut -d. -f1 /proc/uptime; } # whole seconds since boot; never set, counts sleep

start() {
  sent=$(now)
  session=$(ask POST /v1/sessions \
    "{\"name\":\"$name\",\"interval_ms\":${every}000,\"timeout_ms\":${timeout}000}" | field session)
  until=$((sent + timeout - every)) # trust is counted from before the request
  [ -n "$session" ]
}
renew() {
  sent=$(now)
  ask POST "/v1/sessions/$session/renew" >/dev/null && until=$((sent + timeout - every))
}
alive() { [ -n "$child" ] && kill -0 "$child" 2>/dev/null; }

# stop ends the command: politely, and after the grace for sure.
stop() {
  alive && kill -TERM "$child"
  limit=$(($(now) + grace))
  while alive && [ "$(now)" -lt "$limit" ]; do sleep 0.2; done
  alive && kill -KILL "$child"
  [ -z "$child" ] || wait "$child" 2>/dev/null
}
leave() { # the command first, then the role
  stop
  [ -z "$session" ] || ask DELETE "/v1/sessions/$session"
}

child='' session=''
trap 'leave; exit 143' TERM INT

while :; do
  until start; do sleep 1; done

  # Stand by: renew and wait in turns.
  term=''
  while [ -z "$term" ] && [ "$(now)" -lt "$until" ]; do
    term=$(ask PUT "/v1/leases/role/$role?wait=1s" "{\"session\":\"$session\"}" | field term)
    renew || sleep 1
  done
  [ -n "$term" ] || continue # the session is over: start another

  echo "$name is primary of $role, term $term"
  UNDERSTUDY_TERM=$term "$@" &
  child=$!
  # The command is stopped so early that it is dead by the end of trust, even if
  # one more turn of this loop takes as long as it can.
  while alive && [ "$(now)" -lt $((until - grace - call - 2)) ]; do
    renew
    sleep 1
  done
  if ! alive; then
    wait "$child"
    code=$?
    child=''
    leave
    exit "$code"
  fi
  echo "$name cannot be sure of $role any more"
  leave
  child='' session=''
done
