# Runs one server on behalf of the process that holds the other end of standard
# input, prints its PID, and kills it when that end is closed. The kernel closes it
# when the process ends, however it ends.
#
# usage: sh -c serve.sh NAME COMMAND [ARGUMENT...]

trap '' INT TERM HUP
exec 3<&0 </dev/null

"$@" >/dev/null 2>&1 3<&- &
server=$!
echo "$server"
exec >/dev/null 2>&1

while read -r _ <&3; do :; done

kill -KILL "$server"
wait "$server"
exit 0
