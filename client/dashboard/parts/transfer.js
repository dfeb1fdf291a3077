/*
 * transfer: the one file that is on its way to the daemon, whatever page is shown.
 *
 * It goes on when its page is left. What became of it waits until somebody takes note.
 */
import * as api from '../api.js';
import { announce } from './page.js';

let now = null; /* {file, share, call} */
let last = null; /* {file, record} or {file, error} */
const watchers = new Set();

/* f({now, last}) at once and at every change; the answer ends it. */
export function watch(f) {
    watchers.add(f);
    f({ now, last });
    return () => watchers.delete(f);
}

function tell() {
    [...watchers].forEach((f) => f({ now, last }));
}

const stay = (event) => event.preventDefault(); /* the browser asks before it ends the upload */

function end(outcome) {
    window.removeEventListener('beforeunload', stay);
    now = null;
    last = outcome;
    tell();
}

/* fetch tells of no progress. */
function send(call, file) {
    const form = new FormData();
    form.append('purpose', 'fine-tune');
    form.append('file', file, file.name);
    call.open('POST', api.url('/v1/files'));
    call.setRequestHeader('Accept', 'application/json');
    call.setRequestHeader('X-Needled-Request', 'dashboard');
    call.responseType = 'json';
    call.send(form);
}

/* False: another one is on its way. */
export function start(file) {
    const call = new XMLHttpRequest();
    if (now)
        return false;
    now = { file, share: 0, call };
    last = null;
    window.addEventListener('beforeunload', stay);
    call.upload.addEventListener('progress', (event) => {
        now.share = event.total ? event.loaded / event.total : 0;
        tell();
    });
    call.addEventListener('load', () => {
        const refusal = call.response && call.response.error;
        if (call.status >= 200 && call.status < 300) {
            announce(`${file.name} is uploaded`);
            end({ file, record: call.response });
        } else {
            end(call.status === 401 ? null : { file, error: new api.ApiError(call.status,
                refusal || { message: `The server answered ${call.status}` }) });
        }
        api.answered(call.status);
    });
    call.addEventListener('error', () => end({ file, error: new api.ApiError(0,
        { message: 'needled does not answer, or it ended the upload' }) }));
    call.addEventListener('abort', () => {
        announce('The upload is cancelled');
        end(null);
    });
    send(call, file);
    tell();
    return true;
}

export function cancel() {
    if (now)
        now.call.abort();
}

/* What became of the last one was seen. */
export function forget() {
    last = null;
    tell();
}
