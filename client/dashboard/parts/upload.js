/*
 * upload: a file dropped or chosen, on its way to the daemon.
 */
import * as api from '../api.js';
import { errorNotice, lineList, notice, progress, setProgress } from './controls.js';
import { el, icon, text } from './dom.js';
import * as format from './format.js';
import { announce } from './page.js';

/* The file's record; told(share) as its bytes leave. fetch tells of no progress. */
function send(file, told) {
    return new Promise((resolve, reject) => {
        const call = new XMLHttpRequest();
        const form = new FormData();
        form.append('purpose', 'fine-tune');
        form.append('file', file, file.name);
        call.open('POST', api.url('/v1/files'));
        call.setRequestHeader('Accept', 'application/json');
        call.setRequestHeader('X-Needled-Request', 'dashboard');
        call.responseType = 'json';
        call.upload.addEventListener('progress', (event) => told(event.total ? event.loaded / event.total : 0));
        call.addEventListener('load', () => {
            api.answered(call.status);
            if (call.status >= 200 && call.status < 300)
                resolve(call.response);
            else
                reject(new api.ApiError(call.status, (call.response && call.response.error) || { message: `The server answered ${call.status}` }));
        });
        call.addEventListener('error', () => reject(new api.ApiError(0, { message: 'needled does not answer, or it ended the upload' })));
        call.send(form);
    });
}

/* The lines say it all; the message says it again. */
function refusal(file, lines) {
    return notice('error', el('p', {}, el('strong', {}, `${file.name} was not taken.`),
        ' It needs one JSON object a line; these are none:'), lineList(lines));
}

export class Upload {
    /* taken(record) for each file that arrived. */
    constructor(taken) {
        this.taken = taken;
        this.input = el('input', { type: 'file', id: 'drop-file', class: 'drop-input', accept: '.jsonl,.json,.ndjson,.txt,application/jsonl',
                                   onchange: () => this.take(this.input.files[0]) });
        this.bar = progress('Upload');
        this.words = el('p', { class: 'small muted num' });
        this.moving = el('div', { class: 'drop-progress', hidden: true }, this.bar, this.words);
        this.place = el('div', {});
        this.zone = el('div', { class: 'drop' }, icon('upload'),
            el('div', {}, el('p', {}, this.input, el('label', { class: 'drop-label', for: 'drop-file' }, 'Choose a JSONL file'), ' or drop it here'),
                el('p', { class: 'hint' }, 'One JSON object a line, with query, tools and answers.')));
        this.element = el('div', { class: 'stack' }, this.zone, this.moving, this.place);
        this.listen();
    }

    listen() {
        let depth = 0; /* of the elements that are dragged over: each tells of its own entering and leaving */
        const over = (on) => { this.zone.classList.toggle('is-over', on); };
        this.zone.addEventListener('dragenter', (event) => { event.preventDefault(); depth++; over(true); });
        this.zone.addEventListener('dragover', (event) => { event.preventDefault(); });
        this.zone.addEventListener('dragleave', () => { depth = Math.max(0, depth - 1); over(depth > 0); });
        this.zone.addEventListener('drop', (event) => {
            event.preventDefault();
            depth = 0;
            over(false);
            this.take(event.dataTransfer.files[0]);
        });
    }

    async take(file) {
        if (!file || this.zone.getAttribute('aria-busy') === 'true')
            return;
        this.place.replaceChildren();
        this.zone.setAttribute('aria-busy', 'true');
        this.moving.hidden = false;
        const told = (share) => {
            setProgress(this.bar, share);
            text(this.words, share < 1 ? `${file.name}: ${format.bytes(share * file.size)} of ${format.bytes(file.size)}` : `${file.name}: reading its lines`);
        };
        const stay = (event) => event.preventDefault(); /* the browser asks before it ends the upload */
        window.addEventListener('beforeunload', stay);
        told(0);
        try {
            const record = await send(file, told);
            announce(`${file.name} is uploaded`);
            this.taken(record);
        } catch (error) {
            if (error.status !== 401)
                this.place.replaceChildren(error.lines.length ? refusal(file, error.lines) : errorNotice(error));
        } finally {
            window.removeEventListener('beforeunload', stay);
            this.zone.removeAttribute('aria-busy');
            this.moving.hidden = true;
            this.input.value = '';
        }
    }
}
