#!/bin/sh
# usage: index.sh FOLDER
# Compares the debs in FOLDER with its SHA256SUMS, removes others, and writes the index that apt reads.
set -e
cd "$1"
rm -f Packages
sha256sum --check --strict --quiet SHA256SUMS
for deb in *.deb; do
  grep -q "[ *]$deb\$" SHA256SUMS || { rm -f "$deb"; continue; }
  dpkg-deb --field "$deb"
  printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$deb" "$(stat -c %s "$deb")" "$(sha256sum < "$deb" | cut -d ' ' -f 1)"
done > Packages.new
mv Packages.new Packages
