#!/usr/bin/env bash
# timeout: 60
# The dashboard is one that Grafana knows: it is compared with the types that Grafana publishes (@grafana/schema).
source "$(dirname "$0")/../netns/lib.sh"
need python3 node

compiler=$REPO/target/peers/bin/grafana-tsc
[[ -x $compiler ]] || skip "there is no $compiler (tests/interop/prepare grafana-schema)"
ln -s "$(dirname "$(readlink "$compiler")")/node_modules" "$WORK/node_modules"
compares() { # DASHBOARD
  python3 "$REPO/tests/interop/grafana-dashboard.py" "$1" >"$WORK/dashboard.ts" &&
    "$compiler" --noEmit --strict --skipLibCheck --moduleResolution node10 --module commonjs --target es2020 \
      "$WORK/dashboard.ts" >"$WORK/said"
}
compares "$REPO/packaging/grafana/linerate.json" || fail "$(head -n 5 "$WORK/said")"
say "what is wrong is seen"
sed 's/"displayMode": "table"/"displayMode": "tables"/' "$REPO/packaging/grafana/linerate.json" >"$WORK/wrong.json"
expect_failure "a word that Grafana does not know" compares "$WORK/wrong.json"
sed 's/"schemaVersion"/"schemaversion"/' "$REPO/packaging/grafana/linerate.json" >"$WORK/wrong.json"
expect_failure "a member that it does not know" compares "$WORK/wrong.json"
