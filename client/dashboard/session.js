/*
 * session: who is signed in at this browser.
 *
 * Where keys exist a page asks first, so that no call is made that must be refused. Tabs tell each
 * other when a session begins and when it ends: what one of them shows is over in all of them at
 * once.
 */
import * as api from './api.js';

let current = null;
const watchers = { begun: new Set(), ended: new Set() };
const channel = window.BroadcastChannel ? new BroadcastChannel('needled.session') : null;

/* The style leaves out what a key that only reads may not do: whatever has the class `changes`. */
function keep(session) {
    current = session;
    document.documentElement.dataset.scope = session.scope || '';
    return session;
}

/* kind: begun, ended. f(isHere): in this tab, or in another one. The answer ends it. */
export function watch(kind, f) {
    watchers[kind].add(f);
    return () => watchers[kind].delete(f);
}

function tell(kind, isHere) {
    [...watchers[kind]].forEach((f) => f(isHere));
}

function tellAll(kind) {
    if (channel)
        channel.postMessage(kind);
    tell(kind, true);
}

if (channel) {
    channel.addEventListener('message', ({ data }) => {
        if (data === 'ended')
            current = null;
        if (watchers[data])
            tell(data, false);
    });
}

/* {key_needed, signed_in, scope, name, ...} of GET /v1/session */
export async function read() {
    return keep(await api.get('/v1/session', { quiet: true }));
}

/* What was read last; read once if nothing was. */
export async function known() {
    return current || read();
}

/* The id of the key that was signed in with, as far as is known. */
export function keyId() {
    return current ? current.key_id : null;
}

export async function signIn(key) {
    const session = keep(await api.post('/v1/session', { key }, { quiet: true }));
    tellAll('begun');
    return session;
}

export async function signOut() {
    await api.del('/v1/session', { quiet: true });
    current = null;
    tellAll('ended');
}

export function isAdmin(session) {
    return session.scope === 'admin';
}

export function maySubmit(session) {
    return session.scope === 'submit' || session.scope === 'admin';
}

/* A job or a model: what others made is an admin's to change. Who is not known is not judged: the
 * daemon does. */
export function mayChange(thing) {
    if (!current || isAdmin(current))
        return true;
    return maySubmit(current) && Boolean(current.key_id) && thing.created_by === current.key_id;
}
