#!/usr/bin/env python3
"""Records what the original wg-quick makes of a host: one JSON file for each case, read by tests/plans.rs.

Run as root where wg-quick, wg, wireguard-go, ip, nft and unshare are installed: ./record.py
Each case runs in network, mount and process namespaces of its own.
"""
import json, os, subprocess, sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
KEY = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEA="
PEERS = ["xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=", "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0="]

# name: (interface section, peers as (AllowedIPs, Endpoint or None), commands before)
CASES = {
    "split": (["Address = 10.0.0.2/24, fd00::2/64"],
              [("10.0.0.0/24, 10.9.0.0/16, 10.8.0.0/16, 10.8.1.0/24, fd01::/48, fd00::1/128", "198.51.100.1:51820"),
               ("10.0.0.7/32, 172.16.0.0/12", None)], []),
    "full": (["Address = 10.0.0.2/32, fd00::2/128", "DNS = 10.0.0.1, example.org, fd00::1"],
             [("0.0.0.0/0, ::/0, 10.9.0.0/16", "198.51.100.1:51820")], []),
    "full-v4": (["Address = 10.0.0.2/24"], [("0.0.0.0/0", "[2001:db8::1]:51820")],
                ["sysctl -q net.ipv4.conf.all.src_valid_mark=1"]),
    "full-table-taken": (["Address = 10.0.0.2/24, fd00::2/64"], [("0.0.0.0/0, ::/0", "198.51.100.1:51820")],
                         ["ip -6 route add fd99::/64 dev eth0 table 51820", "ip route add 10.99.0.0/16 dev eth0 table 51821",
                          "ip rule add from 10.1.1.1 table 51820 priority 100"]),
    "full-with-mark": (["Address = 10.0.0.2/24", "FwMark = 5182"], [("0.0.0.0/0", "198.51.100.1:51820")], []),
    "table-number": (["Address = 10.0.0.2/24", "Table = 123"],
                     [("0.0.0.0/0, 10.0.0.0/24, 10.9.0.0/16", "198.51.100.1:51820")], []),
    "table-off": (["Address = 10.0.0.2/24", "Table = off"], [("0.0.0.0/0, 10.9.0.0/16", "198.51.100.1:51820")], []),
    "mtu": (["Address = 10.0.0.2/24", "MTU = 1300"], [("10.9.0.0/16", "198.51.100.1:51820")], []),
    "mtu-of-route": (["Address = 10.0.0.2/24"], [("10.9.0.0/16", "203.0.113.9:51820")],
                     ["ip route add 203.0.113.0/24 via 192.168.1.2 mtu 1312"]),
    "mtu-without-endpoint": (["Address = 10.0.0.2/24"], [("10.9.0.0/16", None)], []),
    "mtu-without-anything": (["Address = 10.0.0.2/24"], [("10.9.0.0/16", None)], ["ip route del default"]),
    "hooks": (["Address = 10.0.0.2/24", "PreUp = true pre %i", "PostUp = true post %i", "PreDown = true down",
               "PostDown = true %i is gone"], [("10.9.0.0/16", "198.51.100.1:51820")], []),
    "addresses": (["Address = 10.0.0.2/31, 10.0.0.9/32", "Address = 10.0.0.10/28, 0.1.2.3/8, fd00::2/127"],
                  [("10.0.0.0/29, 10.0.0.2/31, fd00::2/127, 0.0.0.0/8", "198.51.100.1:51820")], []),
}


def run(command, **more):
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True, **more)


def prefix(text, family):
    width = 32 if family == "v4" else 128
    if text == "default":
        return "0.0.0.0/0" if family == "v4" else "::/0"
    return text if "/" in text else f"{text}/{width}"


PROTOCOLS = {"kernel": 2, "boot": 3, "static": 4, "ra": 9, "dhcp": 16}
SCOPES = {"global": 0, "link": 253, "host": 254}
TABLES = {"main": 254, "default": 253, "local": 255}


def routes():
    found = []
    for family, flag in (("v4", "-4"), ("v6", "-6")):
        for route in json.loads(run(f"ip -j -d {flag} route show table all").stdout or "[]"):
            if route.get("table") == "local" or route.get("type", "unicast") != "unicast":
                continue
            metrics = route.get("metrics", [{}])[0]
            found.append({
                "to": prefix(route["dst"], family), "device": route.get("dev"), "via": route.get("gateway"),
                "table": TABLES.get(route.get("table", "main")) or int(route["table"]),
                "metric": route.get("metric", 0), "protocol": PROTOCOLS[route["protocol"]],
                "scope": SCOPES[route["scope"]], "source": route.get("prefsrc"), "mtu": metrics.get("mtu", 0)})
    return found


def rules():
    found = []
    for family, flag in (("v4", "-4"), ("v6", "-6")):
        for rule in json.loads(run(f"ip -j -d {flag} rule show").stdout):
            suppressed = rule.get("suppress_prefixlen")
            found.append({
                "family": family, "priority": rule["priority"], "not": "not" in rule,
                "fwmark": int(rule["fwmark"], 16) if "fwmark" in rule else None, "to": rule.get("dst"),
                "table": TABLES.get(rule["table"]) or int(rule["table"]), "suppress_prefixlength": suppressed,
                "protocol": PROTOCOLS.get(rule.get("protocol"), 0)})
    return found


