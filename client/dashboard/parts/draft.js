/*
 * draft: what was typed into a form and not sent yet, kept in this tab over reloads and ways back.
 *
 * It is of the key it was typed under: whoever signs in next at this tab does not see it.
 */
import * as session from '../session.js';

const PREFIX = 'needled.draft.';

/* The values that write got under that name, or null. */
export function read(name) {
    try {
        const { key, values } = JSON.parse(sessionStorage.getItem(PREFIX + name)) || {};
        return key === session.keyId() && values ? values : null;
    } catch (e) {
        return null; /* storage is forbidden, or it holds what is not ours */
    }
}

export function write(name, values) {
    try {
        sessionStorage.setItem(PREFIX + name, JSON.stringify({ key: session.keyId(), values }));
    } catch (e) {
        /* storage is forbidden, or full: nothing is kept */
    }
}

export function drop(name) {
    try {
        sessionStorage.removeItem(PREFIX + name);
    } catch (e) {
        /* storage is forbidden: nothing was kept */
    }
}

export function dropAll() {
    try {
        Object.keys(sessionStorage).filter((name) => name.startsWith(PREFIX))
            .forEach((name) => sessionStorage.removeItem(name));
    } catch (e) {
        /* storage is forbidden: nothing was kept */
    }
}
