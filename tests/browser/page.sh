#!/usr/bin/env bash
# heavy: a browser
# timeout: 120
# The lab's page in a browser: no label overlaps another, nothing is cut off, everything can be read, nothing is fetched.
#
# Environment:
#   LAB_RECORD   the record to make the page of; `cargo test -p linerate-lab --test page` leaves one
#   LAB_PAGE     a page that is made already
source "$(dirname "$0")/../netns/lib.sh"

browser=$(type -P chromium || type -P chromium-browser || type -P google-chrome) || skip "there is no chromium"
page=${LAB_PAGE:-$WORK/page.html}
if [[ -z ${LAB_PAGE:-} ]]; then
  record=${LAB_RECORD:-${CARGO_TARGET_DIR:-$REPO/target}/tmp/lab-record.json}
  [[ -r $record ]] || skip "there is no record $record (cargo test -p linerate-lab --test page, or set LAB_RECORD)"
  "$LINERATE" lab report "$record" --output "$page"
fi

# What the page's own elements say, once they are laid out; sent to the page around it.
examine=$(
  cat <<'SCRIPT'
<script>
addEventListener('load', () => {
for (const folded of document.querySelectorAll('details')) folded.open = true;
const lines = [];
const fault = (...words) => lines.push('fault: ' + words.join(' '));
const cut = text => text.textContent.trim().replace(/\s+/g, ' ').slice(0, 60);
const apart = (a, b) => a.right <= b.left + 0.5 || b.right <= a.left + 0.5 || a.bottom <= b.top + 0.5 || b.bottom <= a.top + 0.5;

let labels = 0;
const plots = document.querySelectorAll('svg');
for (const plot of plots) {
  const frame = plot.getBoundingClientRect(), name = plot.getAttribute('aria-label');
  const texts = [...plot.querySelectorAll('text')].map(text => [cut(text.firstChild), text.getBoundingClientRect()]);
  const shapes = [...plot.querySelectorAll('rect, path')].map(shape => shape.getBoundingClientRect());
  labels += texts.length;
  texts.forEach(([text, box], i) => {
    for (const [other, place] of texts.slice(0, i)) if (!apart(box, place)) fault('labels overlap:', text, 'and', other, 'in', name);
    if (shapes.some(shape => !apart(box, shape))) fault('a label lies on a bar or a marker:', text, 'in', name);
    if (box.left < frame.left - 0.5 || box.right > frame.right + 0.5 || box.top < frame.top - 0.5 || box.bottom > frame.bottom + 0.5)
      fault('a label leaves its plot:', text, 'in', name);
  });
}

// WCAG 2.2, relative luminance and contrast ratio.
const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const colour = text => text.match(/[\d.]+/g).map(Number);
const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const ground = element => {
  for (; element; element = element.parentElement) {
    const painted = colour(getComputedStyle(element).backgroundColor);
    if (painted[3] !== 0) return painted;
  }
  return [255, 255, 255];
};
let least = 21;
for (const element of document.body.querySelectorAll('*:not(script, title)')) {
  if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
  const style = getComputedStyle(element);
  const ink = luminance(colour(element.closest('svg') ? style.fill : style.color)), paper = luminance(ground(element));
  const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  least = Math.min(least, contrast);
  if (contrast < 4.5) fault('too little contrast:', contrast.toFixed(2), cut(element));
}

const wide = document.documentElement.scrollWidth;
if (wide > innerWidth) fault('the page is', wide, 'wide and the window', innerWidth);
for (const fetched of performance.getEntriesByType('resource')) fault('the page fetches', fetched.name);
const scheme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
lines.push(`examined: ${innerWidth} ${scheme} ${plots.length} plots, ${labels} labels, contrast at least ${least.toFixed(1)}`);
parent.postMessage(lines.join('\n'), '*');
});
</script>
SCRIPT
)
{ cat "$page" && printf '%s\n' "$examine"; } >"$WORK/examined.html"

# The page in a frame of a width, because the browser's own window is never narrower than 500.
framed() { # WIDTH
  cat <<HTML
<!DOCTYPE html><meta name="color-scheme" content="light dark">
<script>addEventListener('message', message => {
  const findings = document.createElement('pre');
  findings.textContent = 'findings\n' + message.data + '\n';
  document.body.append(findings);
})</script>
<iframe src="examined.html" style="width: $1px; height: 1000px; border: 0"></iframe>
HTML
}

# One look: WIDTH SCHEME BLINK'S-NUMBER-FOR-IT
look() {
  local found=$SCENARIO_LOGS/$1-$2.log first
  say "$1 pixels wide, $2"
  framed "$1" >"$WORK/framed.html"
  # An empty profile; no services of the browser's own that would ask for a network.
  timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --user-data-dir="$(mktemp -d -p "$WORK")" \
    --blink-settings=preferredColorScheme="$3" --window-size=1400,1100 --virtual-time-budget=5000 \
    --dump-dom "file://$WORK/framed.html" 2>"$SCENARIO_LOGS/browser.log" | sed -n '/<pre>findings/,/<\/pre>/p' >"$found"
  cat "$found"
  first=$(sed -n '/^fault: /{s///p;q}' "$found")
  [[ -z $first ]] || fail "$1 $2: $(grep -c '^fault: ' "$found") faults, the first: $first"
  grep -q "^examined: $1 $2 [1-9]" "$found" || fail "the browser did not examine the page at $1 $2 ($SCENARIO_LOGS/browser.log)"
}
look 1280 light 1
look 1280 dark 0
look 360 light 1
note "$(sed -n 's/^examined: //p' "$SCENARIO_LOGS"/*-*.log | paste -sd ';')"
