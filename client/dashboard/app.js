/*
 * app: the shell around the pages.
 *
 * The address after # says which page is shown. A page is left before the next one begins, and one
 * that comes too late shows nothing. On a new page the focus goes to its heading and its title is
 * said.
 */
import * as api from './api.js';
import * as feed from './feed.js';
import * as session from './session.js';
import { el, icon, text } from './parts/dom.js';
import { errorNotice } from './parts/controls.js';
import * as draft from './parts/draft.js';
import { announce, setTitle } from './parts/page.js';
import * as transfer from './parts/transfer.js';
import { showTransfers } from './parts/transferbar.js';

const routes = [
    [/^\/?$/, 'home', []],
    [/^\/new$/, 'new', []],
    [/^\/jobs\/([^/]+)$/, 'job', ['id']],
    [/^\/models$/, 'models', []],
    [/^\/models\/(.+)$/, 'models', ['id']],
    [/^\/settings$/, 'settings', []],
    [/^\/signin$/, 'signin', []],
];

const main = document.getElementById('main');
let leave = null; /* its `update`, where it has one, takes another query of the same page */
let shownPath = null;
let turn = 0;
let isUnanswered = false; /* the page could not be shown for want of an answer */

/* What stands in an address, or null where nothing that it could stand for. */
function plain(part) {
    try {
        return decodeURIComponent(part);
    } catch (e) {
        return null;
    }
}

const pathOf = (hash) => hash.slice(1).split('?', 1)[0] || '/';

function readAddress() {
    const [path, query = ''] = (location.hash.slice(1) || '/').split('?', 2);
    for (const [pattern, page, names] of routes) {
        const match = path.match(pattern);
        if (match) {
            const params = { query: new URLSearchParams(query) };
            names.forEach((name, i) => { params[name] = plain(match[i + 1]); });
            return Object.values(params).includes(null) ? null : { page, params };
        }
    }
    return null;
}

function markPage(page) {
    for (const link of document.querySelectorAll('.nav a')) {
        const current = link.dataset.page === page ||
            (page === 'job' && link.dataset.page === 'home');
        if (current)
            link.setAttribute('aria-current', 'page');
        else
            link.removeAttribute('aria-current');
    }
    document.body.dataset.page = page || 'none';
}

function showMissing() {
    setTitle('No such page');
    main.replaceChildren(el('h1', { tabindex: -1 }, 'No such page'),
        el('p', { class: 'lead' }, 'This address leads nowhere.'),
        el('p', {}, el('a', { class: 'button button-primary', href: '#/' },
            'Go to the home page')));
}

/* All are fetched while there is an answer (see begin): each page opens then also without one. */
async function load(page) {
    try {
        return await import(`./pages/${page}.js`);
    } catch (error) {
        if (!(error instanceof TypeError))
            throw error;
        throw new api.ApiError(0, { message: 'needled does not answer', code: 'unreachable' });
    }
}

function showError(error) {
    isUnanswered = error.status === 0;
    if (!main.querySelector('h1'))
        main.append(el('h1', { tabindex: -1 }, 'This page could not be shown'));
    main.append(errorNotice(error,
        el('button', { class: 'button', type: 'button', onclick: () => show(false) },
        icon('retry'), 'Try again')));
}

function leavePage() {
    const f = leave;
    leave = null;
    try {
        if (f)
            f();
    } catch (e) {
        console.error(e);
    }
}

async function show(isFirst) {
    const mine = ++turn;
    const address = readAddress();

    leavePage();
    isUnanswered = false;
    shownPath = pathOf(location.hash);
    main.replaceChildren();
    markPage(address && address.page);
    if (!address) {
        showMissing();
        return;
    }
    /* Each load has its own element: a page that comes late writes where nobody looks. */
    const place = el('div', { class: `page page-${address.page}` });
    main.append(place);
    try {
        const module = await load(address.page);
        if (mine !== turn)
            return;
        const ending = await module.show(place, address.params);
        if (mine !== turn) {
            if (ending)
                ending();
            return;
        }
        leave = ending || null;
    } catch (error) {
        if (mine !== turn || error.status === 401)
            return;
        console.warn(error.message);
        showError(error);
    }
    if (!isFirst)
        arrive();
}

function arrive() {
    const heading = main.querySelector('h1');
    window.scrollTo(0, 0);
    if (heading && !main.contains(document.activeElement)) {
        heading.tabIndex = -1;
        heading.focus({ preventScroll: true });
    }
    announce(document.title);
}

/* ---- the connection -------------------------------------------------------------------------- */

const connectionTexts = {
    connecting: 'Connecting', live: 'Live', polling: 'Every 2 s', gone: 'No answer',
    away: 'Waiting', 'signed-out': 'Signed out',
};
const connectionHelp = {
    connecting: 'Connecting to needled', live: 'Events come as they happen',
    polling: 'No stream is free: looking every 2 seconds', gone: 'needled does not answer',
    away: 'The page was hidden', 'signed-out': 'Sign in to see events',
};
let wasGone = false;
let counting = null;

function showGone(retryAt) {
    const banner = document.getElementById('banner');
    const seconds = el('span', { class: 'num' });
    const count = () => {
        const left = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
        text(seconds, left > 0 ? `Trying again in ${left} s.` : 'Trying again …');
    };
    clearInterval(counting);
    if (!wasGone) {
        banner.replaceChildren(icon('warn'),
            el('p', {}, el('strong', {}, 'needled does not answer.'),
                ' What you see is as it was. The jobs go on where they were when it is back. ',
                el('span', { class: 'banner-wait', 'aria-hidden': 'true' })),
            el('button', { class: 'button', type: 'button', onclick: () => feed.retryNow() },
                'Try now'));
        banner.hidden = false;
        banner.dataset.kind = 'gone';
    }
    banner.querySelector('.banner-wait').replaceChildren(seconds);
    count();
    counting = setInterval(count, 500);
    wasGone = true;
}

