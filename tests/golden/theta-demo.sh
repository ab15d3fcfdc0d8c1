#!/bin/bash
#COBALT --jobname demo-20260101-120000-abcdef
#COBALT -n 128
#COBALT -t 60
#COBALT -o job.out
#COBALT -e job.err
#COBALT --debuglog job.cobaltlog
#COBALT -q default
#COBALT -A proj
#COBALT --attrs mcdram=cache:numa=quad
# dlio-hpc 0: job demo-20260101-120000-abcdef on site theta
# 128 node(s) x 4 ranks. Each run is one launcher line below; plan.json holds every setting.
# To run the job again by hand: bash job.sh (it first copies existing results to attempts/).

cd /runs/demo-20260101-120000-abcdef || exit 6
job=$PWD
# Two copies of the job at the same time would mix their results. Wait for the other copy, which holds a lock of job.sh. If it
# still runs after a minute, end before any file is changed. Where there are no locks, flock fails with another code.
# Ranks inherit the lock: they may outlive a script that was killed.
if [ -w job.sh ] && { exec 9<> job.sh; } 2> /dev/null; then
  flock -w 60 9 2> /dev/null
  [ $? != 1 ] || { echo "dlio-hpc: another copy of this job runs in $job; wait for its end" >&2; exit 6; }
