#!/bin/sh
# guard.sh ROLE NAME COMMAND [ARG…]: run the command while NAME is primary of ROLE.
# Environment: UNDERSTUDY_SERVER, UNDERSTUDY_TOKEN. The command gets UNDERSTUDY_TERM.
set -u
api=${UNDERSTUDY_SERVER:-${UNDERSTUDY_API:-http://127.0.0.1:7600}} # the second is its old name
role=$1 name=$2
shift 2

every=3 timeout=15 # seconds: the session's interval and timeout
call=2             # a request may take this long
grace=2            # and the command this long to stop

# ask METHOD PATH [BODY] prints the answer, and fails unless it is a success.
ask() {
  printf 'header = "Authorization: Bearer %s"\n' "${UNDERSTUDY_TOKEN-}" |
    curl -K - -sS --fail --max-time "$call" -X "$1" "$api$2" -d "${3-}"
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
# trusted: the command is dead by the end of trust, even if one more turn of the
# loop below takes as long as it can.
trusted() { [ "$(now)" -lt $((until - grace - call - 2)) ]; }
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
quit() {
  leave
  exit 143
}
# say prints a line without waiting for whoever reads it.
say() { echo "$*" & }

child='' session=''
trap quit TERM INT HUP
trap : PIPE # its readers may go, it may not; nor is it ignored, which the command would inherit

while :; do
  until start; do sleep 1; done

  # Stand by: renew and wait in turns. Another's role is an error for curl (409).
  term=''
  while [ -z "$term" ] && [ "$(now)" -lt "$until" ]; do
    asked=$(now)
    term=$(ask PUT "/v1/leases/role/$role?wait=1s" "{\"session\":\"$session\"}" 2>/dev/null | field term)
    renew
    # Refused without the wait, by a server that is busy, say: not at once again.
    [ -n "$term" ] || [ "$(now)" -gt "$asked" ] || sleep 1
  done
  # No role, or a pause since: the role may be another's again. Start another session.
  if [ -z "$term" ] || ! trusted; then
    leave
    session=''
    continue
  fi

  say "$name is primary of $role, term $term"
  ended=''
  trap 'ended=1' TERM INT HUP # until it is known what to stop
  UNDERSTUDY_TERM=$term "$@" &
  child=$!
  trap quit TERM INT HUP
  [ -z "$ended" ] || quit
  while alive && trusted; do
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
  leave
  say "$name cannot be sure of $role any more"
  child='' session=''
done
