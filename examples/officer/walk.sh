#!/bin/sh
# From a recipe to a signature in five commands. Arguments: the folder for results, and the seed of the data.
#
#     sh examples/officer/walk.sh walked
set -eu
out="${1:-walked}"
seed="${2:-0}"
here="$(dirname "$0")"
mkdir -p "$out"

# 1. Before: who would receive what, with which epsilon. Read it, and sign it if the run may take place.
isthmus disclose "$here/recipe.toml" --set "data.seed=$seed" --out "$out/before.html" \
    --purpose "to find accounts that launder money" --keep "90 days after the run"

# 2. The run itself.
isthmus run "$here/recipe.toml" --set "data.seed=$seed" --out "$out/run" --overwrite

# 3. What an adversary gets of what has left: a simulation alone can be audited, for it needs the truth.
isthmus audit "$out/run" --targets 16

# 4. Rows of single accounts are deleted; scores, ledger and findings stay.
isthmus forget "$out/run"

# 5. After: what has left, what the attacks got, and the hashes of the ledger and of the configuration. To be signed.
isthmus disclose "$out/run" --out "$out/after.html" \
    --purpose "to find accounts that launder money" --keep "90 days after the run"

echo "To be signed: $out/before.html and $out/after.html (print on A4)."
