#!/bin/bash
# dlio-hpc 0: job demo-20260101-120000-abcdef on site local
# 1 node(s) x 4 ranks. Each run is one launcher line below; plan.json holds every setting.
# To run the job again by hand: bash job.sh (its results replace those that lie here).

cd /runs/demo-20260101-120000-abcdef || exit 6
job=$PWD
# exit_status tells how the job ended, also when the batch system has forgotten it.
rm -f exit_status runs/*/result.json runs/*/error.json
trap 'echo "$?" > "$job/.exit_status.tmp" && mv "$job/.exit_status.tmp" "$job/exit_status"' EXIT
# Whoever ends the job sends TERM: at the time limit that is 124, as timeout(1) has it, before it 143 (cancelled).
SECONDS=0
trap 'exit $(( SECONDS >= 3599 ? 124 : 143 ))' TERM

cd "$job" || exit 6
status=0

echo '== 00-generate'
/opt/mpi/bin/mpiexec -n 4 /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 0 || exit $?   # no data, no measurement

echo '== 01-measure-1'
/opt/mpi/bin/mpiexec -n 4 /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 1 || status=$?

echo '== 02-measure-2'
/opt/mpi/bin/mpiexec -n 4 /opt/python/bin/python3 -m mpi4py -m dlio_hpc.core plan.json --run 2 || status=$?

exit "$status"
