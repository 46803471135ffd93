# Words for scenarios about the container image, sourced after lib.sh: unpacks it for runc into $bundle; $config is its
# configuration, and $images lists its architectures.
#
# Environment: IMAGE, the archive that packaging/container/build makes (of those in target/cross/dist).
need umoci runc jq
image=${IMAGE:-$(ls "$REPO"/target/cross/dist/linerate-*-oci.tar 2>/dev/null || true)}
[[ -f $image ]] || skip "there is no image (packaging/build-all container)"
((EUID == 0)) && [[ $(stat -c %u /proc/self/ns/user) == 0 && -c /dev/net/tun ]] || skip "runc needs root here"
case $(uname -m) in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; *) skip "no image for $(uname -m)" ;; esac

layout=$WORK/layout bundle=$WORK/bundle
mkdir "$layout"
tar -xf "$image" -C "$layout"
blob() { echo "$layout/blobs/${1/://}"; } # DIGEST
images=$(blob "$(jq -r '.manifests[0].digest' "$layout/index.json")")
# umoci knows no choice by architecture.
jq --arg of "$architecture" '.manifests |= map(select(.platform.architecture == $of) |
  .annotations = {"org.opencontainers.image.ref.name": "test"})' "$images" >"$layout/index.json"
config=$(blob "$(jq -r .config.digest "$(blob "$(jq -r '.manifests[0].digest' "$layout/index.json")")")")
umoci unpack --image "$layout:test" "$bundle" >"$SCENARIO_LOGS/umoci.log"
cp "$bundle/config.json" "$WORK/config.json"

# Runs the container in the background, as $bundle/config.json says.
container() {
  name=linerate-$(basename "$(mktemp -u)")
  trap 'runc delete --force "$name" >/dev/null 2>&1' EXIT
  runc run --detach --bundle "$bundle" --pid-file "$WORK/pid" "$name" >"$SCENARIO_LOGS/container.log" 2>&1 ||
    fail "runc: $(tail -n 1 "$SCENARIO_LOGS/container.log")"
}
stopped() { [[ $(runc state "$name" | jq -r .status) == stopped ]]; }