def state():
    links = [{"name": link["ifname"], "index": link["ifindex"], "mtu": link["mtu"], "up": "UP" in link["flags"],
              "wireguard": False,
              "addresses": [f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"] if a["scope"] != "link"]}
             for link in json.loads(run("ip -j addr").stdout)]
    # The fe80 address of a TUN device is not wg-quick's doing, and a kernel's tunnel has none.
    kept = [route for route in routes() if route["to"] != "fe80::/64"]
    mark = run("sysctl -n net.ipv4.conf.all.src_valid_mark").stdout.strip()
    tables = [line.removeprefix("table ") for line in run("nft list tables").stdout.splitlines()]
    return {"links": links, "routes": kept, "rules": rules(), "disabled_families": [],
            "sysctls": {"net.ipv4.conf.all.src_valid_mark": mark}, "dns": {"resolvconf": {"prefix": ""}},
            "nftables": True, "firewall_tables": tables}


def echo(text):
    return [line[4:] for line in text.splitlines() if line.startswith("[#] ")]


def record(name):
    interface, peers, before = CASES[name]
    run("ip link set lo up; ip link add eth0 type veth peer name far; ip link set far up; "
        "sysctl -q -w net.ipv6.conf.eth0.accept_dad=0; ip link set eth0 mtu 1450 up; ip addr add 192.168.1.5/24 dev eth0; "
        "ip -6 addr add 2001:db8:1::5/64 dev eth0 nodad; ip route add default via 192.168.1.1; "
        "ip -6 route add default via 2001:db8:1::1; ip route add 2001:db8::/48 via 2001:db8:1::2 mtu 1380; "
        "sysctl -q -w net.ipv6.conf.default.accept_dad=0; sysctl -q -w net.ipv6.conf.default.addr_gen_mode=1; "
        "mount -t tmpfs t /run; mkdir -p /run/wireguard /run/case")
    with open("/run/case/resolvconf", "w") as stub:
        stub.write("#!/bin/sh\ncat >/dev/null 2>&1 </dev/stdin || true\n")
    os.chmod("/run/case/resolvconf", 0o755)
    for command in before:
        run(command)
    text = "[Interface]\nPrivateKey = " + KEY + "\n" + "\n".join(interface) + "\n"
    for key, (allowed, endpoint) in zip(PEERS, peers):
        text += f"[Peer]\nPublicKey = {key}\nAllowedIPs = {allowed}\n" + (f"Endpoint = {endpoint}\n" if endpoint else "")
    with open("/run/case/wg0.conf", "w", opener=lambda p, f: os.open(p, f, 0o600)) as file:
        file.write(text)
    env = dict(os.environ, PATH="/run/case:" + os.environ["PATH"])
    fresh = state()
    up = run("wg-quick up /run/case/wg0.conf", env=env).stderr
    after = state()
    down = run("wg-quick down /run/case/wg0.conf", env=env).stderr
    recorded = {"spec": spec(interface, peers), "hooks": {"commands": hooks(interface)}, "before": fresh,
                "after": after, "down": state(), "echo_up": echo(up), "echo_down": echo(down)}
    json.dump(recorded, sys.stdout, indent=1)


def values(interface, key):
    return [line.split("=", 1)[1].strip() for line in interface if line.split("=")[0].strip() == key]


def split(lines):
    return [item.strip() for line in lines for item in line.split(",")]


def spec(interface, peers):
    dns = split(values(interface, "DNS"))
    is_server = lambda text: ":" in text or text.replace(".", "").isdigit()
    one = lambda key: (values(interface, key) or [None])[0]
    table = one("Table") or "auto"
    return {"interface": "wg0", "addresses": split(values(interface, "Address")),
            "dns": {"servers": [d for d in dns if is_server(d)], "search": [d for d in dns if not is_server(d)]},
            "mtu": int(one("MTU")) if one("MTU") else None,
            "table": {"number": int(table)} if table.isdigit() else table,
            "fwmark": int(one("FwMark")) if one("FwMark") else None,
            "allowed_ips": split(allowed for allowed, _ in peers),
            "endpoints": [endpoint for _, endpoint in peers if endpoint], "route_conflict": "skip",
            "kill_switch": False, "excluded": [], "exclude_lan": False}


def hooks(interface):
    keys = ("PreUp", "PostUp", "PreDown", "PostDown")
    return [[key, value.replace("%i", "wg0")] for key in keys for value in values(interface, key)]


if len(sys.argv) == 2:
    record(sys.argv[1])
else:
    for case in CASES:
        made = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", sys.executable,
                               os.path.abspath(__file__), case], capture_output=True, text=True)
        if made.returncode != 0:
            sys.exit(f"{case}: {made.stderr}")
        with open(os.path.join(FOLDER, case + ".json"), "w") as out:
            out.write(made.stdout + "\n")
