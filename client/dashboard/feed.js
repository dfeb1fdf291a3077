/*
 * feed: the tab's one event stream.
 *
 * Reads GET /v1/events with fetch, which shows a refusal where EventSource only ends. After a break
 * it goes on behind the last event it has; after a long one, and where events were left out,
 * subscribers are told to read their state anew (resync). A browser opens six connections to a
 * host, all tabs together: at most STREAMS tabs hold a stream, a hidden tab none, the others poll.
 * Where streaming fails the tab polls too.
 */
import * as api from './api.js';

const STREAMS = 3;
const POLL_MS = 2000;
const POLL_PAGE = 500;
const SILENCE_MS = 45000; /* the daemon breaks silence every 15 s */
const OPEN_MS = 8000;
const NO_STREAM_MS = 30000;
const FRESH_MS = 90000; /* after a longer break the state is read anew instead of every event */
const HIDDEN_MS = 20000;
const NOTE_MS = 8000; /* a place is held for so long after its tab was last seen */
const BACKOFF_MS = [500, 1000, 2000, 4000, 8000, 15000];

const subscribers = new Set();
const watchers = new Set();
let state = 'connecting'; /* live, polling, gone, away (hidden), signed-out */
let lastRow = null;
let lastHeard = 0;
let failures = 0;
let noStreamUntil = 0;
let retryAt = 0;
let running = null; /* AbortController of what reads now */
let wake = null;
let stopped = true;

/* events: {event(e), resync()}; the answer ends it. */
export function subscribe(events) {
    subscribers.add(events);
    return () => subscribers.delete(events);
}

/* watch(state, retryAt) now and at every change. */
export function watch(watcher) {
    watchers.add(watcher);
    watcher(state, retryAt);
}

function become(next) {
    if (next === state && next !== 'gone')
        return;
    state = next;
    for (const watcher of watchers)
        watcher(state, retryAt);
}

function tell(name, argument) {
    for (const subscriber of [...subscribers]) {
        try {
            if (subscriber[name])
                subscriber[name](argument);
        } catch (e) {
            console.error(e); /* one page's mistake does not end the feed */
        }
    }
}

function rowOf(event) {
    return Number(event.id.slice(event.id.indexOf('-') + 1));
}

function take(event) {
    const row = rowOf(event);
    if (lastRow !== null && row <= lastRow)
        return;
    lastRow = row;
    tell('event', event);
}

const pause = (ms, signal) => new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => { clearTimeout(timer); resolve(); };
    if (signal)
        signal.addEventListener('abort', wake, { once: true });
});

/* ---- the stream ------------------------------------------------------------------------------ */

/* Calls take for each block of the text so far; answers what is left of an unfinished one. */
function readBlocks(buffered) {
    const blocks = buffered.split('\n\n');
    const rest = blocks.pop();
    for (const block of blocks) {
        const data = block.split('\n').filter((line) => line.startsWith('data:'))
            .map((line) => line.slice(line[5] === ' ' ? 6 : 5)).join('\n');
        if (data)
            take(JSON.parse(data));
    }
    return rest;
}

async function readBody(response, controller) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffered = '';
    let silence = null;
    const listen = () => {
        clearTimeout(silence);
        silence = setTimeout(() => controller.abort(), SILENCE_MS);
    };
    try {
        for (;;) {
            listen();
            const { done, value } = await reader.read();
            if (done)
                return;
            lastHeard = Date.now();
            buffered = readBlocks((buffered + value).replace(/^:[^\n]*\n/gm, ''));
        }
    } finally {
        clearTimeout(silence);
    }
}

async function stream(signal) {
    const controller = new AbortController();
    const abort = () => controller.abort();
    const opening = setTimeout(abort, OPEN_MS);
    const goesOn = lastRow !== null && Date.now() - lastHeard < FRESH_MS;
    signal.addEventListener('abort', abort, { once: true });
    try {
        const response = await api.request('GET', '/v1/events?stream=true', {
            headers: { Accept: 'text/event-stream',
                       ...(goesOn ? { 'Last-Event-ID': String(lastRow) } : {}) },
            signal: controller.signal,
        });
        clearTimeout(opening);
        if (response.status !== 200 || !response.body)
            throw new api.ApiError(response.status, { message: 'no stream came' });
        lastHeard = Date.now();
        failures = 0;
        become('live');
        if (!goesOn) {
            lastRow = null;
            tell('resync');
        }
        await readBody(response, controller);
    } finally {
        clearTimeout(opening);
        signal.removeEventListener('abort', abort);
    }
}

/* ---- polling --------------------------------------------------------------------------------- */

async function poll() {
    const page = await api.get(`/v1/events?limit=${lastRow === null ? 1 : POLL_PAGE}`,
        { signal: AbortSignal.timeout(OPEN_MS) });
    const events = page.data.reverse();
    const missed = lastRow !== null && page.has_more && events.length &&
        rowOf(events[0]) > lastRow + 1;
    const first = lastRow === null;

    lastHeard = Date.now();
    failures = 0;
    become('polling');
    if (first)
        lastRow = events.length ? rowOf(events[0]) : 0;
    if (first || missed)
        tell('resync');
    events.forEach(take);
}

