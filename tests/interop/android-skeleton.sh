#!/usr/bin/env bash
# The skeleton of an Android app is Kotlin and XML, and calls what the library's class has.
source "$(dirname "$0")/../netns/lib.sh"
parser=$REPO/target/peers/bin/kotlin-syntax
android=$REPO/packaging/android
[[ -x $parser ]] || skip "no parser for Kotlin (tests/interop/prepare kotlin-syntax)"

"$parser" "$android"/*.kt "$android"/*.kts || fail "the skeleton is not Kotlin"
echo 'class Broken { fun broken( = 1 }' >"$WORK/Broken.kt"
expect_failure "a file that is not Kotlin" "$parser" "$WORK/Broken.kt"
python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$android/AndroidManifest.xml" ||
  fail "the manifest is no XML"
expect_at_most "lines of the service" 200 "$(wc -l <"$android/TunnelService.kt")"
for call in $(grep -o 'Native\.[a-z]\w*(' "$android/TunnelService.kt" | sort -u); do
  grep -q "native .* ${call#Native.}" "$android/Native.java" || fail "Native has no ${call#Native.}"
done
