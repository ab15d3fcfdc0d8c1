#!/bin/bash
# Draw the pictures of the documentation again, from a job and a study on this computer. Usage: docs/pictures.sh BIN
set -euo pipefail
bin=$(realpath "$1") target=$(realpath "$(dirname "$0")")/pictures
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"$bin/dlio-submit" demo -s local -J job -S reader.drop_cache=true --wait
"$bin/dlio-hpc" report job-* --figures figures
cp figures/timeline.png figures/steps.png "$target"

"$bin/dlio-submit" demo -s local -J tune -S reader.direct=true -S compute.time=0 \
  -P reader.transfer_size=64KiB,256KiB,1MiB -P reader.read_threads=1,2,4 --repeat 3 --wait
"$bin/dlio-hpc" report tune-* --figures figures
ls figures
