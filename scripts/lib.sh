# SPDX-License-Identifier: Apache-2.0
# lib.sh: what the scripts share: where things are, installing packages, telling what goes on.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build

say() { printf '==> %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        command -v sudo >/dev/null || die "this needs root; install sudo or run it as root"
        sudo "$@"
    fi
}

# Debian packages, pinned by the release (Debian 12) they come from.
build_packages=(gcc libc6-dev linux-libc-dev meson ninja-build pkg-config musl-tools node-llhttp libsqlite3-dev
    libssl-dev zlib1g-dev libzstd-dev e2fsprogs ca-certificates)
test_packages=(git libwslay-dev squashfs-tools chromium openssl busybox-static bash-static zstd skopeo umoci nftables iproute2 python3 python3-pytest clang libclang-rt-14-dev clang-format shellcheck curl procps strace valgrind
    python3-numpy python3-pandas python3-matplotlib python3-ipython python3-pil python3-munkres)
bench_packages=(bubblewrap crun runc nginx-light python3 procps)

# install_missing PACKAGE...: quick when all are there.
install_missing() {
    local missing=() p
    for p in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing+=("$p")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    say "installing ${missing[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# configure DIR MESON-ARGS...: once; a changed meson.build is noticed by ninja itself.
configure() {
    local dir=$1
    shift
    [ -f "$dir/build.ninja" ] || meson setup "$dir" "$root" "$@" >"$dir.setup.log" 2>&1 ||
        { cat "$dir.setup.log" >&2; die "meson setup of $dir failed"; }
}

compile() {
    ninja -C "$1" >"$1.build.log" 2>&1 || { tail -n 60 "$1.build.log" >&2; die "building $1 failed"; }
}

# The static agent and the release binaries, both in build/bin.
build_release() {
    install_missing "${build_packages[@]}"
    mkdir -p "$build/bin"
    say "building (release)"
    CC=musl-gcc configure "$build/agent" -Dpart=agent -Dbuildtype=minsize -Ddefault_library=static -Db_pie=true
    compile "$build/agent"
    configure "$build/release" -Dbuildtype=release -Doptimization=2
    compile "$build/release"
    install -m 755 "$build/agent/src/agent/silica-agent" "$build/release/src/cli/silica" "$build/bin/"
    ln -sfn silica "$build/bin/silica-docker" # for programs that want one path, see docs/build.md
}

# Everything with the sanitizers and the failpoints, for tests.
build_debug() {
    install_missing "${build_packages[@]}" "${test_packages[@]}"
    mkdir -p "$build"
    say "building (debug, address and undefined behaviour sanitizers)"
    configure "$build/debug" -Dbuildtype=debugoptimized -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false \
        -Dfailpoints=true
    compile "$build/debug"
}
