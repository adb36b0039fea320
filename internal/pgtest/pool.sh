# Owns one pooler or proxy on behalf of the process that holds the other end of
# standard input. That process writes each of the FILES, which is one word, with a
# line after it that has nothing but a dot, and then keeps its end open, as for
# serve.sh.
#
# usage: sh -c pool.sh NAME DIR SIGNAL FILES PROGRAM [ARGUMENT...]
#
# The program runs in DIR, where the files are, and is ended by SIGNAL. This shell
# ends after it has, and removes DIR last. It fails if the program ended before it
# was asked to, with the reason on standard error.

umask 077
dir=$1 signal=$2 files=$3
shift 3

exec 3<&0 4>&2 </dev/null 2>/dev/null

mkdir "$dir" 2>&4 || exit 1

for file in $files; do
	complete=
	while [ -z "$complete" ] && IFS= read -r line <&3; do
		if [ "$line" = . ]; then complete=1; else printf '%s\n' "$line"; fi
	done >"$dir/$file"
done
if [ -z "$complete" ]; then
	rm -rf "$dir"
	exit 1
fi

(cd "$dir" && exec "$@") >"$dir/log" 2>&1 3<&- 4>&- &
pooler=$!

# Repeated, because a program that was just started may not listen to signals yet.
(
	while read -r _; do :; done <&3
	: >"$dir/asked"
	tries=0
	while [ "$tries" -lt 100 ]; do
		kill -"$signal" "$pooler"
		sleep 0.1
		tries=$((tries + 1))
	done
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
