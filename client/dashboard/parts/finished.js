/*
 * finished: what has ended, a page at a time, by state and by a part of name, id or model.
 *
 * All of that stands in the address: ?state=&search=, and &page= with the job &after= which it
 * begins.
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
        el('td', { class: 'finished-model' }, el('span', { class: 'cut', title: job.model },
            job.model)),
        el('td', { class: 'num' }, format.loss(job.train_loss)),
        el('td', { class: 'num' }, format.count(job.completed_steps)),
        el('td', { class: 'num' }, format.duration(spent)),
        el('td', { class: 'num' },
            el('time', { datetime: new Date(job.finished_at * 1000).toISOString(),
                                                title: format.moment(job.finished_at) },
                                                    format.ago(job.finished_at))));
}

export class Finished {
    constructor() {
        this.status = choices[0][1];
        this.words = '';
        this.starts = ['']; /* the cursor of each page up to this one; null: not known */
        this.reading = 0;
        this.jobs = null;
        this.any = null; /* whether there is any at all */
        this.onRead = () => {};
        this.body = el('tbody', {});
        const columns = ['Job', 'State', 'Model', 'Loss', 'Steps', 'Time', 'Ended'];
        this.table = el('div', { class: 'card card-flush finished-table' },
            el('div', { class: 'table-scroll', tabindex: 0, role: 'region',
                'aria-label': 'Table of finished jobs' },
                el('table', { class: 'table' },
                    el('thead', {}, el('tr', {}, columns.map((name, i) =>
                        el('th', { scope: 'col', class: i > 2 ? 'num' : null }, name)))),
                            this.body)));
        this.none = el('div', { hidden: true });
        this.count = el('span', { class: 'count' });
        this.makeControls();
        this.element = el('section', { class: 'section', 'aria-labelledby': 'finished' },
            el('div', { class: 'section-head' }, el('h2', { id: 'finished' }, 'Finished',
                this.count),
                this.filter, this.search),
            this.table, this.none, this.pager);
    }

    makeControls() {
        const input = el('input', { class: 'input', type: 'search',
            placeholder: 'Name, id or model',
                                    'aria-label': 'Search finished jobs', spellcheck: 'false' });
        input.addEventListener('input', () => {
            clearTimeout(this.timer);
            this.timer = setTimeout(() => this.ask({}, true), SEARCH_MS);
        });
        this.input = input;
        this.search = el('div', { class: 'search' }, icon('search'), input);
        this.filter = el('fieldset', { class: 'choice' },
            el('legend', { class: 'visually-hidden' }, 'State'),
            choices.map(([name, status], i) => el('label', {},
                el('input', { type: 'radio', name: 'finished-state', value: status,
                    checked: i === 0,
                              onchange: () => this.ask({ status }) }), el('span', {}, name))));
        const turn = (by, ...words) => el('button', { class: 'button button-small', type: 'button',
                                                      onclick: () => this.turn(by) }, words);
        this.newer = turn(-1, icon('left'), 'Newer');
        this.older = turn(1, 'Older', icon('right'));
        this.where = el('span', { class: 'small muted num' });
        this.pager = el('nav', { class: 'row row-end', 'aria-label': 'Pages of finished jobs',
            hidden: true },
            this.where, this.newer, this.older);
    }

    isEmpty() {
        return this.any === false;
    }

    /* ---- the address ------------------------------------------------------------------------- */

    /* What it asks for; read afterwards. */
    take(query) {
        const state = query.get('state');
        const after = query.get('after') || '';
        const page = Number(query.get('page'));
        const at = after && Number.isInteger(page) && page > 1 ? page : 1;
        clearTimeout(this.timer);
        this.status = ENDED.includes(state) ? state : choices[0][1];
        this.words = (query.get('search') || '').trim();
        if (at === 1)
            this.starts = [''];
        else if (this.starts[at - 1] === after)
            this.starts.length = at; /* a way back: the pages before it are known */
        else
            this.starts = ['', ...Array(at - 2).fill(null), after];
        if (this.input.value.trim() !== this.words)
            this.input.value = this.words;
        this.filter.querySelectorAll('input').forEach((one) => {
            one.checked = one.value === this.status;
        });
    }

    /* isTyped: no step to go back to, for each letter would be one. */
    showAddress(isTyped) {
        const at = this.starts.length;
        const query = new URLSearchParams();
        if (this.words)
            query.set('search', this.words);
        if (this.status !== choices[0][1])
            query.set('state', this.status);
        if (at > 1) {
            query.set('page', at);
            query.set('after', this.starts[at - 1]);
        }
        const address = `#/${String(query) && '?'}${query}`;
        if (isTyped)
            history.replaceState(null, '', address);
        else
            history.pushState(null, '', address);
    }

    ask(change, isTyped = false) {
        clearTimeout(this.timer);
        Object.assign(this, { words: this.input.value.trim() }, change);
        this.starts = [''];
        this.showAddress(isTyped);
        this.read(true);
    }

    async turn(by) {
        if (by > 0 && this.hasMore)
            this.starts.push(this.jobs[this.jobs.length - 1].id);
        else if (by < 0 && this.starts.length > 1)
            this.starts.pop();
        else
            return;
        const at = this.starts.length;
        if (this.starts[at - 1] === null) /* from an address: found again from the newest on */
            this.starts[at - 1] = await this.findStart(at) || '';
        if (!this.starts[at - 1])
            this.starts = [''];
        this.showAddress(false);
        this.read(true);
    }

    async findStart(at) {
        const before = (at - 1) * ROWS;
        const jobs = await api.all(this.path(), before).catch(() => []);
        return jobs.length >= before ? jobs[before - 1].id : null;
    }

    path() {
        return `/v1/fine_tuning/jobs?status=${this.status}` +
            (this.words ? `&search=${api.part(this.words)}` : '');
    }

    /* ---- data -------------------------------------------------------------------------------- */

    async read(isAsked = false) {
        const mine = ++this.reading;
        const after = this.starts[this.starts.length - 1];
        let isGone = false;
        const page = await api.get(`${this.path()}&limit=${ROWS}&count=true` +
            (after ? `&after=${api.part(after)}` : '')).catch((error) => {
            isGone = error.param === 'after';
            return null;
        });
        if (mine !== this.reading)
            return;
        if (isGone) { /* the job that an old address begins after: its first page is left */
            this.starts = [''];
            await this.read(isAsked);
            return;
        }
        if (!page)
            return;
        this.jobs = page.data;
        this.total = page.total_count;
        this.hasMore = page.has_more;
        if (this.status === choices[0][1] && !this.words && !after)
            this.any = page.data.length > 0;
        this.draw();
        if (isAsked)
            announce(page.data.length ? `${format.plural(this.total, 'job')} found` :
                'No such job');
        this.onRead();
    }

    close() {
        clearTimeout(this.timer);
        this.reading++;
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
        const first = (at - 1) * ROWS;
        text(this.count, format.count(this.total));
        text(this.where, `${first + 1}–${first + this.jobs.length} of ${format.count(this.total)}`);
        set(this.newer, { disabled: at === 1 });
        set(this.older, { disabled: !this.hasMore });
    }
}
