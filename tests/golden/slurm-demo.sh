#!/bin/bash
#SBATCH --job-name=demo-20260101-120000-abcdef
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=0:30:00
#SBATCH --signal=B:USR1@60
#SBATCH --no-requeue
#SBATCH --open-mode=append
#SBATCH --output=job.out
#SBATCH --error=job.err
#SBATCH --account=proj
#SBATCH --exclusive
# dlio-hpc 0: job demo-20260101-120000-abcdef on site slurm
# 2 node(s) x 4 ranks. Each run is one launcher line below; plan.json holds every setting.
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
trap 'keep_status; [ ! "$unswept" ] || sweep_nodes' EXIT
for linked in runs runs/*; do   # a link would lead the copy of earlier results, and their removal, elsewhere
  [ ! -L "$linked" ] || { echo "dlio-hpc: $job/$linked is a link; put the folder in its place" >&2; exit 6; }
done
# If the job has run before, copy its earlier results to attempts/. The batch system may requeue a job.
if [ -e exit_status ] || compgen -G 'runs/*/*.*' > /dev/null; then
  attempt=1; while [ -e "attempts/$attempt" ]; do attempt=$(( attempt + 1 )); done
  rm -rf attempts/.copy; mkdir -p attempts/.copy || exit 6
  for kept in exit_status setup_failures stop terminated environment.json runs layout; do
    [ ! -e "$kept" ] || cp -a "$kept" attempts/.copy/ || exit 6
  done
  mv attempts/.copy "attempts/$attempt" || exit 6
  echo "== attempt $(( attempt + 1 ))" >&2
fi
! is_spare || rm -rf "$spare"
rm -f exit_status setup_failures stop terminated environment.json runs/*/{result.json,error.json,timeline.h5,probe.json} layout/*.yaml
# USR1 arrives 60 s before the time limit. The trap creates the file stop, and all ranks end after the current step.
trap 'signalled=1; echo "time limit near, 60 s left: stopping"; echo "time limit" > "$job/stop"' USR1
SECONDS=0
launched=
# Return 0 if the job ends because of its time limit. The batch system is asked first, because the limit may have been
# changed.
is_over() {
  local why
  why=$([ ! "$SLURM_JOB_ID" ] || reason || reason)
  if [ "$why" ]; then [ "$why" = TimeLimit ]; else is_over_by_clock; fi
}
# The same without the batch system: return 0 if the file stop exists or the walltime is over.
is_over_by_clock() { [ -e "$job/stop" ] || (( SECONDS >= 1800 - 1 )); }
# Remove what killed ranks leave on a node: shared memory and temporary files.
sweep='"$2" -IS "$3" "$1" || :'
# Do so on all nodes, in at most 3 s.
sweep_nodes() {
  local launch=(srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --mpi=pmi2 --kill-on-bad-exit=1)
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
# Print Slurm's reason for the state of the job. The query has a session of its own, because a job that is cancelled sends
# TERM to all processes of its session. SLURM_CLUSTERS would add the name of the cluster.
reason() {
  env -u SLURM_CLUSTERS setsid timeout 2 squeue -h -t all -j "$SLURM_JOB_ID" -o %r 2> /dev/null
}

# Start a run in the background, so that bash handles signals while the run is active.
run() {
  [ ! -e "$job/stop" ] || exit 124
  echo "== $1"
  "${@:2}" < /dev/null &
  launched=$!
  while signalled=; wait "$launched"; code=$?; [ "$signalled" ]; do :; done
  launched=
  [ "$code" = 0 ] || unswept=everywhere
  [ "$code" = 0 ] || ! grep -qsE '"exit_code": 7([^0-9]|$)' "runs/$1/error.json" || exit 124
  return "$code"
}

unset SLURM_EXPORT_ENV   # with --export=NONE, srun would keep the variables of this script from the ranks
export PYTHONSAFEPATH=1   # ranks neither import from the job's directory nor list it
cd "$job" || exit 6
status=0

run 'layout before' /opt/python/bin/python3 -m dlio_hpc.lustre plan.json before || exit $?
run 00-generate srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --mpi=pmi2 --kill-on-bad-exit=1 /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 0 || exit $?   # end the job: its runs need this dataset
run 'layout after' /opt/python/bin/python3 -m dlio_hpc.lustre plan.json after || exit $?
run 01-measure-1 srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --mpi=pmi2 --kill-on-bad-exit=1 /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 1 || status=$?
run 02-measure-2 srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --mpi=pmi2 --kill-on-bad-exit=1 /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 2 || status=$?

grep -qs ": stopped, " stop && exit 124
exit "$status"
