#!/bin/bash
# A real S3 service on one machine, for tests: Ceph's monitor, one OSD in memory and the RADOS gateway, on the loopback
# alone. Answers after about 15 s. Keys AK and SK.
#
# usage: ceph.sh DIRECTORY PORT     (stop it by the process ids in DIRECTORY/{rgw,osd,mon}.pid)
# needs: apt-get install --no-install-recommends ceph-mon ceph-osd radosgw
set -euo pipefail
directory=$1 port=$2
mkdir -p "$directory"/{mon,osd,rgw,run,log}
fsid=$(cat /proc/sys/kernel/random/uuid)
monitor="[v2:127.0.0.1:$((port + 1)),v1:127.0.0.1:$((port + 2))]"
cat >"$directory/ceph.conf" <<END
[global]
fsid = $fsid
mon initial members = a
mon host = $monitor
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = $directory/keyring
run dir = $directory/run
admin socket = $directory/run/\$name.asok
pid file = $directory/run/\$name.pid
log file = $directory/log/\$name.log
crash dir = $directory/crash
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon max pg per osd = 1000
osd crush chooseleaf type = 0
mon data avail warn = 1
mon data avail crit = 1
[mon.a]
mon data = $directory/mon
[osd]
osd crush update on start = true
osd objectstore = memstore
osd data = $directory/osd
memstore device bytes = 2147483648
[client.rgw]
keyring = $directory/keyring
rgw frontends = beast endpoint=127.0.0.1:$port
rgw data = $directory/rgw
END
conf=(-c "$directory/ceph.conf") keyring=$directory/keyring log=$directory/log
ceph-authtool --create-keyring "$keyring" --gen-key -n mon. --cap mon 'allow *' >/dev/null
ceph-authtool "$keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' >/dev/null
ceph-authtool "$keyring" --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *' >/dev/null
ceph-authtool "$keyring" --gen-key -n client.rgw --cap mon 'allow rw' --cap osd 'allow rwx' >/dev/null
monmaptool --create --fsid "$fsid" --addv a "$monitor" "$directory/monmap" >/dev/null
ceph-mon "${conf[@]}" -i a --mkfs --monmap "$directory/monmap" --keyring "$keyring"
ceph-mon "${conf[@]}" -i a -f >"$log/mon.out" 2>&1 &
echo $! >"$directory/mon.pid"
timeout 60 ceph "${conf[@]}" mon stat >/dev/null 2>&1
osd=$(cat /proc/sys/kernel/random/uuid)
ceph "${conf[@]}" osd new "$osd" 0 >/dev/null
ceph-osd "${conf[@]}" -i 0 --mkfs --osd-uuid "$osd" >"$log/osd-mkfs.out" 2>&1
ceph-osd "${conf[@]}" -i 0 -f >"$log/osd.out" 2>&1 &
echo $! >"$directory/osd.pid"
for _ in $(seq 300); do ceph "${conf[@]}" osd stat 2>/dev/null | grep -q '1 up' && break; sleep 0.2; done
radosgw "${conf[@]}" -n client.rgw -f >"$log/rgw.out" 2>&1 &
echo $! >"$directory/rgw.pid"
for _ in $(seq 600); do curl -s -o /dev/null "http://127.0.0.1:$port/" && break; sleep 0.2; done
radosgw-admin "${conf[@]}" -n client.rgw user create --uid=t --display-name=t --access-key=AK --secret-key=SK \
  >/dev/null 2>&1
