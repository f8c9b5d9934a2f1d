#!/usr/bin/env bash
#SBATCH --job-name=conformance
#SBATCH --output=conformance-%A-%a.log
#SBATCH --time=04:00:00
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:1
# One task per line of the plan; every node sees the project's folder.
#
#   conformance --reports reports plan --device cuda --profile full --write --list > cells.txt
#   sbatch --array=1-"$(wc -l < cells.txt)" slurm.sh
#
# and when the array has ended: conformance collect machines && conformance report && conformance gate
set -euo pipefail

cells=$(sed -n "${SLURM_ARRAY_TASK_ID}p" "${CELLS:-cells.txt}")
exec conformance --reports "machines/${SLURM_ARRAY_TASK_ID}" run --only "${cells}" ${CONFORMANCE_OPTIONS:-}
