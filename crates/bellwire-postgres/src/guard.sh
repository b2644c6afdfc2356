# Holds a program (Postgres, or the demo's server) for as long as its starter lives. Standard input is a pipe whose
# other end only the starter has: it reads as ended when the starter closes it or dies, however it dies, and then the
# program is asked to stop.
#
# $1: directories to erase afterwards, one a line; the rest: the program and its arguments.
# Prints the program's process id; exits with its status.
trap '' HUP INT TERM # a signal to the whole group is for the starter, which decides when the program stops
erase=$1
shift
exec 3<&0 </dev/null
"$@" 3<&- >&2 &
program=$!
echo "$program"
exec >&2
(
    read -r _ <&3
    kill -INT "$program" # Postgres: fast shutdown, ends sessions and writes a checkpoint
    sleep 60
    kill -QUIT "$program" # Postgres: immediate, the next start recovers from the log
) &
watch=$!
wait "$program"
status=$?
kill -KILL "$watch"
[ -z "$erase" ] || printf '%s\n' "$erase" | while IFS= read -r dir; do rm -rf -- "$dir"; done
exit "$status"
