#!/bin/bash
# Draw the pictures of the documentation again, from a job and a study on this computer. Usage: docs/pictures.sh BIN
set -euo pipefail
bin=$(realpath "$1") target=$(realpath "$(dirname "$0")")/pictures
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# Print the folder of a job or a study; the folders of a study's jobs have longer names.
folder() { printf '%s\n' dlio-runs/"$1"-* | head -1; }

"$bin/dlio-submit" demo -s local -S reader.drop_cache=true --wait
"$bin/dlio-hpc" report "$(folder demo)" --figures figures
cp figures/timeline.png figures/steps.png "$target"

"$bin/dlio-submit" --study fig9 -s local --wait
"$bin/dlio-hpc" report "$(folder fig9)" --figures figures
cp figures/c-sweep.png "$target/study-sweep.png"
