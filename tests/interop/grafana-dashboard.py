"""The dashboard as TypeScript, for the compiler to compare with Grafana's own types. Argument: the dashboard."""

import json
import sys

# A text of JSON is no member of an enumeration, though it is that member's value.
PLAIN = """type Plain<T> = T extends string ? `${T}` : T extends number ? number : T extends boolean ? boolean
  : T extends (infer U)[] ? Plain<U>[] : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;"""


def constant(name, kind, value):
    print(f"export const {name}: {kind} = {json.dumps(value)};")


dashboard = json.load(open(sys.argv[1]))
panels = dashboard.pop("panels")
for variable in dashboard["templating"]["list"]:
    variable.pop("definition", None)  # Grafana writes it, and its types do not know it
print("import type * as Grafana from '@grafana/schema';")
for kind in sorted({panel["type"] for panel in panels}):
    print(f"import type * as {kind} from '@grafana/schema/dist/types/raw/composable/{kind}/panelcfg/x/types.gen';")
print(PLAIN)
constant("dashboard", "Plain<Omit<Grafana.Dashboard, 'panels'>>", dashboard)
for panel in panels:
    number, kind = panel["id"], panel["type"]
    constant(f"options{number}", f"Partial<Plain<{kind}.Options>>", panel.pop("options"))
    custom = panel["fieldConfig"]["defaults"].pop("custom", {})
    if custom:
        constant(f"custom{number}", f"Partial<Plain<{kind}.FieldConfig>>", custom)
    for target in panel.pop("targets"):
        query = "Plain<Grafana.DataQuery> & Record<string, unknown>"
        constant(f"query{number}{target['refId']}", query, target)
    constant(f"panel{number}", "Plain<Grafana.Panel>", panel)
