# Holds Postgres for as long as its starter lives. Standard input is a pipe whose other end only the starter has: it
# reads as ended when the starter closes it or dies, however it dies, and then Postgres is asked to stop.
#
# $1: directories to erase afterwards, one a line; the rest: Postgres and its arguments.
# Prints the process id of Postgres; exits with its status.
trap '' HUP INT TERM # a signal to the whole group is for the starter, which decides when Postgres stops
erase=$1
shift
exec 3<&0 </dev/null
"$@" 3<&- >&2 &
postgres=$!
echo "$postgres"
exec >&2
(
    read -r _ <&3
    kill -INT "$postgres" # fast shutdown: ends sessions, writes a checkpoint
    sleep 60
    kill -QUIT "$postgres" # immediate: the next start recovers from the log
) &
watch=$!
wait "$postgres"
status=$?
kill -KILL "$watch"
[ -z "$erase" ] || printf '%s\n' "$erase" | while IFS= read -r dir; do rm -rf -- "$dir"; done
exit "$status"
