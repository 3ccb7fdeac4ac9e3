#!/bin/sh
# What the role reads from a host before it decides, one "word value" a line. Changes nothing.
for attribute in vendor device class; do
  grep -H . /sys/bus/pci/devices/*/"$attribute" 2>/dev/null
done | sed 's/^/pci /'
dpkg-query --show --showformat='dpkg ${db:Status-Abbrev}|${Package}|${Version}\n' "$@" 2>/dev/null
if [ -e /usr/bin/nvidia-uninstall ] || [ -e /usr/bin/nvidia-installer ]; then
  echo 'runfile found'
fi
for variable in /sys/firmware/efi/efivars/SecureBoot-*; do
  [ -r "$variable" ] && [ "$(od -An -t u1 -j 4 -N 1 "$variable" | tr -d ' ')" = 1 ] && echo 'secure_boot on'
done
if [ -e /var/lib/dkms/mok.pub ] && command -v mokutil > /dev/null; then
  mokutil --test-key /var/lib/dkms/mok.pub 2>/dev/null | grep -q 'already enrolled' && echo 'key_enrolled yes'
fi
if command -v mokutil > /dev/null; then
  mokutil --list-enrolled 2>/dev/null | sed -n 's/^.*SHA1 Fingerprint: */enrolled /p'
fi
for image in /boot/vmlinuz-*; do
  [ -e "$image" ] && echo "kernel ${image#/boot/vmlinuz-}"
done
for folder in /usr /var /boot; do
  df --block-size=1M --output=target,avail "$folder" 2>/dev/null | sed -n "2s|^|room $folder |p"
  [ ! -e "$folder" ] || [ -w "$folder" ] || echo "readonly $folder"
done
du --block-size=1M /boot/initrd.img-* 2>/dev/null | cut -f 1 | sort -n | sed -n '$s/^/initrd /p'
ls /var/lib/dpkg/updates/[0-9]* > /dev/null 2>&1 && echo 'interrupted dpkg'
if [ -e /var/lib/gpuops/nvidia-driver/Packages ]; then
  echo "local_repository $(sha256sum < /var/lib/gpuops/nvidia-driver/SHA256SUMS | cut -d ' ' -f 1)"
fi
start=$(date -d "$(LC_ALL=C ps -o lstart= -p 1)" +%s) &&
  [ -n "$(find /var/lib/dpkg/info -name '*nvidia*.list' -newermt "@$start" -print -quit)" ] && echo 'changed since_start'
[ -e /etc/gpuops/gpu_settings.json ] && echo 'gpu_settings here'
[ -e /sys/module/nouveau ] && echo 'nouveau loaded'
if [ -e /proc/driver/nvidia/version ]; then
  find /proc/[0-9]*/fd -lname '/dev/nvidia[0-9]*' 2>/dev/null | cut -d / -f 3 | sort -u | while read -r process; do
    unit=$(grep -o '[^/]*\.service' "/proc/$process/cgroup" 2>/dev/null | head -n 1)
    echo "holder ${unit:--} $(cat "/proc/$process/comm" 2>/dev/null)"
  done
fi
exit 0
