/*
 * session: who is signed in at this browser.
 *
 * Where keys exist a page asks first, so that no call is made that must be refused.
 */
import * as api from './api.js';

let current = null;

/* The style leaves out what a key that only reads may not do: whatever has the class `changes`. */
function keep(session) {
    current = session;
    document.documentElement.dataset.scope = session.scope || '';
    return session;
}

/* {key_needed, signed_in, scope, name, ...} of GET /v1/session */
export async function read() {
    return keep(await api.get('/v1/session', { quiet: true }));
}

/* What was read last; read once if nothing was. */
export async function known() {
    return current || read();
}

export async function signIn(key) {
    return keep(await api.post('/v1/session', { key }, { quiet: true }));
}

export async function signOut() {
    return keep(await api.del('/v1/session', { quiet: true }));
}

export function isAdmin(session) {
    return session.scope === 'admin';
}

export function maySubmit(session) {
    return session.scope === 'submit' || session.scope === 'admin';
}