fi
# Write the exit code of the job to the file exit_status, which remains after the batch system has purged the job. Try up
# to three times; if the file system is full, write it to the spare folder of this node. Ignore further signals, so that
# they cannot end the script before the file is written.
spare=${TMPDIR:-/tmp}/dlio-hpc-$UID/${job##*/}
is_spare() { [ -O "${spare%/*}" ] && [ ! -L "${spare%/*}" ]; }   # another user may have made a link there
keep_status() {
  local code=$? pause
  trap '' TERM INT HUP ALRM USR1
  for pause in 0 1 2; do
    [ "$pause" = 0 ] || sleep "$pause"
    echo "$code" > "$job/.exit_status.tmp" && mv "$job/.exit_status.tmp" "$job/exit_status" && return
  done
  (umask 077; mkdir "${spare%/*}" 2> /dev/null; is_spare && mkdir -p "$spare" && echo "$code" > "$spare/exit_status")
}
# Note that a signal ended the script. Ranks that are killed end with the same code, 143.
note_signal() { echo "143" 2> /dev/null > "$job/terminated"; }
trap 'note_signal; exit 143' TERM INT HUP   # until ranks are started; without this trap exit_status would be 0
unswept=   # set if ranks may have left processes, shared memory or temporary files
trap 'keep_status; [ ! "$unswept" ] || sweep_nodes; [ -z "$timer" ] || kill "$timer" 2> /dev/null; rm -f "$job/.limit"' EXIT
for linked in runs runs/*; do   # a link would lead the copy of earlier results, and their removal, elsewhere
  [ ! -L "$linked" ] || { echo "dlio-hpc: $job/$linked is a link; put the folder in its place" >&2; exit 6; }
done
# If the job has run before, copy its earlier results to attempts/. The batch system may requeue a job.
if [ -e exit_status ] || compgen -G 'runs/*/*.*' > /dev/null; then
  attempt=1; while [ -e "attempts/$attempt" ]; do attempt=$(( attempt + 1 )); done
  rm -rf attempts/.copy; mkdir -p attempts/.copy || exit 6
  for kept in exit_status setup_failures stop terminated environment.json runs layout darshan; do
    [ ! -e "$kept" ] || cp -a "$kept" attempts/.copy/ || exit 6
  done
  mv attempts/.copy "attempts/$attempt" || exit 6
  echo "== attempt $(( attempt + 1 ))" >&2
fi
! is_spare || rm -rf "$spare"
rm -f exit_status setup_failures stop terminated environment.json runs/*/{result.json,error.json,timeline.h5,probe.json} layout/*.yaml
rm -rf darshan/*.darshan darshan/*.json runs/*/darshan/*.darshan runs/*/darshan/*.json {darshan,runs/*/darshan}/{live,workers}
# USR1 arrives 60 s before the time limit. The trap creates the file stop, and all ranks end after the current step.
trap 'signalled=1; echo "time limit near, 60 s left: stopping"; echo "time limit" > "$job/stop"' USR1
SECONDS=0
launched=
# Return 0 if the job ends because of its time limit. The batch system is asked first, because the limit may have been
# changed.
is_over() {
  local rest
  rest=$(left 2 || left 1)
  if [ "$rest" ]; then [ "$rest" -le 1 ]; else is_over_by_clock; fi
}
# The same without the batch system: return 0 if the file stop exists or the walltime is over.
is_over_by_clock() { [ -e "$job/stop" ] || (( SECONDS >= $(cat "$job/.limit" 2> /dev/null || echo 3600) - 1 )); }
# Remove what killed ranks leave on a node: shared memory and temporary files.
sweep='"$2" -IS "$3" "$1" || :'
# Do so on all nodes, in at most 3 s.
sweep_nodes() {
  local launch=(aprun -n 128 -N 1 -d 32 -j 2 -cc depth -e OMP_NUM_THREADS=32)
  [ "$unswept" != here ] || launch=()
  timeout -k 1 3 "${launch[@]}" sh -c "$sweep" sh "$job" /opt/python/bin/python3 /opt/dlio_hpc/core/node_leftovers.py < /dev/null > /dev/null 2>&1
  unswept=
}
# Wait up to 2 s for the launcher to end the ranks.
stop_ranks() {
  for _ in {1..20}; do kill -0 "$launched" 2> /dev/null || break; sleep 0.1; done
  kill -KILL "$launched" 2> /dev/null
  unswept=here   # the batch system starts nothing more on the other nodes of a job that it is ending
}
# TERM arrives at the time limit (exit code 124, as with timeout(1)) or when the job is cancelled (exit code 143).
end() {
  set +eu   # the site's setup lines may have set -e or -u
  trap '' TERM INT HUP ALRM USR1
  [ -z "$launched" ] || kill "$launched" 2> /dev/null
  local code=143
  if is_over; then code=124; else note_signal; fi
  [ -z "$launched" ] || stop_ranks
  exit "$code"
}
trap end TERM INT HUP
# Print the seconds left until the time limit, from the batch system. Return 1 if it does not answer within $1 s. The
# query has a session of its own, because a job that is cancelled sends TERM to all processes of its session.
left() {
  return 1
}
timer=
if [ "$COBALT_JOBID" ]; then
  {
    trap 'kill $! 2> /dev/null; exit' TERM
    slept=0   # the limit may change, so it is queried every five minutes, and the last answer is kept
    while rest=$(left 10); [ ! "$rest" ] || echo $(( SECONDS + rest )) > "$job/.limit"; pause=$(( ${rest:-3600 - slept} - 60 )); [ "$pause" -gt 0 ]; do
      nap=$(( pause < 300 ? pause : 300 ))
      sleep "$nap" & wait $!
      slept=$(( slept + nap ))
    done
    ! kill -0 $$ 2> /dev/null || kill -USR1 $$
  } 9>&- &
  timer=$!
fi

# Start a run in the background, so that bash handles signals while the run is active.
run() {
  [ ! -e "$job/stop" ] || [[ $1 == darshan\ * ]] || exit 124   # the log of a finished run is still checked
  echo "== $1"
  "${@:2}" < /dev/null &
  launched=$!
  while signalled=; wait "$launched"; code=$?; [ "$signalled" ]; do :; done
  launched=
  [ "$code" = 0 ] || unswept=everywhere
  [ "$code" = 0 ] || ! grep -qsE '"exit_code": 7([^0-9]|$)' "runs/$1/error.json" || exit 124
  return "$code"
}

