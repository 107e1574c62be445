#!/bin/sh
# Who may use the demonstration clusters: three users, two accounts, two QOS, and slurm-evo as operator.
#   accounts.sh people       before the controllers start, so that they know everybody from their first second
#   accounts.sh federation   when all of them run
# Again changes nothing. SLURM_CONF names the slurm.conf of any of the clusters.
set -u
case "${1:-}" in
people)
  for cluster in alpha beta gamma delta; do sacctmgr -i -Q add cluster "$cluster"; done
  sacctmgr -i -Q add qos high priority=100 maxjobsperuser=20
  sacctmgr -i -Q add account physics,biology
  sacctmgr -i -Q add user ada,bob account=physics qos=normal,high defaultqos=normal maxjobs=500
  sacctmgr -i -Q add user cyd account=biology qos=normal,high defaultqos=normal maxjobs=500
  sacctmgr -i -Q add user root,slurm-evo account=physics qos=normal,high defaultqos=normal
  # Operator is all that a federation needs (sacctmgr(1), AdminLevel): SiteFactor, Clusters=, no AdminComment.
  sacctmgr -i -Q modify user slurm-evo set adminlevel=operator
  ;;
federation)
  # Only now: controllers that find their siblings half started wait ten seconds for each of them.
  sacctmgr -i -Q add federation fed clusters=alpha,beta,gamma
  # The database knows gres/gpu only since the controllers told it.
  sacctmgr -i -Q modify qos normal set maxtresperuser=gres/gpu=64 maxsubmitjobsperuser=10000
  ;;
*)
  echo "usage: $0 people | federation" >&2
  exit 2
  ;;
esac
