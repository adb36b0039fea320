# Owns one PostgreSQL server on behalf of the process that holds the other end
# of standard input. That process writes the superuser's password as the first
# line and then keeps its end open; the kernel closes it when the process ends,
# however it ends, so the end of input is the one signal that can't be lost. Later
# lines are orders: "stop SIGNAL" ends the server, and "restart SIGNAL" ends it
# and starts it again, in the same DIR and with the same options.
#
# usage: sh -c serve.sh NAME DIR BINDIR SOURCE LEAVE FIND [SERVER OPTION...]
#
# With a SOURCE, the connection string of another server, this one becomes a
# standby of that, and the password is the one to get in there with. Without it,
# which is the empty string, the server is a new one: of the fresh data directory
# FIND if there is one, else of its own, a copy of which it leaves at LEAVE.
#
# This shell ends after the server has, and removes DIR last. It fails if the
# server ended before it was asked to, with the reason on standard error.

umask 077
dir=$1 bin=$2 source=$3 leave=$4 find=$5
shift 5

# Standard input moves to 3, since background commands get /dev/null for it.
# Standard error moves to 4, for commands that may meet SIGPIPE when nobody reads
# any more. The shell itself must not: wait, for one, reports a killed server.
exec 3<&0 4>&2 </dev/null 2>/dev/null

mkdir "$dir" 2>&4 || exit 1

if IFS= read -r password <&3; then
	printf '%s\n' "$password" >"$dir/password"
else
	rm -rf "$dir"
	exit 1
fi

create() {
	if [ -n "$source" ]; then
		PGPASSWORD=$password "$bin/pg_basebackup" --dbname="$source" --pgdata="$dir/data" \
			--write-recovery-conf --checkpoint=fast --no-sync
	elif [ -n "$find" ] && [ -d "$find" ] && cp -R "$find" "$dir/data"; then
		chmod 700 "$dir/data"
	else
		rm -rf "$dir/data"
		"$bin/initdb" --pgdata="$dir/data" --username=postgres --auth=md5 \
			--pwfile="$dir/password" --encoding=UTF8 --locale=C --no-sync || return
		if [ -n "$leave" ]; then
			cp -R "$dir/data" "$leave.new" && mv "$leave.new" "$leave"
		fi
	fi
}

if ! create >"$dir/log" 2>&1 3<&- 4>&-; then
	tail -n 5 "$dir/log" >&4
	rm -rf "$dir"
	exit 1
fi
rm -f "$dir/password"

serve() {
	"$bin/postgres" -D "$dir/data" "$@" >>"$dir/log" 2>&1 3<&- 4>&- &
	server=$!
	printf '%s\n' "$server" >"$dir/pid"
}
: >"$dir/log"
serve "$@"

# At the end of input: an immediate shutdown, since nothing in DIR is worth a
# checkpoint. Repeated, because a server that has just been started may not
# listen to signals yet, or is only about to be started again.
(
	while read -r order signal <&3; do
		case $order in
		stop) : >"$dir/asked" ;;
		restart) : >"$dir/again" ;;
		*) continue ;;
		esac
		kill -"$signal" "$(cat "$dir/pid")"
	done
	: >"$dir/asked"
	tries=0
	while [ "$tries" -lt 100 ]; do
		kill -QUIT "$(cat "$dir/pid")"
		sleep 0.1
		tries=$((tries + 1))
	done
	kill -KILL "$(cat "$dir/pid")"
) 4>&- &
reader=$!

while wait "$server"; [ -e "$dir/again" ] && ! [ -e "$dir/asked" ]; do
	rm -f "$dir/again"
	serve "$@"
done
kill "$reader"
status=0
if ! [ -e "$dir/asked" ]; then
	status=1
	tail -n 5 "$dir/log" >&4
fi
# Processes that a killed server left behind may write until they notice.
rm -rf "$dir" || { sleep 1; rm -rf "$dir"; }
exit "$status"
