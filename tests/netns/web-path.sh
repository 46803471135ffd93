#!/usr/bin/env bash
# The page below a path of nginx: links, redirects, forms and the cookie lead there, whether or not nginx takes the path away.
source "$(dirname "$0")/lib.sh"
need nginx openssl
source "$(dirname "$0")/tunnel-files.bash"
source "$(dirname "$0")/web.bash"

hosts_with_files
tunnel_file wg1 10.9.0.2/32 "ListenPort = 50001" "#! PublicEndpoint = 192.0.2.1"
good linerate up wg1
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=www.example.org \
  -addext subjectAltName=DNS:www.example.org -keyout "$WORK/key.pem" -out "$WORK/certificate.pem" 2>/dev/null
mkdir "$WORK/www"
echo "another page" >"$WORK/www/index.html"
cat >"$WORK/nginx.conf" <<CONF
daemon off;
user root;
pid $WORK/nginx.pid;
error_log $SCENARIO_LOGS/nginx.log;
events {}
http {
  access_log off;
  proxy_set_header Host \$host;
  proxy_set_header X-Forwarded-For \$remote_addr;
  proxy_set_header X-Forwarded-Proto \$scheme;
  server {
    listen 443 ssl;
    server_name www.example.org;
    ssl_certificate $WORK/certificate.pem;
    ssl_certificate_key $WORK/key.pem;
    root $WORK/www;
    location /wg/ { proxy_pass http://127.0.0.1:7789; }
    location /taken/wg/ { proxy_pass http://127.0.0.1:7790/; }
  }
}
CONF
ip netns exec h1 nginx -c "$WORK/nginx.conf" >>"$SCENARIO_LOGS/nginx.log" 2>&1 &
wait_for 10 "nginx" listens h1 443
helper --write
serve --behind-proxy 127.0.0.1 --name www.example.org --path /wg/
wait_for 20 "the page" listens h1 7789
serve --behind-proxy 127.0.0.1 --name www.example.org --path /taken/wg --listen 127.0.0.1:7790
wait_for 20 "the other" listens h1 7790

ask() { on h1 curl -sS --cacert "$WORK/certificate.pem" --connect-to www.example.org:443:127.0.0.1:443 -b "$WORK/jar" -c "$WORK/jar" "$@"; }
for path in /wg /taken/wg; do
  page=https://www.example.org$path
  rm -f "$WORK/jar"
  expect "$path: to the log-in" "303 $page/login" "$(ask -o /dev/null -w '%{http_code} %{redirect_url}' "$page/")"
  expect "$path: logged in" "303 $page/" "$(ask -o /dev/null -w '%{http_code} %{redirect_url}' -e "$page/login" -H "Origin: https://www.example.org" -d "token=$(token)" "$page/login")"
  expect "$path: the cookie" "$path/ TRUE __Secure-linerate-session" "$(awk '/linerate-session/ { print $3, $4, $6 }' "$WORK/jar")"
  # All that pages lead to is there, and is this page's.
  on h1 python3 - "$path" "$WORK/certificate.pem" "$WORK/jar" <<'END' || fail "$path: a link leads elsewhere"
import html, http.client, re, ssl, sys
from urllib.parse import urljoin
path, certificate, jar = sys.argv[1:]
cookie = "; ".join("=".join(line.split("\t")[5:7]) for line in open(jar).read().splitlines() if line.count("\t") == 6)
tls = ssl.create_default_context(cafile=certificate)
def get(url):
    connection = http.client.HTTPSConnection("www.example.org", context=tls)
    connection._create_connection = lambda *_: __import__("socket").create_connection(("127.0.0.1", 443))
    connection.request("GET", url, headers={"Cookie": cookie})
    answer = connection.getresponse()
    text = answer.read().decode()
    is_page = answer.headers.get("Content-Type", "").startswith("text/html")
    return answer.status, answer.headers.get("Location", ""), text if is_page else ""
left, seen = [path + "/"], set()
while left:
    url = left.pop()
    if url in seen:
        continue
    seen.add(url)
    status, location, text = get(url)
    is_form = url.rsplit("/", 1)[1] in ("logout", "enable", "disable", "renew", "rename", "set")
    if not (status == 200 or (status == 404 and is_form)) and not location.startswith(path + "/"):
        sys.exit(f"{url}: {status} {location}")
    for link in re.findall(r'(?:href|action|src)="([^"#]+)', text):
        link = urljoin(url, html.unescape(link))
        if not link.startswith(path + "/"):
            sys.exit(f"{url} leads to {link}")
        left.append(link)
print(len(seen), "pages and files")
if len(seen) < 10:
    sys.exit(f"only {sorted(seen)}")
END
  form=$(ask "$page/" | grep -oP 'name="form" value="\K[0-9a-f]+' | head -n 1)
  expect "$path: a client is added" 200 "$(ask -o "$WORK/page" -w '%{http_code}' -H "Origin: https://www.example.org" -d "form=$form&name=phone-${path//\//}" "$page/tunnels/wg1/add")"
  grep -q "# Name = phone-${path//\//}" /etc/wireguard/wg1.conf || fail "there is no client"
  expect "$path: logged out" "303 $page/login" "$(ask -o /dev/null -w '%{http_code} %{redirect_url}' -H "Origin: https://www.example.org" -d "form=$form" "$page/logout")"
done
expect "the other page of the host" "another page" "$(ask https://www.example.org/)"
expect_failure "a path that the page has itself" "$LINERATE_WEB" serve --state "$WORK/state" --path /tunnels/
