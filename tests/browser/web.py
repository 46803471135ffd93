"""What web.sh does in the browser. Arguments: the page's address. Environment: FOLDER with tokens, SHOTS for
screenshots."""

import os
import signal
import subprocess
import sys

from browser import Browser

page, folder, shots = sys.argv[1], os.environ["FOLDER"], os.environ["SHOTS"]


def expect(what, is_so):
    print(f"--- {what}: {'yes' if is_so else 'NO'}", flush=True)
    if not is_so:
        sys.exit(1)


def log_in(browser, name):
    browser.go(f"{page}/login")
    browser.fill("input[name=token]", open(f"{folder}/{name}").read().strip())
    browser.click(".login button")


def see(browser, name):
    """Screenshots at three widths and in two themes, and faults of layout and contrast."""
    for width in (360, 1280, 3840):
        for scheme in ("light", "dark"):
            browser.look(width, 2160 if width == 3840 else 1000, scheme)
            browser.screenshot(f"{shots}/{name}-{width}-{scheme}.png", whole=width == 360)
            faults = browser.run(EXAMINE)
            expect(f"{name} at {width} {scheme} is readable {faults or ''}", not faults)
    browser.look(1280)


# As tests/browser/page.sh examines the lab's page: nothing is cut off, and contrast is at least that of WCAG 2.2 AA.
EXAMINE = """(() => {
const faults = [];
const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const colour = text => text.match(/[\\d.]+/g).map(Number);
const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const ground = element => {
  for (; element; element = element.parentElement) {
    const painted = colour(getComputedStyle(element).backgroundColor);
    if (painted[3] !== 0) return painted;
  }
  return [255, 255, 255];
};
for (const element of document.body.querySelectorAll('*:not(script, title)')) {
  if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
  const style = getComputedStyle(element);
  const ink = luminance(colour(element.closest('svg') ? style.fill : style.color)), paper = luminance(ground(element));
  const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  const name = element.textContent.trim().slice(0, 40);
  if (contrast < 4.5) faults.push('contrast ' + contrast.toFixed(2) + ': ' + name);
  const box = element.getBoundingClientRect();
  if (box.width && box.right > innerWidth + 1 && !element.closest('.skip')) faults.push('cut off: ' + name);
  if (box.width && parseFloat(style.fontSize) < 11) faults.push('small: ' + name);
}
if (document.documentElement.scrollWidth > innerWidth) faults.push('wider than the window');
for (const control of document.querySelectorAll('input:not([type=hidden]), button, a'))
  if (!control.hidden && !(control.textContent.trim() || control.labels?.length || control.ariaLabel))
    faults.push('without a name: ' + control.outerHTML.slice(0, 80));
for (const fetched of performance.getEntriesByType('resource'))
  if (new URL(fetched.name).origin !== location.origin) faults.push('fetched ' + fetched.name);
return faults.slice(0, 5).join('; ');
})()"""

