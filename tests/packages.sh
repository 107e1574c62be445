#!/bin/bash
# Installs the Debian packages that the tests need and that are missing. As root; quiet when nothing is missing.
set -euo pipefail
wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=(python3-venv debootstrap iproute2 util-linux postgresql mariadb-server gcc make libc6-dev)
missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ]; then
  echo "missing: ${missing[*]} - install with: sudo apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# A database server that the package starts by itself is not wanted: the tests start private ones.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d.slurm-evo && chmod +x /usr/sbin/policy-rc.d.slurm-evo
had_policy=0
[ -e /usr/sbin/policy-rc.d ] && had_policy=1 || mv /usr/sbin/policy-rc.d.slurm-evo /usr/sbin/policy-rc.d
trap '[ "$had_policy" = 1 ] || rm -f /usr/sbin/policy-rc.d; rm -f /usr/sbin/policy-rc.d.slurm-evo' EXIT
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
