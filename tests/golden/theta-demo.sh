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
# To run the job again by hand: bash job.sh (results that lie here are copied to attempts/ first).

cd /runs/demo-20260101-120000-abcdef || exit 6
job=$PWD
# exit_status tells how the job ended, also when the batch system has forgotten it. A file system that refuses the file
# is asked again. A batch system may send a second signal, which must not end the script before the file is written.
keep_status() {
  local code=$? pause
  trap '' TERM INT HUP ALRM USR1
  for pause in 0 1 2; do
    [ "$pause" = 0 ] || sleep "$pause"
    echo "$code" > "$job/.exit_status.tmp" && mv "$job/.exit_status.tmp" "$job/exit_status" && return
  done
}
trap 'exit 143' TERM INT HUP   # until there are ranks to end; without a trap bash would leave a 0
trap 'keep_status; [ -z "$timer" ] || kill "$timer" 2> /dev/null' EXIT
# Results of an earlier attempt are kept apart: a batch system may requeue a job.
if [ -e exit_status ] || compgen -G 'runs/*/*.*' > /dev/null; then
  attempt=1; while [ -e "attempts/$attempt" ]; do attempt=$(( attempt + 1 )); done
  rm -rf attempts/.copy; mkdir -p attempts/.copy || exit 6
  for kept in exit_status stop environment.json runs layout darshan; do
    [ ! -e "$kept" ] || cp -a "$kept" attempts/.copy/ || exit 6
  done
  mv attempts/.copy "attempts/$attempt" || exit 6
  echo "== attempt $(( attempt + 1 ))" >&2
fi
rm -f exit_status stop environment.json runs/*/{result.json,error.json,timeline.h5} layout/*.yaml
rm -rf darshan/*.darshan darshan/*.json runs/*/darshan/*.darshan runs/*/darshan/*.json {darshan,runs/*/darshan}/live
# USR1 comes 60 s before the time limit: the ranks see the file stop and end after their step.
trap 'signalled=1; echo "time limit near, 60 s left: stopping"; echo "time limit" > "$job/stop"' USR1
SECONDS=0
launched=
# Whether the time limit ends the job. The batch system knows best: the limit may have been changed.
is_over() {
  local rest
  rest=$(left 2)
  if [ "$rest" ]; then [ "$rest" -le 1 ]; else clock_says_so; fi
}
clock_says_so() { [ -e "$job/stop" ] || (( SECONDS >= 3599 )); }
# Ranks end before the script does: a batch system kills what it started, which on other nodes are not the ranks.
stop_ranks() {
  for _ in {1..20}; do kill -0 "$launched" 2> /dev/null || break; sleep 0.1; done
  kill -KILL "$launched" 2> /dev/null
}
# TERM comes at the limit, or when the job is cancelled: 124 as timeout(1) has it, and 143.
end() {
  set +eu   # whatever the site's lines have set
  trap '' TERM INT HUP ALRM USR1
  [ -z "$launched" ] || kill "$launched" 2> /dev/null
  local code=143
  ! is_over || code=124
  [ -z "$launched" ] || stop_ranks
  exit "$code"
}
trap end TERM INT HUP
# Seconds of the time limit that are left, by the batch system; nothing where it does not answer within $1 seconds.
left() {
  :
}
timer=
if [ "$COBALT_JOBID" ]; then
  {
    trap 'kill $! 2> /dev/null; exit' TERM
    slept=0   # the limit may be changed: it is asked for every five minutes
    while rest=$(left 10); pause=$(( ${rest:-3600 - slept} - 60 )); [ "$pause" -gt 0 ]; do
      nap=$(( pause < 300 ? pause : 300 ))
      sleep "$nap" & wait $!
      slept=$(( slept + nap ))
    done
    ! kill -0 $$ 2> /dev/null || kill -USR1 $$
  } &
  timer=$!
fi