with Browser(folder) as browser:
    browser.look(1280)

    # Nobody gets in.
    for path in ("/", "/findings", "/tunnels/wg1", "/tunnels/wg1/add", "/nothing"):
        browser.call("Page.navigate", url=page + path)
        browser.until("location.pathname === '/login' && document.readyState === 'complete'")
    see(browser, "login")
    browser.fill("input[name=token]", "a guess")
    browser.click(".login button")
    expect("a guess is refused", "no token" in browser.run("document.body.innerText"))

    # Who may only look.
    browser.until("new Promise(done => setTimeout(() => done(true), 2300))")  # the wait after a guess
    log_in(browser, "reader")
    browser.until("location.pathname === '/'")
    expect("the tunnel is there", "wg1" in browser.run("document.body.innerText"))
    browser.go(f"{page}/tunnels/wg1")
    expect("a reader is offered no change", not browser.run("document.querySelector('.main')"))
    browser.click("header form button")
    expect("logged out", browser.run("location.pathname") == "/login")
    browser.call("Page.navigate", url=f"{page}/tunnels/wg1")
    browser.until("location.pathname === '/login' && document.readyState === 'complete'")

    # Hostile names.
    log_in(browser, "writer")
    browser.until("location.pathname === '/'")
    browser.go(f"{page}/tunnels/wg1")
    hostile = "<script>document.title='owned'</script>"
    expect("a hostile name is a text", hostile in browser.run("document.body.innerText"))
    ran = "!document.title.startsWith('wg1 ') || document.images.length > 0"
    expect("nothing of it ran", not browser.run(ran))
    names = "[...document.querySelectorAll('tbody th')].map(name => name.innerText)"
    browser.run(f"[...document.querySelectorAll('tbody th a')].find(link => link.innerText === 'laptop').id = 'laptop'")
    browser.click("#laptop")
    expect("a hostile note is a text", '"><script>alert(2)</script>' in browser.run("document.body.innerText"))
    see(browser, "peer")

    # A client whose time is over, and a server without clients.
    browser.go(f"{page}/tunnels/wg1?filter=guest")
    browser.click("tbody th a")
    expect("it is expired", "expired" in browser.run("document.getElementById('peer').innerText"))
    see(browser, "expired")
    browser.go(f"{page}/tunnels/wg5")
    expect("there is nobody", "0 peers" in browser.run("document.getElementById('peers').innerText"))
    see(browser, "empty")

    # A live plot.
    browser.go(f"{page}/")
    before = browser.run("document.querySelector('svg.plot').outerHTML")
    load = subprocess.Popen(["iperf3", "-c", "10.71.8.2", "-t", "16", "-b", "200M"], stdout=subprocess.DEVNULL)
    browser.until("/sent.*[0-9.]+ [MG]bit/.test(document.querySelector('.rates').innerText)", 10)
    rates = browser.run("document.querySelector('.rates').innerText")
    browser.until(f"document.querySelector('svg.plot').outerHTML !== {before!r}", 20)
    first = browser.run("document.querySelector('path.line.c1').getAttribute('d')")
    browser.until(f"document.querySelector('path.line.c1').getAttribute('d') !== {first!r}", 20)
    expect(f"the plot moves while {rates!r}", True)
    see(browser, "overview")
    browser.go(f"{page}/tunnels/wg1?sort=rate")
    browser.until("/[0-9.]+ [kMG]bit/.test(document.querySelector('tbody tr td[data-label=Sending]').innerText)", 10)
    expect("the busy peer is first", browser.run(names)[0] == "laptop")
    see(browser, "tunnel")
    load.kill()

    # A new client.
    browser.click("a.main")
    see(browser, "add")
    browser.fill("input[name=name]", "laptop")
    browser.click("main .main")
    expect("a name that is taken is refused", "already" in browser.run("document.querySelector('.refusal').innerText"))
    see(browser, "form-error")
    expect("what was typed is still there", browser.run("document.querySelector('input[name=name]').value") == "laptop")
    browser.fill("input[name=name]", "phone")
    browser.fill("input[name=expires]", "30d")
    browser.fill("input[name=quota]", "50G")
    browser.run("document.querySelector('input[name=keep]').click()")
    browser.click("main .main")
    text = browser.run("document.getElementById('file').textContent")
    expect("its file is shown", "PrivateKey = " in text and "Endpoint = 192.0.2.1:50001" in text)
    notes = browser.run("[...document.querySelectorAll('.notice')].map(note => note.innerText).join()")
    expect("what it loses is said", "IPv6 traffic of clients goes past the tunnel" in notes and "no name server is named" in notes)
    see(browser, "added")

    def read_code():
        browser.screenshot(f"{folder}/code.png")
        read = subprocess.run(["zbarimg", "--quiet", "--raw", f"{folder}/code.png"], capture_output=True, text=True)
        return read.stdout.strip()

    expect("its QR code reads as its file", read_code() == text.strip())
    browser.go(f"{page}/tunnels/wg1?filter=phone")
    expect("it is found", browser.run(names) == ["phone"])
    browser.click("tbody th a")
    browser.click("a[href$='/code']")
    expect("its QR code is there again", read_code() == text.strip())
    see(browser, "code")
    browser.click(".crumbs a:last-child")
    browser.click("form[action$='/disable'] button")
    expect("it is disabled", "disabled" in browser.run("document.getElementById('peer').innerText"))
    browser.click("form[action$='/enable'] button")
    browser.fill("form[action$='/rename'] input[name=name]", "mobile")
    browser.click("form[action$='/rename'] button")
    expect("it has another name", browser.run("document.querySelector('h1').innerText") == "mobile")
    browser.fill("form[action$='/set'] input[name=quota]", "nonsense")
    browser.click("form[action$='/set'] button")
    expect("a quota that is none is refused", browser.run("document.querySelector('.refusal').innerText"))
    browser.fill("form[action$='/rename'] input[name=name]", "phone")
    browser.click("form[action$='/rename'] button")

    # Findings, and what does not exist.
    subprocess.run(["ip", "link", "set", "wg5", "down"], check=True)
    browser.click("header nav a[href='/findings']")
    errors = "[...document.querySelectorAll('.finding.error')].map(finding => finding.innerText).join()"
    expect("an error of the doctor's", "wg5" in browser.run(errors))
    see(browser, "findings")

    browser.click("header nav a[href='/sessions']")
    expect("this session is in the list", "(this one)" in browser.run("document.body.innerText"))
    see(browser, "sessions")
    browser.go(f"{page}/tunnels/none")
    see(browser, "error")

    # The helper is gone: the page says so by itself, and what to do.
    browser.go(f"{page}/tunnels/wg1")
    os.kill(int(os.environ["HELPER_PID"]), signal.SIGTERM)
    browser.until("!document.getElementById('stale').hidden", 60)
    browser.go(f"{page}/tunnels/wg1")
    expect("the remedy", "restart linerate-web-helper.socket" in browser.run("document.querySelector('main').innerText"))
    see(browser, "no-helper")
    expect(f"nothing was refused by the policy {browser.faults or ''}", not browser.faults)
