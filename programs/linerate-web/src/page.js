// Keeps what is marked as live up to date: fetches the same page again and takes over these parts. The page can be read
// without it.
'use strict';

const every = 2000;

// Where the reader is, so that it is found again in what replaces it.
function place(element) {
  const tag = element.tagName.toLowerCase();
  const href = element.getAttribute('href');
  return element.id ? `#${CSS.escape(element.id)}` : href ? `${tag}[href="${CSS.escape(href)}"]` : null;
}

function replace(old, fresh) {
  const selection = getSelection();
  if (old.isEqualNode(fresh) || (!selection.isCollapsed && old.contains(selection.anchorNode))) return;
  const focus = old.contains(document.activeElement) ? place(document.activeElement) : null;
  const left = old.scrollLeft;
  old.replaceWith(fresh);
  fresh.scrollLeft = left;
  if (focus) fresh.querySelector(focus)?.focus({ preventScroll: true });
}

async function refresh() {
  if (document.hidden) return;
  const stale = document.getElementById('stale');
  try {
    const answer = await fetch(location.href, { credentials: 'same-origin', redirect: 'manual', cache: 'no-store' });
    if (answer.type === 'opaqueredirect') return location.reload(); // the session is over
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    for (const old of document.querySelectorAll('[data-live]')) {
      const fresh = page.getElementById(old.id);
      if (fresh) replace(old, document.adoptNode(fresh));
    }
    stale.hidden = true;
  } catch {
    stale.hidden = false;
  }
}

async function follow() {
  for (;;) {
    await new Promise(done => setTimeout(done, every));
    await refresh();
  }
}

// A file that is shown and is not on the server any more can be saved.
for (const button of document.querySelectorAll('button[data-save]')) {
  button.hidden = false;
  button.addEventListener('click', () => {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([document.getElementById('file').textContent], { type: 'text/plain' }));
    link.download = button.dataset.save;
    link.click();
    URL.revokeObjectURL(link.href);
  });
}

if (document.querySelector('[data-live]')) follow();
