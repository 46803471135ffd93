#!/usr/bin/env bash
# timeout: 90
# The dashboard for Grafana: promtool parses its expressions, and each metric in them is one that is written.
source "$(dirname "$0")/lib.sh"
need jq promtool

dashboard=$REPO/packaging/grafana/linerate.json

say "its form"
jq -e '
  (.title | length > 0) and (.uid | length > 0) and (.schemaVersion | type == "number")
  and ([.panels[].id] | length == (unique | length))
  and ([.templating.list[].name] == ["datasource", "instance", "interface"])
  and all(.panels[];
    (.title | length > 0)
    and (.type | IN("stat", "timeseries", "bargauge", "table"))
    and (.gridPos | .x >= 0 and .w > 0 and .x + .w <= 24 and .h > 0)
    and (.targets | length > 0) and (([.targets[].refId] | length) == ([.targets[].refId] | unique | length))
    and all(.targets[]; (.expr | length > 0) and .datasource.uid == "${datasource}"))
' "$dashboard" >/dev/null || fail "it has not the form of a dashboard"
overlap='[.panels[].gridPos] as $at | any(range($at | length) as $i | range($i + 1; $at | length) as $j | [$at[$i], $at[$j]];
  .[0].x < .[1].x + .[1].w and .[1].x < .[0].x + .[0].w and .[0].y < .[1].y + .[1].h and .[1].y < .[0].y + .[0].h)'
expect "whether panels overlap" false "$(jq "$overlap" "$dashboard")"

say "its expressions"
{
  echo 'groups: [{ name: dashboard, rules: ['
  # Where Grafana puts values, some values.
  jq -c '[.panels[].targets[].expr] | to_entries[] | { record: "expression:\(.key)", expr: .value
    | gsub("\\$__rate_interval"; "1m") | gsub("\\$(?<name>[a-z]+)"; ".*") }' "$dashboard" |
    awk '{ print $0 "," }'
  echo ']}]'
} >"$WORK/rules.yml"
promtool check rules "$WORK/rules.yml" >"$WORK/checked" 2>&1 || [[ $? == 3 ]] || fail "promtool: $(cat "$WORK/checked")"
expect "expressions" "$(jq '[.panels[].targets[]] | length' "$dashboard")" "$(grep -o '[0-9]* rules found' "$WORK/checked" | cut -d ' ' -f 1)"

say "its metrics"
two_hosts
tunnel v4
pings h1 10.9.0.2
# With limits, so that their families are there.
{ printf 'set=1\npublic_key=%s\nquota=100000000\nexpires=%s\n\n' "$(public h2 | hex)" $(($(date +%s) + 99)); } | uapi wg1 >/dev/null
on h1 "$LINERATE" metrics | sed -n 's/^# TYPE \([^ ]*\) .*/\1/p' | sort -u >"$WORK/written"
jq -r '(.panels[].targets[].expr), (.templating.list[].definition // empty)' "$dashboard" |
  grep -oE '\b(linerate|wireguard)_[a-z_]+' | sort -u >"$WORK/used"
expect "metrics that nobody writes" "" "$(comm -13 "$WORK/written" "$WORK/used" | xargs)"
expect_at_least "metrics used" 15 "$(wc -l <"$WORK/used")"
