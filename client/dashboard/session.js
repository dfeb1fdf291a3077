/*
 * session: who is signed in at this browser.
 *
 * Where keys exist a page asks first, so that no call is made that must be refused.
 */
import * as api from './api.js';

let current = null;

/* {key_needed, signed_in, scope, name, ...} of GET /v1/session */
export async function read() {
    current = await api.get('/v1/session', { quiet: true });
    return current;
}

/* What was read last; read once if nothing was. */
export async function known() {
    return current || read();
}

export async function signIn(key) {
    current = await api.post('/v1/session', { key }, { quiet: true });
    return current;
}

export async function signOut() {
    current = await api.del('/v1/session', { quiet: true });
    return current;
}

export function isAdmin(session) {
    return session.scope === 'admin';
}

export function maySubmit(session) {
    return session.scope === 'submit' || session.scope === 'admin';
}