for name in "${!DARSHAN_@}"; do unset "$name"; done   # variables of modules or users would override those of the job
kept=   # LD_PRELOAD without libdarshan: two libdarshan libraries in one rank deadlock
for library in ${LD_PRELOAD//:/ }; do [[ $library == *libdarshan* ]] || kept+=${kept:+:}$library; done
if [ "$kept" ]; then LD_PRELOAD=$kept; else unset LD_PRELOAD; fi
export PYTHONSAFEPATH=1   # ranks neither import from the job's directory nor list it
cd "$job" || exit 6
status=0

# Set the launcher arguments that load Darshan in the next run, whose log is written to the folder $1. If the probe with
# two ranks does not write a log of two ranks, all runs are made without Darshan. Darshan does not overwrite a log, so each
# attempt writes a new one.
log=$(date +%Y%m%d-%H%M%S)-$$.darshan
set_darshan() {
  mkdir -p "$1/live"
  set -- "$job/$1" "$log"
  darshan=(-e LD_PRELOAD=/soft/perftools/darshan/darshan-3.1.8/lib/libdarshan.so"${LD_PRELOAD:+:$LD_PRELOAD}" -e DARSHAN_LOGFILE="$1/$2" -e DARSHAN_CONFIG_PATH="$1/darshan.conf" -e DARSHAN_MMAP_LOGPATH="$1/live" -e DARSHAN_DISABLE_SHARED_REDUCTION="1" -e DXT_ENABLE_IO_TRACE="1")
  [ -z "$excluded" ] || darshan+=(-e DARSHAN_MODMEM="8" -e DARSHAN_EXCLUDE_DIRS="$excluded")
}
excluded=$(/opt/python/bin/python3 -m dlio_hpc.darshan excluded plan.json)   # empty for libdarshan 3.4 and later, which reads a configuration file
set_darshan darshan
run 'darshan probe' /opt/python/bin/python3 -m dlio_hpc.darshan probe plan.json "$log" -- aprun -n 2 -N 2 -d 32 -j 2 -cc depth -e OMP_NUM_THREADS=32 "${darshan[@]}" /opt/python/bin/python3 -m mpi4py -c 'from mpi4py import MPI' || set_darshan() { darshan=(); }

# On Lustre, before the dataset is written: lfs setstripe -c 48 -S 1048576 /data/npz-64x4x1MiB-4cc36a7db4b3
run 'layout before' /opt/python/bin/python3 -m dlio_hpc.lustre plan.json before || exit $?
set_darshan runs/00-generate/darshan
run 00-generate aprun -n 512 -N 4 -d 32 -j 2 -cc depth -e OMP_NUM_THREADS=32 "${darshan[@]}" /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 0 || exit $?   # end the job: its runs need this dataset
run 'darshan 00-generate' /opt/python/bin/python3 -m dlio_hpc.darshan judge plan.json --run 0 || [ $? != 3 ] || status=3
run 'layout after' /opt/python/bin/python3 -m dlio_hpc.lustre plan.json after || exit $?
run 'probe 01-measure-1' aprun -n 512 -N 4 -d 32 -j 2 -cc depth -e OMP_NUM_THREADS=32 /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 1 --probe || true
set_darshan runs/01-measure-1/darshan
run 01-measure-1 aprun -n 512 -N 4 -d 32 -j 2 -cc depth -e OMP_NUM_THREADS=32 "${darshan[@]}" /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 1 || status=$?
run 'darshan 01-measure-1' /opt/python/bin/python3 -m dlio_hpc.darshan judge plan.json --run 1 || [ $? != 3 ] || status=3
run 'probe 02-measure-2' aprun -n 512 -N 4 -d 32 -j 2 -cc depth -e OMP_NUM_THREADS=32 /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 2 --probe || true
set_darshan runs/02-measure-2/darshan
run 02-measure-2 aprun -n 512 -N 4 -d 32 -j 2 -cc depth -e OMP_NUM_THREADS=32 "${darshan[@]}" /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 2 || status=$?
run 'darshan 02-measure-2' /opt/python/bin/python3 -m dlio_hpc.darshan judge plan.json --run 2 || [ $? != 3 ] || status=3

grep -qs ": stopped, " stop && exit 124
exit "$status"
