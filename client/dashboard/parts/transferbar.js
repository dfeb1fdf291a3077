/*
 * transferbar: the upload that goes on, or has ended, while another page than its own is shown.
 */
import { progress, setProgress } from './controls.js';
import { el, icon, text } from './dom.js';
import * as format from './format.js';
import * as transfer from './transfer.js';

/* "a.jsonl: 3 MB of 9 MB" */
export function transferWords({ file, share }) {
    return share < 1 ?
        `${file.name}: ${format.bytes(share * file.size)} of ${format.bytes(file.size)}` :
        `${file.name}: reading its lines`;
}

function ended({ file, record, error }) {
    const close = el('button', { class: 'button button-quiet button-icon button-small',
        type: 'button',
                                 'aria-label': 'Close this note', title: 'Close',
                                 onclick: () => transfer.forget() }, icon('stop'));
    const words = record ? `${file.name} is uploaded.` :
        [el('strong', {}, `${file.name} was not taken. `), error.message];
    return [el('p', { class: 'wrap' }, words), el('div', { class: 'row' },
        el('a', { class: 'button button-small', href: '#/new' },
            record ? 'Make a job of it' : 'Look at it'), close)];
}

export function showTransfers(place) {
    const bar = progress('Upload');
    const words = el('p', { class: 'small num wrap' });
    const moving = [words, bar, el('button', { class: 'button button-small', type: 'button',
                                               onclick: () => transfer.cancel() },
                                                   'Cancel the upload')];
    let shown = null;

    transfer.watch(({ now, last }) => {
        place.hidden = !now && !last;
        if (now) {
            setProgress(bar, now.share);
            text(words, transferWords(now));
        }
        if (shown !== (now ? now.call : last)) /* a button that has the focus keeps it */
            place.replaceChildren(...(now ? moving : last ? ended(last) : []));
        shown = now ? now.call : last;
    });
}
