#!/bin/bash
# Runs tollgate.service under a real systemd, in namespaces and on a copy-on-write view of this machine: its user, the start, a
# command, a reload, a killed server and a stop. Needs root, systemd, Node and redis-server; takes half a minute. With the archive
# of a release as its argument it installs that.
set -euo pipefail

if [ "${1:-}" != inside ]; then
  export ARCHIVE=${1:+$(realpath "$1")}
  cd "$(dirname "$0")/../.."
  [ -n "$ARCHIVE" ] || node bin/tollgate.mjs --version > /dev/null # Builds.
  work=$(mktemp -d)
  setsid unshare --mount --pid --fork --cgroup --kill-child --propagation private "$0" inside "$work" > "$work/log" 2>&1 &
  outer=$!
  trap 'kill -KILL "$outer"; wait "$outer" 2> /dev/null || true; rm -rf "$work"' EXIT
  for _ in $(seq 100); do
    inner=$(pgrep -P "$outer" || true)
    [ -n "$inner" ] && nsenter -t "$inner" -m -p -r -w systemctl is-active --quiet tollgate 2> /dev/null && break
    sleep 0.3
  done
  in_machine() { nsenter -t "$inner" -m -p -r -w "$@"; }
  journal() { in_machine journalctl --unit tollgate --output cat --no-pager; }
  until_logged() { for _ in $(seq 100); do [ "$(journal | grep -c "$1")" -ge "$2" ] && return; sleep 0.3; done; journal; exit 1; }

  until_logged '"Ready."' 1 || { cat "$work/log"; exit 1; }
  in_machine tollgate workspace create production
  in_machine tollgate root-key create --permission '*' | grep -q '^root_'
  in_machine tollgate doctor | (! grep -v '^ok')
  in_machine sh -c 'for p in $(cat /sys/fs/cgroup/system.slice/tollgate.service/cgroup.procs); do cat /proc/$p/status; done' |
    grep -E '^(Uid|CapEff|NoNewPrivs|Seccomp):' | sort | uniq -c
  in_machine systemctl reload tollgate
  until_logged 'read again' 1
  in_machine systemctl kill --signal KILL --kill-whom main tollgate
  until_logged '"Ready."' 2
  in_machine tollgate workspace list | grep -q production
  in_machine systemctl stop tollgate
  until_logged '"Stopped."' 1
  echo 'done: started, served, reloaded, restarted after a kill with its data, and stopped'
  exit
fi

# Process 1 of the namespaces: prepares the view, then becomes systemd.
view=$2/root
mkdir -p "$view" "$2/layer"
mount -t tmpfs tmpfs "$2/layer"
mkdir "$2/layer/upper" "$2/layer/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$2/layer/upper,workdir=$2/layer/work" "$view"
mount -t proc proc "$view/proc"
for name in run tmp; do mount -t tmpfs tmpfs "$view/$name"; done
mount --rbind /dev "$view/dev"
mount -t sysfs sysfs "$view/sys"
mount -t cgroup2 cgroup2 "$view/sys/fs/cgroup"

# The steps of docs/install.md.
mkdir -p "$view/opt/tollgate"
if [ -n "$ARCHIVE" ]; then
  tar -xzf "$ARCHIVE" --strip-components 1 -C "$view/opt/tollgate"
else
  cp -a bin deploy dist lua node_modules package.json src "$view/opt/tollgate/"
fi
install -D -m 644 deploy/systemd/tollgate.sysusers.conf "$view/etc/sysusers.d/tollgate.conf"
install -D -m 644 deploy/systemd/tollgate.service "$view/etc/systemd/system/tollgate.service"
install -m 755 deploy/systemd/tollgate "$view/usr/local/bin/tollgate"
chroot "$view" systemd-sysusers
chroot "$view" install -d -o root -g tollgate -m 750 /etc/tollgate
chroot "$view" install -o root -g tollgate -m 640 /opt/tollgate/deploy/tollgate.env.example /etc/tollgate/tollgate.env
echo 'PORT=0' >> "$view/etc/tollgate/tollgate.env"

# Only the service and the journal are to run.
for unit in systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-udev-trigger.service; do
  ln -sf /dev/null "$view/etc/systemd/system/$unit"
done
printf '[Unit]\nRequires=tollgate.service systemd-journald.service\n' > "$view/etc/systemd/system/rehearsal.target"
exec env -i container=docker PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin \
  chroot "$view" /lib/systemd/systemd --system --unit=rehearsal.target
