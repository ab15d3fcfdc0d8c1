#!/bin/bash
# flux: --job-name=demo-20260101-120000-abcdef
# flux: --nodes=2 --exclusive
# flux: --time-limit=1800s
# flux: --output=job.out
# flux: --error=job.err
# flux: --setattr=bank=proj
# dlio-hpc 0: job demo-20260101-120000-abcdef on site flux
# 2 node(s) x 4 ranks. Each run is one launcher line below; plan.json holds every setting.
# To run the job again by hand: bash job.sh (its results replace those that lie here).

cd /runs/demo-20260101-120000-abcdef || exit 6
job=$PWD
rm -f exit_status stop runs/*/result.json runs/*/error.json layout/*.yaml
# exit_status tells how the job ended, also when the batch system has forgotten it.
trap 'echo "$?" > "$job/.exit_status.tmp" && mv "$job/.exit_status.tmp" "$job/exit_status"; [ -z "$timer" ] || kill "$timer" 2> /dev/null' EXIT
# USR1 comes 60 s before the time limit: the ranks see the file stop and end after their step.
trap 'signalled=1; echo "time limit near, 60 s left: stopping"; echo "time limit" > "$job/stop"' USR1
# TERM comes at the limit, or when the job is cancelled: 124 as timeout(1) has it, and 143.
SECONDS=0
launched=
trap '[ -z "$launched" ] || kill "$launched" 2> /dev/null; [ -e "$job/stop" ] && exit 124
  exit $(( SECONDS >= 1799 ? 124 : 143 ))' TERM INT HUP
# Flux sends ALRM and HUP at the limit, TERM and HUP when the job is cancelled; bash may hear HUP first.
trap '[ -z "$launched" ] || kill "$launched" 2> /dev/null; exit 124' ALRM
trap '[ -z "$launched" ] || kill "$launched" 2> /dev/null; [ -e "$job/stop" ] && exit 124
  left=$(flux job timeleft 2> /dev/null); exit $(( ${left:-2} > 1 ? 143 : 124 ))' TERM INT HUP
timer=
if [ "$FLUX_ENCLOSING_ID" ]; then
  { trap 'kill $! 2> /dev/null; exit' TERM   # the limit may be changed while the job runs: flux-update(1)
    while left=$(flux job timeleft 2> /dev/null || echo 120); [ "$left" -gt 60 ]; do
      sleep "$(( left - 60 ))" & wait $!
    done
    kill -USR1 $$; } &
  timer=$!
fi

# A run in the background, so that signals are heard while it goes on.
run() {
  [ ! -e "$job/stop" ] || exit 124
  echo "== $1"
  "${@:2}" < /dev/null &
  launched=$!
  while signalled=; wait "$launched"; code=$?; [ "$signalled" ]; do :; done
  launched=
  [ "$code" = 0 ] || ! grep -qs '"exit_code": 7' "runs/$1/error.json" || exit 124
  return "$code"
}

cd "$job" || exit 6
status=0

run 'layout before' /opt/python/bin/python3 -m dlio_hpc.lustre plan.json before || exit $?
run 00-generate flux run --nodes=2 --ntasks=8 --setopt=exit-on-error --setopt=exit-timeout=none /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 0 || exit $?   # no data, no measurement
run 'layout after' /opt/python/bin/python3 -m dlio_hpc.lustre plan.json after || exit $?
run 01-measure-1 flux run --nodes=2 --ntasks=8 --setopt=exit-on-error --setopt=exit-timeout=none /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 1 || status=$?
run 02-measure-2 flux run --nodes=2 --ntasks=8 --setopt=exit-on-error --setopt=exit-timeout=none /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 2 || status=$?

grep -qs "steps" stop && exit 124
exit "$status"
