# Headers of Pythons that Debian 12 does not have, from the archives of newer Debians: sourced by main.sh. Unpacked and not
# installed, without root.

# python_headers SUITE VERSION: unpacks them and prints their folder; fails with words where they cannot be had.
python_headers() {
  local suite=$1 version=$2 folder=$PWD/build/python-headers/$2 state archive
  if [ ! -e "$folder/made" ]; then
    rm -rf "$folder"
    state=$folder/apt
    mkdir -p "$state/lists/partial" "$state/archives/partial"
    touch "$state/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${LOCKSTEP_DEBIAN_MIRROR:-http://deb.debian.org/debian} $suite main" >"$state/sources"
    cat >"$state/apt.conf" <<CONF
Dir::State "$state";
Dir::State::status "$state/status";
Dir::Cache "$state";
Dir::Etc::sourcelist "$state/sources";
Dir::Etc::sourceparts "/dev/null";
CONF
    (cd "$state/archives" && APT_CONFIG="$state/apt.conf" apt-get -q update &&
      APT_CONFIG="$state/apt.conf" apt-get -q download "libpython$version-dev") >"$folder/log" 2>&1 ||
      { say "no headers of Python $version from Debian $suite: its extension is not in the wheel ($folder/log)"; return 1; }
    for archive in "$state"/archives/*.deb; do dpkg-deb -x "$archive" "$folder"; done
    rm -rf "$state"
    touch "$folder/made"
  fi
  echo "$folder/usr/include/python$version"
}
