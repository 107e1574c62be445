#!/bin/sh
# What a container of docker-compose.yml runs.
#   container.sh slurmdbd | cluster NAME | federation | slurm-evo
set -eu

wait_for() { until "$@" >/dev/null 2>&1; do sleep 1; done; }

install -d -o munge /run/munge /var/log/munge
install -d -o slurm /run/slurm-evo-site
runuser -u munge -- munged

case "$1" in
slurmdbd)
  exec env SLURM_CONF=/etc/slurm/slurm.conf slurmdbd -D
  ;;
cluster)
  export SLURM_CONF="/etc/slurm/$2/slurm.conf"
  install -d -o slurm "/var/lib/slurm-evo-site/$2"
  mkdir -p /var/lib/slurm-evo-site/dev
  for number in 0 1 2 3 4 5 6 7; do
    device=/var/lib/slurm-evo-site/dev/gpu$number
    [ -e "$device" ] || mknod "$device" c 195 "$number" # slurmd takes only device files for GPUs
  done
  wait_for sacctmgr -n show qos
  /etc/slurm/accounts.sh people
  for node in $(sed -n 's/^NodeName=\([^ ]*\).*/\1/p' "$SLURM_CONF"); do
    mkdir -p "/var/spool/slurmd/$node"
    slurmd -D -N "$node" &
  done
  runuser -u restd -- slurmrestd -a rest_auth/jwt "0.0.0.0:${REST_PORT:?}" &
  exec slurmctld -D
  ;;
federation)
  for cluster in alpha beta gamma; do wait_for env SLURM_CONF="/etc/slurm/$cluster/slurm.conf" scontrol ping; done
  export SLURM_CONF=/etc/slurm/alpha/slurm.conf
  exec /etc/slurm/accounts.sh federation
  ;;
slurm-evo)
  for cluster in alpha beta gamma delta; do wait_for env SLURM_CONF="/etc/slurm/$cluster/slurm.conf" scontrol ping; done
  exec env HOME=/home/slurm-evo SLURM_EVO_CONFIG=/etc/slurm/slurm-evo.toml runuser -u slurm-evo -- slurm-evo daemon
  ;;
*)
  echo "usage: $0 slurmdbd | cluster NAME | federation | slurm-evo" >&2
  exit 2
  ;;
esac
