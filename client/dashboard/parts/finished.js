/*
 * finished: what has ended, a page at a time, by state and by a part of name, id or model.
 */
import * as api from '../api.js';
import { badge, empty, emptyLine } from './controls.js';
import { el, icon, set, text } from './dom.js';
import * as format from './format.js';
import { announce } from './page.js';

const ROWS = 20;
const SEARCH_MS = 250;
const ENDED = ['succeeded', 'failed', 'cancelled'];
const choices = [['All', ENDED.join(',')], ['Succeeded', 'succeeded'], ['Failed', 'failed'],
                 ['Cancelled', 'cancelled']];

function row(job) {
    const spent = job.started_at && job.finished_at ? job.finished_at - job.started_at : null;
    const reason = job.error && job.error.message ? job.error.message : null;
    return el('tr', {},
        el('td', { class: 'finished-name' },
            el('a', { href: `#/jobs/${job.id}`, class: 'cut', title: job.name }, job.name),
            reason ? el('span', { class: 'small faint cut', title: reason }, reason) : null),
        el('td', {}, badge(job.status)),
        el('td', { class: 'finished-model' }, el('span', { class: 'cut', title: job.model }, job.model)),
        el('td', { class: 'num' }, format.loss(job.train_loss)),
        el('td', { class: 'num' }, format.count(job.completed_steps)),
        el('td', { class: 'num' }, format.duration(spent)),
        el('td', { class: 'num' }, el('time', { datetime: new Date(job.finished_at * 1000).toISOString(),
                                                title: format.moment(job.finished_at) }, format.ago(job.finished_at))));
}

export class Finished {
    constructor() {
        this.status = choices[0][1];
        this.words = '';
        this.starts = ['']; /* the cursor of each page up to this one */
        this.reading = 0;
        this.jobs = null;
        this.any = null; /* whether there is any at all */
        this.onRead = () => {};
        this.body = el('tbody', {});
        const columns = ['Job', 'State', 'Model', 'Loss', 'Steps', 'Time', 'Ended'];
        this.table = el('div', { class: 'card card-flush finished-table' },
            el('div', { class: 'table-scroll', tabindex: 0, role: 'region', 'aria-labelledby': 'finished' },
                el('table', { class: 'table' },
                    el('thead', {}, el('tr', {}, columns.map((name, i) =>
                        el('th', { scope: 'col', class: i > 2 ? 'num' : null }, name)))), this.body)));
        this.none = el('div', { hidden: true });
        this.makeControls();
        this.element = el('section', { class: 'section', 'aria-labelledby': 'finished' },
            el('div', { class: 'section-head' }, el('h2', { id: 'finished' }, 'Finished'), this.filter, this.search),
            this.table, this.none, this.pager);
    }

    makeControls() {
        const input = el('input', { class: 'input', type: 'search', placeholder: 'Name, id or model',
                                    'aria-label': 'Search finished jobs', spellcheck: 'false' });
        let timer = null;
        input.addEventListener('input', () => {
            clearTimeout(timer);
            timer = setTimeout(() => this.ask({ words: input.value.trim() }), SEARCH_MS);
        });
        this.search = el('div', { class: 'search' }, icon('search'), input);
        this.filter = el('fieldset', { class: 'choice' }, el('legend', { class: 'visually-hidden' }, 'State'),
            choices.map(([name, status], i) => el('label', {},
                el('input', { type: 'radio', name: 'finished-state', checked: i === 0,
                              onchange: () => this.ask({ status }) }), el('span', {}, name))));
        const turn = (by, ...words) => el('button', { class: 'button button-small', type: 'button',
                                                      onclick: () => this.turn(by) }, words);
        this.newer = turn(-1, icon('left'), 'Newer');
        this.older = turn(1, 'Older', icon('right'));
        this.where = el('span', { class: 'small muted num' });
        this.pager = el('nav', { class: 'row row-end', 'aria-label': 'Pages of finished jobs', hidden: true },
            this.where, this.newer, this.older);
    }

    isEmpty() {
        return this.any === false;
    }

    ask(change) {
        Object.assign(this, change);
        this.starts = [''];
        this.read(true);
    }

    turn(by) {
        if (by > 0 && this.hasMore)
            this.starts.push(this.jobs[this.jobs.length - 1].id);
        else if (by < 0 && this.starts.length > 1)
            this.starts.pop();
        else
            return;
        this.read(true);
    }

    async read(isAsked = false) {
        const mine = ++this.reading;
        const after = this.starts[this.starts.length - 1];
        const page = await api.get(`/v1/fine_tuning/jobs?status=${this.status}&limit=${ROWS}` +
            (this.words ? `&search=${api.part(this.words)}` : '') + (after ? `&after=${api.part(after)}` : ''))
            .catch(() => null);
        if (!page || mine !== this.reading)
            return;
        this.jobs = page.data;
        this.hasMore = page.has_more;
        if (this.status === choices[0][1] && !this.words && !after)
            this.any = page.data.length > 0;
        this.draw();
        if (isAsked)
            announce(page.data.length ? `${format.plural(page.data.length, 'job')} shown` : 'No such job');
        this.onRead();
    }

    draw() {
        const at = this.starts.length;
        this.body.replaceChildren(...this.jobs.map(row));
        this.table.hidden = this.jobs.length === 0;
        this.none.hidden = this.jobs.length > 0;
        if (this.jobs.length === 0)
            this.none.replaceChildren(this.words || this.status !== choices[0][1] ?
                empty('No job like that', el('p', {}, 'Try another state or fewer letters.')) :
                emptyLine('Nothing has ended yet.', 'Jobs that end are kept here.'));
        this.pager.hidden = at === 1 && !this.hasMore;
        text(this.where, `${(at - 1) * ROWS + 1}–${(at - 1) * ROWS + this.jobs.length}`);
        set(this.newer, { disabled: at === 1 });
        set(this.older, { disabled: !this.hasMore });
    }
}