# A run in the background, so that signals are heard while it goes on.
run() {
  [ ! -e "$job/stop" ] || [[ $1 == darshan\ * ]] || exit 124   # what was measured is judged all the same
  echo "== $1"
  "${@:2}" < /dev/null &
  launched=$!
  while signalled=; wait "$launched"; code=$?; [ "$signalled" ]; do :; done
  launched=
  [ "$code" = 0 ] || ! grep -qs '"exit_code": 7' "runs/$1/error.json" || exit 124
  return "$code"
}

for name in "${!DARSHAN_@}"; do unset "$name"; done   # what modules or users set would get the better of ours
kept=   # two libdarshans in one rank would wait for each other
for library in ${LD_PRELOAD//:/ }; do [[ $library == *libdarshan* ]] || kept+=${kept:+:}$library; done
if [ "$kept" ]; then LD_PRELOAD=$kept; else unset LD_PRELOAD; fi
export PYTHONSAFEPATH=1   # ranks find nothing in the job's directory, and need not list it
cd "$job" || exit 6
status=0

# Darshan's settings for the ranks of the next run, whose log goes to the folder $1; none where the two ranks of the
# probe left no log of two. A log that is there already would not be replaced: each attempt has its own.
log=$(date +%Y%m%d-%H%M%S)-$$.darshan
watched() {
  mkdir -p "$1/live"
  set -- "$job/$1" "$log"
  darshan=(-e LD_PRELOAD=/soft/perftools/darshan/darshan-3.1.8/lib/libdarshan.so"${LD_PRELOAD:+:$LD_PRELOAD}" -e DARSHAN_LOGFILE="$1/$2" -e DARSHAN_CONFIG_PATH="$1/darshan.conf" -e DARSHAN_MMAP_LOGPATH="$1/live" -e DARSHAN_DISABLE_SHARED_REDUCTION="1" -e DXT_ENABLE_IO_TRACE="1")
  [ -z "$excluded" ] || darshan+=(-e DARSHAN_MODMEM="8" -e DARSHAN_EXCLUDE_DIRS="$excluded")
}
excluded=$(/opt/python/bin/python3 -m dlio_hpc.darshan excluded plan.json)   # empty where libdarshan reads a configuration file (3.4 and later)
watched darshan
run 'darshan probe' /opt/python/bin/python3 -m dlio_hpc.darshan probe plan.json "$log" -- aprun -n 2 -N 2 -d 32 -j 2 -cc depth -e OMP_NUM_THREADS=32 "${darshan[@]}" /opt/python/bin/python3 -m mpi4py -c 'from mpi4py import MPI' || watched() { darshan=(); }

# On Lustre, before the dataset is written: lfs setstripe -c 48 -S 1048576 /data/npz-64x4x1MiB-9bc10fe4ebd8
run 'layout before' /opt/python/bin/python3 -m dlio_hpc.lustre plan.json before || exit $?
watched runs/00-generate/darshan
run 00-generate aprun -n 512 -N 4 -d 32 -j 2 -cc depth -e OMP_NUM_THREADS=32 "${darshan[@]}" /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 0 || exit $?   # no data, no measurement
run 'darshan 00-generate' /opt/python/bin/python3 -m dlio_hpc.darshan judge plan.json --run 0 || [ $? != 3 ] || status=3
run 'layout after' /opt/python/bin/python3 -m dlio_hpc.lustre plan.json after || exit $?
watched runs/01-measure-1/darshan
run 01-measure-1 aprun -n 512 -N 4 -d 32 -j 2 -cc depth -e OMP_NUM_THREADS=32 "${darshan[@]}" /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 1 || status=$?
run 'darshan 01-measure-1' /opt/python/bin/python3 -m dlio_hpc.darshan judge plan.json --run 1 || [ $? != 3 ] || status=3
watched runs/02-measure-2/darshan
run 02-measure-2 aprun -n 512 -N 4 -d 32 -j 2 -cc depth -e OMP_NUM_THREADS=32 "${darshan[@]}" /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 2 || status=$?
run 'darshan 02-measure-2' /opt/python/bin/python3 -m dlio_hpc.darshan judge plan.json --run 2 || [ $? != 3 ] || status=3

grep -qs "steps" stop && exit 124
exit "$status"
