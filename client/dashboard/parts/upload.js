/*
 * upload: the place where a file is dropped or chosen, and what becomes of it.
 */
import { errorNotice, lineList, notice, progress, setProgress } from './controls.js';
import { el, icon, set, text } from './dom.js';
import * as transfer from './transfer.js';
import { transferWords } from './transferbar.js';

const KINDS = '.jsonl,.json,.ndjson,.txt,application/jsonl';

/* The lines say it all; the message says it again. */
function refusal(file, lines) {
    return notice('error', el('p', {}, el('strong', {}, `${file.name} was not taken.`),
        ' It needs one JSON object a line; these are none:'), lineList(lines));
}

export class Upload {
    /* taken(record) for each file that arrived. */
    constructor(taken) {
        this.taken = taken;
        this.input = el('input', { type: 'file', id: 'drop-file', class: 'drop-input',
            accept: KINDS,
                                   onchange: () => this.take(this.input.files[0]) });
        this.bar = progress('Upload');
        this.words = el('p', { class: 'small muted num wrap' });
        this.moving = el('div', { class: 'drop-progress', hidden: true }, this.bar,
            el('div', { class: 'spread' }, this.words, el('button', {
                class: 'button button-small', type: 'button', onclick: () => transfer.cancel() },
            'Cancel the upload')));
        this.place = el('div', {});
        this.zone = el('div', { class: 'drop' }, icon('upload'),
            el('div', {},
                el('p', {}, this.input,
                    el('label', { class: 'drop-label', for: 'drop-file' }, 'Choose a JSONL file'),
                    ' or drop it here'),
                el('p', { class: 'hint' },
                    'One JSON object a line, with query, tools and answers.')));
        this.element = el('div', { class: 'stack' }, this.zone, this.moving, this.place);
        this.listen();
    }

    listen() {
        /* of the elements that are dragged over: each tells of its own entering and leaving */
        let depth = 0;
        const over = (on) => { this.zone.classList.toggle('is-over', on); };
        this.zone.addEventListener('dragenter', (event) => {
            event.preventDefault();
            depth++;
            over(true);
        });
        this.zone.addEventListener('dragover', (event) => { event.preventDefault(); });
        this.zone.addEventListener('dragleave', () => {
            depth = Math.max(0, depth - 1);
            over(depth > 0);
        });
        this.zone.addEventListener('drop', (event) => {
            event.preventDefault();
            depth = 0;
            over(false);
            this.take(event.dataTransfer.files[0]);
        });
    }

    take(file) {
        if (file && transfer.start(file))
            this.place.replaceChildren();
        this.input.value = '';
    }

    /* From now on, also of one that was begun before; the answer ends it. */
    attach() {
        return transfer.watch(({ now, last }) => {
            this.moving.hidden = !now;
            set(this.zone, { 'aria-busy': now ? 'true' : null });
            if (now) {
                setProgress(this.bar, now.share);
                text(this.words, transferWords(now));
            }
            if (last)
                this.show(last);
        });
    }

    show({ file, record, error }) {
        transfer.forget();
        if (record)
            this.taken(record);
        else
            this.place.replaceChildren(error.lines.length ? refusal(file, error.lines) :
                errorNotice(error));
    }
}
