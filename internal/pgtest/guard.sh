# Ends a PostgreSQL server that was started by somebody else, and removes its
# folder, when the process that holds the other end of standard input has ended.
#
# usage: sh -c guard.sh NAME DIR
#
# The server's data directory is DIR/data.

umask 077
dir=$1

mkdir -p "$dir" || exit 1

while read -r _; do :; done

if pid=$(head -n 1 "$dir/data/postmaster.pid" 2>/dev/null); then
	tries=0
	while kill -QUIT "$pid" 2>/dev/null && [ "$tries" -lt 100 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
	kill -KILL "$pid" 2>/dev/null
fi

rm -rf "$dir"
exit 0
