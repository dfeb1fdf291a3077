/*
 * log: what a job has told, newest first. Steps are in the curves and left out here.
 */
import * as api from '../api.js';
import { el, icon } from './dom.js';
import * as format from './format.js';

const ROWS = 50;
const SHOWN = 'message,validation,checkpoint,state,done';

function row(event) {
    return el('li', { class: 'log-row', 'data-level': event.level },
        el('time',
            { class: 'num faint small', datetime: new Date(event.created_at * 1000).toISOString(),
                     title: format.moment(event.created_at) },
                         format.shortMoment(event.created_at)),
        event.level === 'info' ? el('span', { class: 'log-mark', 'aria-hidden': 'true' }) :
            el('span', { class: 'log-mark' }, icon('warn'),
                el('span', { class: 'visually-hidden' },
                    event.level === 'warn' ? 'Warning: ' : 'Error: ')),
        el('p', { class: 'wrap' }, event.message));
}

export class Log {
    constructor(id) {
        this.id = id;
        this.numbers = new Set();
        this.list = el('ol', { class: 'log-list' });
        this.none = el('p', { class: 'faint log-none' }, 'Nothing yet');
        this.more = el('button', { class: 'button button-small', type: 'button', hidden: true,
                                   onclick: () => this.readOlder() }, 'Older events');
        this.element = el('section', { class: 'section', 'aria-labelledby': 'events' },
            el('div', { class: 'section-head' }, el('h2', { id: 'events' }, 'Events')),
            el('div', { class: 'card card-flush' },
                el('div', { class: 'log', tabindex: 0, role: 'log', 'aria-live': 'off',
                    'aria-labelledby': 'events' },
                    this.list, this.none)), el('div', {}, this.more));
    }

    path(after = '') {
        return `${api.jobPath(this.id, 'events')}?limit=${ROWS}&types=${SHOWN}` +
            (after ? `&after=${after}` : '');
    }

    async read() {
        const page = await api.get(this.path());
        this.list.replaceChildren();
        this.numbers.clear();
        this.oldest = null;
        this.append(page);
    }

    async readOlder() {
        this.append(await api.get(this.path(this.oldest)));
    }

    append(page) {
        for (const event of page.data) {
            if (!this.numbers.has(event.number))
                this.list.append(row(event));
            this.numbers.add(event.number);
            this.oldest = event.id;
        }
        this.more.hidden = !page.has_more;
        this.none.hidden = this.numbers.size > 0;
    }

    add(event) {
        if (event.type === 'metrics' || this.numbers.has(event.number))
            return;
        this.numbers.add(event.number);
        this.list.prepend(row(event));
        this.none.hidden = true;
    }
}
