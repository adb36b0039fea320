# Owns one PgBouncer on behalf of the process that holds the other end of
# standard input. That process writes the configuration, a line with nothing but
# a dot, the file of users in the same way, and then keeps its end open, as for
# serve.sh.
#
# usage: sh -c pool.sh NAME DIR PGBOUNCER
#
# This shell ends after PgBouncer has, and removes DIR last. It fails if
# PgBouncer ended before it was asked to, with the reason on standard error.

umask 077
dir=$1 pgbouncer=$2

exec 3<&0 4>&2 </dev/null 2>/dev/null

mkdir "$dir" 2>&4 || exit 1

# PgBouncer runs in DIR, which is where the configuration finds its users.
for file in pgbouncer.ini users; do
	complete=
	while [ -z "$complete" ] && IFS= read -r line <&3; do
		if [ "$line" = . ]; then complete=1; else printf '%s\n' "$line"; fi
	done >"$dir/$file"
done
if [ -z "$complete" ]; then
	rm -rf "$dir"
	exit 1
fi

(cd "$dir" && exec "$pgbouncer" "$dir/pgbouncer.ini") >"$dir/log" 2>&1 3<&- 4>&- &
pooler=$!

# It keeps nothing that a kill could spoil, and which signal means what differs
# between its versions.
(
	while read -r _; do :; done <&3
	: >"$dir/asked"
	kill -KILL "$pooler"
) 4>&- &
reader=$!

wait "$pooler"
kill "$reader"
status=0
if ! [ -e "$dir/asked" ]; then
	status=1
	tail -n 5 "$dir/log" >&4
fi
rm -rf "$dir"
exit "$status"
