# Owns one PostgreSQL server on behalf of the process that holds the other end
# of standard input. That process writes the superuser's password as the only
# line and then keeps its end open; the kernel closes it when the process ends,
# however it ends, so the end of input is the one signal that can't be lost.
#
# usage: sh -c serve.sh NAME DIR BINDIR [SERVER OPTION...]
#
# This shell ends after the server has, and removes DIR last. What it writes to
# standard error is the reason for an end that nobody asked for.

umask 077
dir=$1 bin=$2
shift 2

# Background commands get /dev/null as standard input: keep the pipe elsewhere.
exec 3<&0 </dev/null

mkdir "$dir" || exit 1

if IFS= read -r password <&3; then
	printf '%s\n' "$password" >"$dir/password"
else
	rm -rf "$dir"
	exit 1
fi

if ! "$bin/initdb" --pgdata="$dir/data" --username=postgres --auth=scram-sha-256 \
	--pwfile="$dir/password" --encoding=UTF8 --locale=C --no-sync >"$dir/log" 2>&1 3<&-; then
	# tail, and not this shell, meets SIGPIPE if nobody reads any more.
	tail -n 5 "$dir/log" >&2
	rm -rf "$dir"
	exit 1
fi
rm -f "$dir/password"

"$bin/postgres" -D "$dir/data" "$@" >"$dir/log" 2>&1 3<&- &
server=$!

# At the end of input: an immediate shutdown, since nothing in DIR is worth a
# checkpoint. Repeated, because a server that has just been started may not
# listen to signals yet.
(
	while read -r _; do :; done <&3
	tries=0
	while kill -QUIT "$server" && [ "$tries" -lt 100 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
	kill -KILL "$server"
) >/dev/null 2>&1 &
reader=$!

wait "$server"
kill "$reader" 2>/dev/null
tail -n 5 "$dir/log" >&2
rm -rf "$dir"
