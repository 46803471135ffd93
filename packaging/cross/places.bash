# Where the tools of cross builds are. Sourced by tools, std and programs.
# shellcheck shell=bash
cache=${LINERATE_CROSS:-${XDG_CACHE_HOME:-$HOME/.cache}/linerate-cross}
# shellcheck disable=SC2034 # for those that source this
zig=$cache/zig-$(sha256sum <"$(dirname "${BASH_SOURCE[0]}")/requirements.txt" | cut -c 1-12)

# The compiler for a target and the folder of its --sysroot, in two lines; the folder is empty where the compiler has
# the library itself. Nothing where there is no library.
rust_for() { # TARGET
  local rustc=${RUSTC:-rustc} release
  if [[ -d $("$rustc" --print target-libdir --target "$1") ]]; then
    printf '%s\n\n' "$rustc"
  elif release=$(debian_rust) && [[ -d $cache/rust-$release-$1 ]]; then
    printf '%s\n' /usr/bin/rustc "$cache/rust-$release-$1"
  fi
}
# The version of Debian's rustc-web whose sources are installed too.
debian_rust() {
  local release
  release=$(/usr/bin/rustc -vV 2>/dev/null | sed -n 's/^release: //p')
  [[ -n $release && -d /usr/src/rustc-$release/library && -x /usr/bin/cargo ]] && echo "$release"
}
