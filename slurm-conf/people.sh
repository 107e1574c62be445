#!/bin/sh
# The Unix accounts on every host of the demonstration clusters. Again changes nothing.
set -eu
# Three ordinary users; slurm-evo's own account; one for slurmrestd, which refuses to be root or SlurmUser.
for user in ada bob cyd slurm-evo restd; do
  id "$user" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$user"
done
