#!/usr/bin/env bash
# timeout: 120
# A fleet's store that takes only clients with a certificate, and users with a password: who has neither is told so.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/fleet.bash"
unset LINERATE_USER WG_QUICK_BACKEND
need openssl

gateways g1 g2
cd "$WORK"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca 2>/dev/null
certificate() { # NAME SUBJECT-ALTERNATIVE-NAME SUBJECT
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" -subj "$3" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -out "$1.pem" -days 2 2>/dev/null \
    -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$2")
}
certificate store IP:10.0.0.1 /CN=store
# Where there are users, etcd's JSON gateway takes no certificate with a common name: elsewhere that is the user.
certificate gateway DNS:gateway /O=gateway
certificate named DNS:named /CN=named
STORE=https://10.0.0.1:2379
OF_ETCD=(--cert-file store.pem --key-file store.key --client-cert-auth --trusted-ca-file ca.pem)
OF_ETCDCTL=(--cacert ca.pem --cert gateway.pem --key gateway.key)
etcd_up
etcd_ctl user add root:none >/dev/null
etcd_ctl user grant-role root root >/dev/null
etcd_ctl user add fleet:secret >/dev/null
etcd_ctl role add fleet >/dev/null
etcd_ctl role grant-permission fleet --prefix=true readwrite /linerate/berlin/ >/dev/null
etcd_ctl user grant-role fleet fleet >/dev/null
etcd_ctl auth enable >/dev/null
OF_ETCDCTL+=(--user root:none)
echo secret >password
echo wrong >wrong
chmod 600 password wrong

key fleet
tunnel_file g1
tunnel_file g2
gw g1 "$LINERATE" up wg0 >>"$SCENARIO_LOGS/up.log" 2>&1
gw g2 "$LINERATE" up wg0 >>"$SCENARIO_LOGS/up.log" 2>&1
init() { fleet g1 init berlin wg0 --address 192.0.2.100:51820 --mesh-endpoint 10.0.0.11:51821 --store $STORE "$@"; }
why() { tail -n 1 "$SCENARIO_LOGS/fleet.log" | grep -q -- "$1" || fail "expected '$1', saw: $(tail -n 1 "$SCENARIO_LOGS/fleet.log")"; }
own=(--store-ca "$WORK/ca.pem" --store-cert "$WORK/gateway.pem" --store-key "$WORK/gateway.key")
expect_failure "https without an authority" init
why "add --store-ca"
expect_failure "no certificate" init --store-ca "$WORK/ca.pem"
why "does not answer"
expect_failure "another authority" init --store-ca "$WORK/named.pem" "${own[@]:2}"
why "does not answer"
expect_failure "a certificate with a common name" init --store-ca "$WORK/ca.pem" --store-cert "$WORK/named.pem" \
  --store-key "$WORK/named.key" --store-user fleet --store-password "$WORK/password"
why "without a common name"
expect_failure "no user" init "${own[@]}"
why "refuses\|does not let us in"
expect_failure "a wrong password" init "${own[@]}" --store-user fleet --store-password "$WORK/wrong"
why "password"
init "${own[@]}" --store-user fleet --store-password "$WORK/password" || fail "init: $(tail -n 3 "$SCENARIO_LOGS/fleet.log")"
fleet g2 join berlin wg0 --mesh-endpoint 10.0.0.12:51821 --store $STORE "${own[@]}" --store-user fleet --store-password "$WORK/password" ||
  fail "join: $(tail -n 3 "$SCENARIO_LOGS/fleet.log")"
cd /
for g in g1 g2; do service_up $g; done
for g in g1 g2; do wait_for 10 "the service of $g to follow" is_said $g .store_is_seen true; done
client_add g1 laptop || fail "client add: $(tail -n 3 "$SCENARIO_LOGS/client.log")"
wait_for 10 "the client on g2" has_peer g2 "$(client_key laptop)"
