/*
 * api: calls to the daemon.
 *
 * Every error is an ApiError whose message can be shown as it is. What fails for want of an answer
 * marks the daemon as gone (the feed looks for it and tells when it is back).
 */

export class ApiError extends Error {
    constructor(status, error) {
        super(error.message);
        this.name = 'ApiError';
        this.status = status; /* 0: no answer came */
        this.code = error.code || null;
        this.param = error.param || null;
        this.lines = error.lines || [];
    }
}

const listeners = { gone: () => {}, answered: () => {}, unauthorized: () => {} };

/* app.js and feed.js say what is to happen: gone(), answered(), unauthorized(). */
export function listen(names) {
    Object.assign(listeners, names);
}

async function readError(response) {
    try {
        const body = await response.json();
        if (body && body.error)
            return new ApiError(response.status, body.error);
    } catch (e) {
        /* not ours: a proxy's page */
    }
    return new ApiError(response.status, { message: `The server answered ${response.status}` });
}

const root = new URL('..', import.meta.url);

/* An address of the daemon, also where a proxy serves it below a path. */
export function url(path) {
    return new URL(path.replace(/^\//, ''), root).href;
}

/* The response, ok or not thrown. options as fetch takes them, and json: an object to send. */
export async function request(method, path, options = {}) {
    const { json, ...rest } = options;
    const headers = { Accept: 'application/json', ...(rest.headers || {}) };
    let response;

    if (method !== 'GET')
        headers['X-Needled-Request'] = 'dashboard'; /* a form of another site cannot send it */
    if (json !== undefined) {
        headers['Content-Type'] = 'application/json';
        rest.body = JSON.stringify(json);
    }
    try {
        response = await fetch(url(path), {
            method, credentials: 'same-origin', cache: 'no-store', ...rest, headers,
        });
    } catch (e) {
        if (e.name === 'AbortError')
            throw e;
        listeners.gone();
        throw new ApiError(0, { message: 'needled does not answer', code: 'unreachable' });
    }
    listeners.answered();
    if (response.ok)
        return response;
    const error = await readError(response);
    if (response.status === 401 && !options.quiet)
        listeners.unauthorized();
    throw error;
}

/* For a call that is not made here: its answer had that status. */
export function answered(status) {
    listeners.answered();
    if (status === 401)
        listeners.unauthorized();
}

export async function get(path, options) {
    return (await request('GET', path, options)).json();
}

export async function post(path, json, options) {
    return (await request('POST', path, { json, ...options })).json();
}

export async function del(path, options) {
    return (await request('DELETE', path, options)).json();
}

/* ---- what is served -------------------------------------------------------------------------- */

let description = null;

/* Read once. */
function described() {
    if (!description) {
        description = get('/v1/openapi.json').catch((error) => {
            description = null;
            throw error;
        });
    }
    return description;
}

export async function schema(name) {
    return (await described()).components.schemas[name];
}

/* Whether the daemon serves it: has('post', '/v1/generations'). Only refusals do not count. */
export async function has(method, path) {
    const operation = ((await described()).paths[path] || {})[method];
    return Boolean(operation) &&
        Object.keys(operation.responses || {}).some((status) => /^[123]/.test(status));
}

/* ---- addresses ------------------------------------------------------------------------------- */

export const part = encodeURIComponent;

export function jobPath(id, action = '') {
    return `/v1/fine_tuning/jobs/${part(id)}${action ? '/' + action : ''}`;
}

/* Every page of a listing, up to `most` elements. */
export async function all(path, most = 1000) {
    const data = [];
    let after = '';
    for (;;) {
        const page = await get(
            `${path}${path.includes('?') ? '&' : '?'}limit=${Math.min(most, 1000)}` +
            (after ? `&after=${part(after)}` : ''));
        data.push(...page.data);
        if (!page.has_more || data.length >= most || !page.data.length)
            return data;
        after = page.last_id;
    }
}
