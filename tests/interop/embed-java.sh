#!/usr/bin/env bash
# timeout: 180
# A Java program with tunnels inside, by the names of wireguard-android's library and by our own: two tunnels that speak
# to each other, a thousand times, and neither threads nor descriptors nor memory are left.
source "$(dirname "$0")/../netns/lib.sh"
need cc javac
rounds=${ROUNDS:-1000}

home=$(dirname "$(dirname "$(readlink -f "$(type -P javac)")")")
cc -std=gnu11 -Wall -Wextra -Werror -shared -fPIC -I "$home/include" -I "$home/include/linux" \
  "$REPO/tests/embed/descriptors.c" -o "$WORK/libdescriptors.so" || fail "cannot compile tests/embed/descriptors.c"
ln -s "$PROGRAMS/liblinerate.so" "$WORK/libwg-go.so"
javac -Xlint:all -Werror -d "$WORK/classes" "$REPO"/tests/embed/java/*.java "$REPO/packaging/android/Native.java" ||
  fail "cannot compile tests/embed/java"

host j ha hb
key a b
settings() { # OWN PORT PEER PORT ADDRESS
  printf '%s\n' "private_key=$(hex <"$WORK/$1.key")" "listen_port=$2" "public_key=$(public "$3" | hex)" \
    "endpoint=127.0.0.1:$4" "allowed_ip=$5/32" >"$WORK/$1.settings"
}
settings a 50001 b 50002 10.9.0.2
settings b 50002 a 50001 10.9.0.1

# The pools of the machine neither grow nor shrink, so that what grows is ours.
java=(java -Xcheck:jni -Xms64m -Xmx64m -XX:+AlwaysPreTouch -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$WORK/classes"
  "-Ddescriptors=$WORK/libdescriptors.so" "-Dwg-go=$WORK/libwg-go.so")
coproc JAVA { MALLOC_ARENA_MAX=1 exec ip netns exec j "${java[@]}" Embed embed "$WORK/a.settings" "$WORK/b.settings" "$rounds" \
  2>"$SCENARIO_LOGS/java.log"; }
pid=$JAVA_PID in=${JAVA[0]} out=${JAVA[1]}
read -r -t 30 made version ours <&"$in" || { cat "$SCENARIO_LOGS/java.log" && fail "no Java program"; }
expect "the versions" "made $ours" "$made $version"
wg_address ha wga 10.9.0.1/24
wg_address hb wgb 10.9.0.2/24
echo >&"$out"
read -r -t 150 ok grown resident took <&"$in" || { cat "$SCENARIO_LOGS/java.log" && fail "the Java program ended early"; }
expect "the Java program" ok "$ok"
wait "$pid"
note "$rounds times two tunnels in $took ms; $resident kB resident, of which $grown kB since the 200th time"
if grep -v 'meant to be thrown\|^\sat \|^Exception in\|WireGuard/GoBackend' "$SCENARIO_LOGS/java.log" | grep -i 'warning\|fatal'; then
  fail "the checks of -Xcheck:jni found something: java.log"
fi
# A tunnel has some 5 MB: one of hundreds that stayed would be seen, and 4 KB of each.
expect_at_most "kB of growth" $(((rounds - 200) * 4)) "$grown"