async function pollFor(ms, signal) {
    const end = Date.now() + ms;
    while (!signal.aborted && Date.now() < end) {
        await poll();
        await pause(POLL_MS, signal);
    }
}

/* ---- which of the two, and when -------------------------------------------------------------- */

/* A place is a note with an end that its tab puts off. Two tabs that write at once see who came
 * last. */
async function withNote(name, f) {
    const mine = String(Math.random());
    const look = () => {
        const [tab, until] = (localStorage.getItem(name) || '').split(' ');
        return { tab, until: Number(until) || 0 };
    };
    const write = () => localStorage.setItem(name, `${mine} ${Date.now() + NOTE_MS}`);
    const now = Date.now();
    const { until } = look();
    if (until > now && until <= now + NOTE_MS)
        return false;
    write();
    await pause(50 + 100 * Math.random());
    if (look().tab !== mine)
        return false;
    const renewing = setInterval(() => look().tab === mine && write(), NOTE_MS / 4);
    const give = () => look().tab === mine && localStorage.removeItem(name);
    window.addEventListener('pagehide', give);
    try {
        await f();
    } finally {
        window.removeEventListener('pagehide', give);
        clearInterval(renewing);
        give();
    }
    return true;
}

/* The same where the page's address is not a secure one, which has no locks. */
async function withPlaceNoted(f) {
    try {
        localStorage.getItem('needled.stream.0');
    } catch (e) {
        return f().then(() => true); /* storage is forbidden: hidden tabs let go, at least */
    }
    for (let i = 0; i < STREAMS; i++) {
        if (await withNote(`needled.stream.${i}`, f))
            return true;
    }
    return false;
}

/* Holds one of the places for streams while f runs; false: all are taken. */
async function withPlace(f) {
    if (!navigator.locks)
        return withPlaceNoted(f);
    for (let i = 0; i < STREAMS; i++) {
        const had = await navigator.locks.request(`needled.stream.${i}`, { ifAvailable: true },
            async (lock) => {
                if (lock)
                    await f();
                return Boolean(lock);
            });
        if (had)
            return true;
    }
    return false;
}

async function readOnce(signal) {
    try {
        if (Date.now() < noStreamUntil || !window.TextDecoderStream ||
            !await withPlace(() => stream(signal)))
            await pollFor(NO_STREAM_MS, signal); /* then a place may be free */
    } catch (e) {
        if (signal.aborted)
            return;
        if (e.status === 401) {
            stop();
            become('signed-out');
            return;
        }
        failures++;
        /* Too many streams, a proxy that wants none, or no connection left for one. */
        if (e.status > 0 || (e.name === 'AbortError' && state !== 'live' && state !== 'gone')) {
            noStreamUntil = Date.now() + NO_STREAM_MS;
            if (failures < 3)
                return;
        }
        const wait = BACKOFF_MS[Math.min(failures, BACKOFF_MS.length) - 1];
        retryAt = Date.now() + wait;
        if (failures > 1 || e.code === 'unreachable')
            become('gone');
        await pause(wait * (0.8 + 0.4 * Math.random()), signal);
    }
}

async function run(controller) {
    while (!stopped && !controller.signal.aborted) {
        const began = Date.now();
        try {
            await readOnce(controller.signal);
        } catch (e) {
            failures++;
            become('gone');
            retryAt = Date.now() + 2000;
        }
        if (Date.now() - began < 250)
            await pause(250, controller.signal); /* a stream that ends at once does not spin */
    }
}

export function start() {
    if (!stopped)
        return;
    stopped = false;
    running = new AbortController();
    if (state === 'signed-out' || state === 'away')
        become('connecting');
    run(running);
}

export function stop() {
    stopped = true;
    if (running)
        running.abort();
}

/* Looks again at once: somebody asked. */
export function retryNow() {
    failures = 0;
    if (wake)
        wake();
}

let hiding = null;
document.addEventListener('visibilitychange', () => {
    clearTimeout(hiding);
    if (document.hidden) {
        hiding = setTimeout(() => {
            if (!stopped) {
                stop();
                become('away');
            }
        }, HIDDEN_MS);
    } else if (state === 'away') {
        start();
    } else {
        retryNow();
    }
});

/* A page that is left may be kept for coming back: its stream would keep one of the connections. */
window.addEventListener('pagehide', () => {
    if (!stopped) {
        stop();
        become('away');
    }
});
window.addEventListener('pageshow', (event) => {
    if (event.persisted && state === 'away')
        start();
});

/* A call of a page found nobody: look for the daemon now instead of at the next silence. */
api.listen({
    gone: () => {
        if (state === 'live' || state === 'polling') {
            become('gone');
            if (running && !stopped) {
                running.abort();
                running = new AbortController();
                run(running);
            }
        }
    },
});