function showBack() {
    const banner = document.getElementById('banner');
    clearInterval(counting);
    wasGone = false;
    banner.hidden = true;
    banner.replaceChildren();
    announce('needled answers again.');
    if (isUnanswered)
        show(false);
}

function onConnection(state, retryAt) {
    const mark = document.getElementById('connection');
    mark.dataset.state = state;
    mark.title = connectionHelp[state];
    text(mark.querySelector('.connection-text'), connectionTexts[state]);
    if (state === 'gone')
        showGone(retryAt);
    else if (wasGone)
        showBack();
}

function onUnauthorized() {
    const here = location.hash || '#/';
    if (here.startsWith('#/signin'))
        return;
    feed.stop();
    location.replace(`#/signin?next=${encodeURIComponent(here)}`);
}

/* ---- light and dark -------------------------------------------------------------------------- */

const themes = [['auto', 'as the system'], ['light', 'light'], ['dark', 'dark']];
const themeIcons = { auto: 'auto', light: 'sun', dark: 'moon' };

function setTheme(name) {
    const button = document.getElementById('theme');
    if (name === 'auto')
        delete document.documentElement.dataset.theme;
    else
        document.documentElement.dataset.theme = name;
    button.replaceChildren(icon(themeIcons[name]));
    button.setAttribute('aria-label', `Theme: ${themes.find(([id]) => id === name)[1]}`);
    button.title = button.getAttribute('aria-label');
    window.dispatchEvent(new Event('needled:theme'));
}

function storedTheme() {
    return document.documentElement.dataset.theme || 'auto';
}

function nextTheme() {
    const at = themes.findIndex(([id]) => id === storedTheme());
    const [name, words] = themes[(at + 1) % themes.length];
    try {
        if (name === 'auto')
            localStorage.removeItem('needled.theme');
        else
            localStorage.setItem('needled.theme', name);
    } catch (e) {
        /* storage is forbidden: it holds for this page */
    }
    setTheme(name);
    announce(`Theme: ${words}`);
}

/* ---- start ----------------------------------------------------------------------------------- */

function onAddress() {
    /* "Skip to the content" is no page. */
    if (location.hash === '#main') {
        history.replaceState(null, '', '#/');
        main.focus();
        return;
    }
    if (!location.hash.startsWith('#/signin'))
        feed.start();
    if (leave && leave.update && pathOf(location.hash) === shownPath)
        leave.update(readAddress().params);
    else
        show(false);
}

/* ---- the session --------------------------------------------------------------------------- */

/* Signed out, here or in another tab: what was shown is gone at once, not at the next call. */
function onEnded(isHere) {
    const here = location.hash || '#/';

    feed.stop();
    transfer.cancel();
    transfer.forget();
    draft.dropAll();
    if (here.startsWith('#/signin'))
        return;
    turn++; /* what is on its way shows nothing */
    leavePage();
    document.querySelectorAll('dialog').forEach((dialog) => dialog.close());
    main.replaceChildren();
    setTitle('');
    location.replace(isHere ? '#/signin' : `#/signin?next=${encodeURIComponent(here)}`);
}

/* Another tab signed in: as somebody else this one shows something else. */
async function onBegun(isHere) {
    const before = session.keyId();
    if (isHere || location.hash.startsWith('#/signin'))
        return;
    const who = await session.read().catch(() => null);
    if (who && who.key_id !== before)
        show(false);
}

/* A page that was kept for coming back may have lost its session meanwhile. */
async function onReturn(event) {
    if (!event.persisted)
        return;
    const who = await session.read().catch(() => null);
    if (who && !who.signed_in)
        onEnded(false);
}

/* Who would be refused is asked for a key before any other call. */
async function begin() {
    const signsIn = () => location.hash.startsWith('#/signin');
    try {
        if (!signsIn() && !(await session.read()).signed_in)
            history.replaceState(null, '',
                `#/signin?next=${encodeURIComponent(location.hash || '#/')}`);
    } catch (e) {
        /* no answer: the feed says so and looks again */
    }
    if (!signsIn())
        feed.start();
    await show(true);
    for (const [, page] of routes)
        load(page).catch(() => {});
}

document.querySelector('.skip').addEventListener('click', (event) => {
    event.preventDefault();
    main.focus();
});
document.getElementById('theme').addEventListener('click', nextTheme);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change',
    () => window.dispatchEvent(new Event('needled:theme')));
/* A file that is let go beside its place would be opened instead of the page. */
for (const kind of ['dragover', 'drop'])
    window.addEventListener(kind, (event) => {
        if (event.defaultPrevented || !event.dataTransfer.types.includes('Files'))
            return;
        event.preventDefault();
        event.dataTransfer.dropEffect = 'none';
    });
window.addEventListener('hashchange', onAddress);
window.addEventListener('pageshow', onReturn);
api.listen({ unauthorized: onUnauthorized });
session.watch('ended', onEnded);
session.watch('begun', onBegun);
showTransfers(document.getElementById('transfer'));
setTheme(storedTheme());
feed.watch(onConnection);
begin();
