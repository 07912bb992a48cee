# A bare Debian in a folder, made once, and commands inside it: sourced by bare_debian.sh and fresh.sh. Needs root and debootstrap.

bare_tree() {  # bare_tree SUITE FOLDER [PACKAGES]
  local suite=$1 tree=$2 log=$PWD/build/debootstrap-$1.log
  [ ! -e "$tree/made" ] || return 0
  rm -rf "$tree"
  mkdir -p "$PWD/build"
  local scripts=/usr/share/debootstrap/scripts script=
  [ -e "$scripts/$suite" ] || script=$scripts/sid  # a suite newer than this debootstrap is made as the newest it knows
  debootstrap --variant=minbase ${3:+--include="$3"} "$suite" "$tree" "${LOCKSTEP_DEBIAN_MIRROR:-http://deb.debian.org/debian}" \
    $script >"$log" 2>&1 || { tail "$log" >&2; exit 3; }
  # What an installer or a container's runtime writes, and debootstrap does not: programs of several processes look it up.
  printf '127.0.0.1 localhost\n::1 localhost\n127.0.1.1 %s\n' "$(uname -n)" >"$tree/etc/hosts"
  touch "$tree/made"
}

# in_bare_tree FOLDER COMMAND [SHARED]: as root of that tree. A namespace of its own: what is mounted there is gone with its last
# process. SHARED, a folder outside, is /shared inside and can only be read.
in_bare_tree() {
  mkdir -p "$1/proc" "$1/dev" "$1/shared"
  unshare --mount --pid --fork bash -euc '
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    [ -z "$3" ] || { mount --bind "$3" "$1/shared" && mount -o remount,bind,ro "$1/shared"; }
    cd /
    exec chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 sh -c "$2"' sh "$1" "$2" "${3:-}"
}
