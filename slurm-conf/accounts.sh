#!/bin/sh
# Who may use the demonstration clusters: three users, two accounts, two QOS, and slurm-evo as operator.
# Before the controllers start: `accounts.sh clusters`. When they run: `accounts.sh`. Again changes nothing.
set -u
for cluster in alpha beta gamma delta; do sacctmgr -i -Q add cluster "$cluster"; done
[ "${1:-}" != clusters ] || exit 0
# Only now: controllers that find their siblings half started wait ten seconds for each of them.
sacctmgr -i -Q add federation fed clusters=alpha,beta,gamma
sacctmgr -i -Q modify qos normal set maxtresperuser=gres/gpu=64 maxsubmitjobsperuser=10000
sacctmgr -i -Q add qos high priority=100 maxjobsperuser=20
sacctmgr -i -Q add account physics,biology
sacctmgr -i -Q add user ada,bob account=physics qos=normal,high defaultqos=normal
sacctmgr -i -Q add user cyd account=biology qos=normal,high defaultqos=normal
sacctmgr -i -Q add user root,slurm-evo account=physics qos=normal,high defaultqos=normal
# Operator is all that a federation needs (sacctmgr(1), AdminLevel): SiteFactor, Clusters=, no AdminComment.
sacctmgr -i -Q modify user slurm-evo set adminlevel=operator
